//! Sessions that are put back to what they were.

use flow_core::outcome::Outcome;
use flow_core::session::Status;

use super::*;

#[tokio::test]
async fn the_session_goes_on_from_there_and_its_revision_goes_up() {
    for (store, _kept) in stores().await {
        let talk = talk_on(store, Desk::default(), |engine| engine);
        for text in ["add:a", "add:b", "add:c"] {
            talk.say("s", text).await;
        }
        let s = talk.session("s");
        s.rewind(1).await.unwrap();
        assert_eq!((talk.revision("s").await, talk.items("s").await), (4, vec!["a".to_owned()]));
        assert_eq!(talk.said("s").await, ["add:a", "a"]);
        let outcome = talk.say("s", "add:x").await;
        assert_eq!((outcome.revision, outcome.replies), (5, vec!["a x".to_owned()]));
        assert_eq!(talk.said("s").await, ["add:a", "a", "add:x", "a x"]);

        // A rewind is a commit like any other, and can be undone.
        let history = s.history().await.unwrap();
        assert_eq!(history.iter().map(|kept| kept.revision).collect::<Vec<_>>(), [5, 4, 3, 2, 1]);
        s.rewind(3).await.unwrap();
        assert_eq!(talk.items("s").await, ["a", "b", "c"]);
        s.rewind(4).await.unwrap();
        assert_eq!(talk.items("s").await, ["a"]);
        assert_eq!(talk.revision("s").await, 7);
    }
}

#[tokio::test]
async fn no_archive_entry_is_lost_or_written_over() {
    for (store, _kept) in stores().await {
        let memory = MemoryPolicy::default().window(2).batch(2);
        let flow = Desk { memory, ..Desk::default() };
        let talk = talk_on(store, flow, |engine| engine);
        let mut said: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        let mut turns = 0;
        for target in [None, Some(3), Some(8), Some(2), Some(13), Some(7)] {
            if let Some(target) = target {
                talk.session("s").rewind(target).await.unwrap();
                let revision = talk.revision("s").await;
                said.insert(revision, said[&target].clone());
                assert_eq!(talk.said("s").await, said[&target], "to {target}");
            }
            for _ in 0..7 {
                turns += 1;
                talk.say("s", &format!("add:{turns}")).await;
                said.insert(talk.revision("s").await, talk.said("s").await);
            }
            for (revision, said) in &said {
                let kept = talk.session("s").checkpoint(*revision).await.unwrap();
                assert_eq!(texts(&kept), *said, "revision {revision} after {target:?}");
            }
        }
        let transcript = talk.session("s").transcript().await.unwrap();
        let seqs: Vec<u64> = transcript.messages().iter().map(|message| message.seq).collect();
        assert!(seqs.is_sorted_by(|one, next| one < next), "{seqs:?}");
        assert!(transcript.archive.len() > 3);
    }
}

#[tokio::test]
async fn nothing_is_copied_when_the_archive_is_the_same() {
    let talk = talk(Durability::Crossing);
    for text in ["add:a", "add:b"] {
        talk.say("s", text).await;
    }
    let before = talk.doc("s").await.archive;
    talk.session("s").rewind(1).await.unwrap();
    assert_eq!(talk.doc("s").await.archive, before);
}

#[tokio::test]
async fn a_request_that_waits_has_a_new_id_and_an_answer_to_the_old_one_is_refused() {
    for durability in DURABILITIES {
        let talk = talk(durability);
        talk.say("s", "charge:1 approve charge:2").await;
        let at = talk.revision("s").await;
        let old = talk.pending("s").await.remove(0);
        talk.approve("s", &old).await.unwrap();
        assert_eq!(talk.flow.bank.take().len(), 2);

        talk.session("s").rewind(at).await.unwrap();
        let new = talk.pending("s").await.remove(0);
        assert_eq!(Interrupt { request_id: old.request_id.clone(), ..new.clone() }, old);
        let error = talk.approve("s", &old).await.unwrap_err();
        assert_eq!(error.code(), "not-waiting", "{durability:?}");
        assert!(error.to_string().contains(&new.request_id), "{error}");
        assert_eq!(talk.flow.bank.take().len(), 0);
        let outcome = talk.approve("s", &new).await.unwrap();
        assert_eq!(outcome.replies, ["approved", "receipt 3 for 2, repeated: false"]);
        assert_eq!(
            talk.flow.bank.take().len(),
            1,
            "the charge before the request is not made again"
        );
    }
}

#[tokio::test]
async fn what_is_made_from_there_on_is_really_made() {
    for durability in DURABILITIES {
        let talk = talk(durability);
        talk.say("s", "add:a").await;
        let at = talk.revision("s").await;
        talk.say("s", "charge:1 again charge:2 again charge:3").await;
        let mut made = talk.flow.bank.take();
        for _ in 0..3 {
            talk.session("s").rewind(at).await.unwrap();
            let outcome = talk.say("s", "charge:1 again charge:2 again charge:3").await;
            assert_eq!(outcome.replies.len(), 3);
            made.extend(talk.flow.bank.take());
        }
        assert_eq!(made.len(), 12, "{durability:?}: {made:?}");
        let keys: std::collections::BTreeSet<_> = made.iter().collect();
        assert_eq!(keys.len(), 12);
    }
}

#[tokio::test]
async fn visits_of_a_turn_that_was_not_committed_are_passed_over() {
    let talk = talk(Durability::Turn);
    talk.say("s", "add:a").await;
    talk.try_say("s", "again charge:1 again charge:1 fail").await.unwrap_err();
    assert_eq!(talk.doc("s").await.visit.number, 1, "of the others the document knows nothing");
    let made = talk.flow.bank.take();
    talk.session("s").rewind(1).await.unwrap();
    talk.say("s", "again charge:1 again charge:1").await;
    let again = talk.flow.bank.take();
    assert_eq!((made.len(), again.len()), (2, 2), "{made:?} and {again:?}");
}

#[tokio::test]
async fn a_turn_that_has_ended_is_not_made_again() {
    for (store, _kept) in stores().await {
        let talk = talk_on(store, Desk::default(), |engine| engine);
        let send = |turn: &str, text: &str| {
            let request = TurnRequest::new(id("s")).message(text).turn_id(turn);
            talk.engine.turn::<Desk>(request)
        };
        send("one", "add:a").await.unwrap();
        send("two", "charge:1 again add:b").await.unwrap();
        // Between the two visits of the second turn.
        talk.session("s").rewind(2).await.unwrap();
        let doc = talk.doc("s").await;
        assert_eq!((doc.status, doc.waiting, doc.visit.turn), (Status::Waiting, None, None));
        for (turn, said) in [("one", "a"), ("two", "a b")] {
            let outcome = send(turn, "add:x").await.unwrap();
            assert!(outcome.repeated, "{turn}");
            assert_eq!(outcome.replies.last().unwrap(), said);
        }
        assert_eq!(talk.items("s").await, ["a"]);
        let outcome = talk.go_on("s").await;
        assert_eq!(outcome.replies, ["a b"]);
        let turns: Vec<_> = talk.doc("s").await.turns.into_iter().map(|turn| turn.id).collect();
        assert_eq!(turns, ["one", "two"]);
        assert_eq!(talk.flow.bank.take().len(), 1);
    }
}

#[tokio::test]
async fn a_turn_that_was_cut_off_is_still_under_way() {
    let talk = talk(Durability::Crossing);
    let send = |text: &str| {
        let request = TurnRequest::new(id("s")).message(text).turn_id("t");
        talk.engine.turn::<Desk>(request)
    };
    send("add:a again fail").await.unwrap_err();
    // Between the two visits; the failure is the next revision.
    talk.session("s").rewind(1).await.unwrap();
    assert_eq!(talk.doc("s").await.error, None);
    assert_eq!(talk.doc("s").await.visit.turn.as_deref(), Some("t"));
    send("add:a again fail").await.unwrap_err();
    assert_eq!(talk.items("s").await, ["a"], "it goes on after its first visit");
}

#[tokio::test]
async fn a_session_that_has_ended_goes_on() {
    for (store, _kept) in stores().await {
        let talk = talk_on(store, Desk::default(), |engine| engine);
        talk.say("s", "add:a").await;
        talk.say("s", "end").await;
        talk.session("s").rewind(1).await.unwrap();
        talk.say("s", "add:b").await;
        assert_eq!(talk.items("s").await, ["a", "b"]);
        talk.session("s").rewind(2).await.unwrap();
        assert_eq!(talk.try_say("s", "add:c").await.unwrap_err().code(), "session-ended");
    }
}

#[tokio::test]
async fn a_document_that_was_superseded_comes_back_and_what_was_kept_of_it_stays() {
    for (store, _kept) in stores().await {
        let memory = MemoryPolicy::default().window(2).batch(2);
        let flow = Desk { memory, ..Desk::default() };
        let talk = talk_on(store.clone(), flow.clone(), |engine| engine);
        for turn in 0..6 {
            talk.say("s", &format!("add:{turn}")).await;
        }
        let old = talk.said("s").await;
        let begin = talk_on(store, Desk { fresh: true, ..flow }, |engine| engine);
        begin.say("s", "add:new").await;
        assert_eq!(talk.items("s").await, ["new"]);
        talk.session("s").rewind(4).await.unwrap();
        assert_eq!(talk.said("s").await, old[..8]);
        for turn in 4..10 {
            talk.say("s", &format!("add:again{turn}")).await;
        }
        assert_eq!(talk.items("s").await.len(), 10);
        assert_eq!(talk.said("s").await[..8], old[..8]);
        let kept: SessionId = serde_json::from_value("s~1".into()).unwrap();
        let kept_of_it = talk.store.transcript(&kept).await.unwrap().unwrap();
        assert_eq!(texts(&kept_of_it), old);
        begin.say("s", "add:newer").await;
        assert_eq!(talk.doc("s").await.superseded, 2, "nothing takes the place of the first one");
        assert_eq!(texts(&talk.store.transcript(&kept).await.unwrap().unwrap()), old);
    }
}

#[tokio::test]
async fn a_sleep_that_is_over_by_now_is_due_again() {
    for (store, _kept) in stores().await {
        let talk = talk_on(store, Desk::default(), |engine| engine);
        talk.say("s", "sleep:60 charge:1 add:a").await;
        talk.clock.advance(Duration::from_secs(61));
        talk.engine.sweep().await.unwrap();
        talk.session("s").rewind(1).await.unwrap();
        assert!(talk.items("s").await.is_empty());
        assert_eq!(talk.engine.sweep().await.unwrap().woken, [id("s")]);
        assert_eq!(talk.items("s").await, ["a"]);
        assert_eq!(talk.flow.bank.take().len(), 2);
    }
}

#[tokio::test]
async fn the_step_of_another_visit_comes_back_with_its_fields() {
    let talk = talk(Durability::Crossing);
    talk.say("s", "add:a").await;
    let outcome = talk.say("s", "over").await;
    assert_eq!((outcome.step.as_str(), outcome.replies), ("Over", vec!["over".to_owned()]));
    talk.session("s").rewind(1).await.unwrap();
    let doc = talk.doc("s").await;
    assert_eq!((doc.current_step.as_str(), doc.path.len()), ("Act", 1));
    assert_eq!(doc.steps["Act"]["runs"], 1);
    let outcome = talk.say("s", "add:b").await;
    assert!(matches!(outcome.outcome, Outcome::Waiting { .. }));
    assert_eq!(talk.doc("s").await.steps["Act"]["runs"], 2);
}
