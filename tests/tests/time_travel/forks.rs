//! New sessions from what a session was.

use flow_core::outcome::Outcome;
use flow_core::session::Status;

use super::*;

#[tokio::test]
async fn both_go_their_own_way() {
    for (store, _kept) in stores().await {
        let talk = talk_on(store, Desk::default(), |engine| engine);
        for text in ["add:a", "add:b", "add:c"] {
            talk.say("s", text).await;
        }
        let fork = talk.session("s").fork(2, id("f")).await.unwrap();
        assert_eq!(fork.id(), &id("f"));
        assert_eq!(talk.items("f").await, ["a", "b"]);
        assert_eq!(talk.said("f").await, ["add:a", "a", "add:b", "a b"]);
        talk.say("f", "add:x").await;
        talk.say("s", "add:d").await;
        assert_eq!(talk.items("f").await, ["a", "b", "x"]);
        assert_eq!(talk.items("s").await, ["a", "b", "c", "d"]);
        assert_eq!(talk.said("f").await[4..], ["add:x", "a b x"]);

        // A fork has a history of its own, and can be forked.
        let history = fork.history().await.unwrap();
        assert_eq!(history.iter().map(|kept| kept.revision).collect::<Vec<_>>(), [2, 1]);
        fork.fork(1, id("g")).await.unwrap();
        assert_eq!(talk.items("g").await, ["a", "b"]);
        // It outlives the session that it came from.
        talk.session("s").delete().await.unwrap();
        assert_eq!(talk.said("f").await.len(), 6);
        assert_eq!(fork.history().await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn the_transcript_of_a_fork_is_whole_and_both_archive_on() {
    for (store, _kept) in stores().await {
        let memory = MemoryPolicy::default().window(2).batch(2);
        let flow = Desk { memory, ..Desk::default() };
        let talk = talk_on(store, flow, |engine| engine);
        let mut said = Vec::new();
        for turn in 0..10 {
            talk.say("s", &format!("add:{turn}")).await;
            said.push(talk.said("s").await);
        }
        let archived = talk.session("s").checkpoint(6).await.unwrap().archive.len();
        assert!(archived > 1, "{archived}");
        talk.session("s").fork(6, id("f")).await.unwrap();
        assert_eq!(talk.said("f").await, said[5]);
        for turn in 0..6 {
            talk.say("f", &format!("add:f{turn}")).await;
            talk.say("s", &format!("add:s{turn}")).await;
        }
        let (f, s) = (talk.said("f").await, talk.said("s").await);
        assert_eq!((f.len(), s.len()), (24, 32));
        assert_eq!((&f[..12], &f[12]), (&said[5][..], &"add:f0".to_owned()));
        assert_eq!((&s[..20], &s[20]), (&said[9][..], &"add:s0".to_owned()));
        let transcript = talk.session("f").transcript().await.unwrap();
        let seqs: Vec<u64> = transcript.messages().iter().map(|message| message.seq).collect();
        assert_eq!(seqs, (0..24).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn what_was_made_before_is_not_made_again_and_what_comes_after_is_made_by_each() {
    for durability in DURABILITIES {
        let talk = talk(durability);
        talk.say("s", "charge:1 approve charge:2").await;
        let [first] = &talk.flow.bank.take()[..] else { panic!() };
        let at = talk.revision("s").await;
        let request = talk.pending("s").await.remove(0);
        talk.approve("s", &request).await.unwrap();
        let [second] = &talk.flow.bank.take()[..] else { panic!() };

        talk.session("s").fork(at, id("f")).await.unwrap();
        let outcome = talk.say("f", "what now?").await;
        assert!(matches!(outcome.outcome, Outcome::Suspended { .. }), "it waits, {durability:?}");
        let request = talk.pending("f").await.remove(0);
        let outcome = talk.approve("f", &request).await.unwrap();
        assert_eq!(outcome.replies, ["approved", "receipt 3 for 2, repeated: false"]);
        let [third] = &talk.flow.bank.take()[..] else { panic!("{durability:?}") };
        assert!(first.starts_with("s:1:0:charge:"), "{first}");
        assert!(second.starts_with("s:1:2:charge:"), "{second}");
        assert!(third.starts_with("f:1:2:charge:"), "{third}");
    }
}

#[tokio::test]
async fn one_may_be_approved_and_the_other_denied() {
    let talk = talk(Durability::Crossing);
    talk.say("s", "approve add:a").await;
    talk.session("s").fork(1, id("f")).await.unwrap();
    let request = talk.pending("f").await.remove(0);
    let deny = Delivery::deny(&request.request_id).by("ada");
    talk.engine.deliver(id("f"), deny).await.unwrap_err();
    assert_eq!(talk.items("f").await, [""; 0]);
    talk.approve("s", &request).await.unwrap();
    assert_eq!(talk.items("s").await, ["a"]);
}

#[tokio::test]
async fn a_checkpoint_between_two_steps_waits_and_a_turn_without_a_message_goes_on() {
    for (store, _kept) in stores().await {
        let talk = talk_on(store, Desk::default(), |engine| engine);
        let turn = TurnRequest::new(id("s")).message("charge:1 again charge:2").turn_id("t");
        talk.engine.turn::<Desk>(turn.clone()).await.unwrap();
        let made = talk.flow.bank.take();
        assert_eq!(made.len(), 2);
        let history = talk.session("s").history().await.unwrap();
        assert_eq!(history.last().unwrap().status, Status::Running);

        talk.session("s").fork(1, id("f")).await.unwrap();
        let doc = talk.doc("f").await;
        assert_eq!((doc.status, doc.wake_at, &doc.waiting), (Status::Waiting, None, &None));
        assert_eq!(doc.visit.heard.as_deref(), Some("charge:1 again charge:2"));
        assert_eq!(talk.engine.sweep().await.unwrap(), Default::default(), "nobody runs it");
        let outcome = talk.go_on("f").await;
        assert_eq!(outcome.replies, ["receipt 3 for 2, repeated: false"]);
        assert!(talk.doc("f").await.turns.is_empty(), "nobody has sent that turn to the fork");
        let [made] = &talk.flow.bank.take()[..] else { panic!() };
        assert!(made.starts_with("f:2:0:charge:"), "{made}");

        // The fork does not know the turn ids of the other session.
        let again = TurnRequest::new(id("f")).message("add:f").turn_id("t");
        let outcome = talk.engine.turn::<Desk>(again).await.unwrap();
        assert!(!outcome.repeated);
        assert_eq!(talk.items("f").await, ["f"]);
    }
}

#[tokio::test]
async fn one_of_two_answers_that_was_just_taken_is_not_lost() {
    for (store, _kept) in stores().await {
        let talk = talk_on(store, Desk::default(), |engine| engine);
        talk.say("s", "both").await;
        let [first, second] = &talk.pending("s").await[..] else { panic!() };
        talk.approve("s", first).await.unwrap();
        // Revision 2 is the commit of the answer, before the step runs on with it.
        let checkpoint = talk.session("s").checkpoint(2).await.unwrap();
        assert_eq!(checkpoint.doc.status, Status::Running);
        talk.session("s").fork(2, id("f")).await.unwrap();
        assert_eq!(talk.doc("f").await.status, Status::Waiting);
        let swept = talk.engine.sweep().await.unwrap();
        assert_eq!(swept.woken, [id("f")]);
        assert_eq!(talk.doc("f").await.wake_at, None);
        assert_eq!(talk.pending("f").await.len(), 1);
        let outcome = talk.approve("f", second).await.unwrap();
        assert_eq!(outcome.replies, ["true true"]);
        assert_eq!(talk.pending("s").await.len(), 1, "the other one still waits");
    }
}

#[tokio::test]
async fn a_sleep_that_is_over_by_now_is_due_again() {
    for (store, _kept) in stores().await {
        let talk = talk_on(store, Desk::default(), |engine| engine);
        talk.say("s", "sleep:60 add:a").await;
        talk.clock.advance(Duration::from_secs(30));
        talk.session("s").fork(1, id("early")).await.unwrap();
        assert!(talk.engine.sweep().await.unwrap().woken.is_empty());
        talk.clock.advance(Duration::from_secs(31));
        assert_eq!(talk.engine.sweep().await.unwrap().woken, [id("early"), id("s")]);
        talk.session("s").fork(1, id("late")).await.unwrap();
        assert_eq!(talk.engine.sweep().await.unwrap().woken, [id("late")]);
        for name in ["s", "early", "late"] {
            assert_eq!(talk.items(name).await, ["a"], "{name}");
        }
    }
}

#[tokio::test]
async fn a_call_that_was_running_counts_as_not_made() {
    let talk = talk(Durability::Effect);
    let turn = talk.engine.turn::<Desk>(TurnRequest::new(id("s")).message("charge:1 stall:2"));
    talk.flow.barrier.reached.notified().await;
    talk.flow.barrier.passed.notify_one();
    turn.await.unwrap();
    let before = talk.flow.bank.take();
    let history = talk.session("s").history().await.unwrap();
    let begun = talk.session("s").checkpoint(history[1].revision).await.unwrap();
    assert_eq!(begun.doc.effects.len(), 2, "before the call that stalled");

    talk.session("s").fork(history[1].revision, id("f")).await.unwrap();
    assert_eq!(talk.doc("f").await.effects.len(), 1);
    talk.flow.barrier.passed.notify_one();
    let outcome = talk.go_on("f").await;
    let replies = ["receipt 1 for 1, repeated: false", "stalled, repeated: false"];
    assert_eq!(outcome.replies, replies, "the first charge is not made again");
    let made = talk.flow.bank.take();
    assert_eq!((before.len(), made.len()), (2, 1));
    assert!(made[0].starts_with("f:1:1:stall:"), "{made:?}");
}

#[tokio::test]
async fn the_fork_of_a_session_that_has_ended_has_ended_or_not() {
    let talk = talk(Durability::Crossing);
    talk.say("s", "add:a").await;
    talk.say("s", "end").await;
    talk.session("s").fork(2, id("ended")).await.unwrap();
    let error = talk.try_say("ended", "add:b").await.unwrap_err();
    assert_eq!(error.code(), "session-ended");
    talk.session("s").fork(1, id("open")).await.unwrap();
    talk.say("open", "add:b").await;
    assert_eq!(talk.items("open").await, ["a", "b"]);
}
