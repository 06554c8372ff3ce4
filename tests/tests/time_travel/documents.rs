//! What becomes of each field of a document.

use flow_core::effect::{Approved, Decision};
use flow_core::engine::{Limits, SweepReport};
use flow_core::message::{Role, ToolCallPart};
use flow_core::model::TokenUsage;
use flow_core::session::{
    AskedCall, Display, EdgeCount, EffectKind, EffectOutcome, EffectRecord, Memory, PendingRound,
    Status, TurnRecord, Visit,
};
use serde_json::json;

use super::*;

fn record(kind: EffectKind, tool: &str, is_over: bool) -> EffectRecord {
    let at = "2026-11-30T12:00:00Z".parse().unwrap();
    let mut record = EffectRecord::tool(tool, at);
    record.kind = kind;
    record.outcome = is_over.then(|| EffectOutcome::Value(json!("done")));
    record
}

fn request(request_id: &str) -> Interrupt {
    Interrupt {
        request_id: request_id.into(),
        kind: EffectKind::Approval,
        step: "Act".into(),
        name: "may I?".into(),
        display: Display::default(),
        allowed: Vec::new(),
        response_schema: None,
        deadline: None,
        on_expiry: None,
        operation: None,
    }
}

fn turn(talk_id: &str) -> TurnRecord {
    TurnRecord {
        id: talk_id.into(),
        outcome: flow_core::outcome::Outcome::Waiting { question: None },
        replies: Vec::new(),
        revision: 1,
        gates: Vec::new(),
        at: "2026-11-30T12:00:00Z".parse().unwrap(),
    }
}

fn effects(
    session: &str,
    visit: u64,
    places: &[(u32, EffectKind, &str, bool)],
) -> BTreeMap<String, EffectRecord> {
    let effects = places.iter().map(|(place, kind, tool, is_over)| {
        (format!("{session}:{visit}:{place}:{tool}:0123"), record(*kind, tool, *is_over))
    });
    effects.collect()
}

/// A session at revision 2 with every field in use, in the middle of a turn.
fn fill(doc: &mut SessionDoc) {
    let call = ToolCallPart { id: "c".into(), name: "charge".into(), arguments: json!({}) };
    let decision = Some(Decision::Approved(Approved::default()));
    let asked = AskedCall { call: "c".into(), request: request("4-7-0"), decision };
    let at = doc.created_at;
    let message = flow_core::message::Message::text(7, Role::User, "hello", at);
    *doc = SessionDoc {
        status: Status::Running,
        visit: Visit {
            number: 4,
            entered: true,
            from: Some("Over".into()),
            input: Some(json!(1)),
            asked: 1,
            calls: 1,
            said: 2,
            message: Some("approve".into()),
            heard: Some("please approve".into()),
            turn: Some("under-way".into()),
            round: Some(PendingRound {
                answer: vec![Part::ToolCall(call)],
                results: Vec::new(),
                asked: vec![asked],
                place: 3,
                rounds: 1,
                refused: 0,
            }),
        },
        state: json!({ "items": ["a"] }),
        steps: [("Act".to_owned(), json!({ "runs": 3 }))].into(),
        memory: [("main".to_owned(), Memory { messages: vec![message], ..Memory::default() })]
            .into(),
        context: [("locale".to_owned(), json!("de"))].into_iter().collect(),
        edges: vec![EdgeCount { from: "Over".into(), to: "Act".into(), count: 2 }],
        turns: vec![turn("first")],
        effects: effects(
            "s",
            4,
            &[
                (1, EffectKind::Tool, "charge", true),
                (2, EffectKind::Approval, "approval", false),
                (3, EffectKind::Tool, "charge", false),
                (4, EffectKind::Run, "count", false),
                (5, EffectKind::Sleep, "sleep", false),
                (10, EffectKind::Run, "count", true),
            ],
        ),
        waiting: Some(Waiting::Interrupts { pending: vec![request("4-2-aa"), request("4-5-bb")] }),
        wake_at: Some("2027-01-01T00:00:00Z".parse().unwrap()),
        error: Some(flow_core::session::ErrorRecord {
            code: "c".into(),
            message: "m".into(),
            retryable: true,
        }),
        usage: TokenUsage::new(7, 5),
        next_message: 8,
        owner: Some("ada".into()),
        labels: [("channel".to_owned(), "web".to_owned())].into(),
        ..doc.clone()
    };
}

/// What has happened since.
fn change(doc: &mut SessionDoc) {
    doc.visit.number = 9;
    doc.turns = vec![turn("first"), turn("under-way")];
    doc.usage = TokenUsage::new(70, 50);
    doc.next_message = 20;
    doc.owner = Some("bob".into());
    doc.labels = [("channel".to_owned(), "mail".to_owned())].into();
    doc.superseded = 2;
    doc.effects.clear();
    doc.waiting = None;
    doc.state = json!({ "items": [] });
}

/// The recorded visit under another session or number.
fn moved(
    mut doc: SessionDoc,
    session: &str,
    visit: u64,
    now: flow_core::time::Timestamp,
) -> SessionDoc {
    doc.status = Status::Waiting;
    doc.visit.number = visit;
    doc.visit.turn = None;
    doc.visit.round.as_mut().unwrap().asked[0].request.request_id = format!("{visit}-7-0");
    doc.effects = effects(
        session,
        visit,
        &[
            (1, EffectKind::Tool, "charge", true),
            (2, EffectKind::Approval, "approval", false),
            (5, EffectKind::Sleep, "sleep", false),
            (10, EffectKind::Run, "count", true),
        ],
    );
    let pending = vec![request(&format!("{visit}-2-aa")), request(&format!("{visit}-5-bb"))];
    doc.waiting = Some(Waiting::Interrupts { pending });
    // An answer was just taken.
    doc.wake_at = Some(now);
    doc
}

async fn prepared(store: Arc<dyn SessionStore>) -> (Talk, SessionDoc, SessionDoc) {
    let ttl = Duration::from_secs(3600);
    let limits = Limits::default().crossings(30);
    let talk = talk_on(store, Desk::default(), |engine| engine.session_ttl(ttl).limits(limits));
    talk.say("s", "add:x").await;
    let then = talk.edit("s", fill).await;
    let present = talk.edit("s", change).await;
    talk.clock.advance(Duration::from_secs(100));
    (talk, then, present)
}

#[tokio::test]
async fn a_fork_has_what_was_then_and_begins_now() {
    for (store, _kept) in stores().await {
        let (talk, then, present) = prepared(store).await;
        let now = flow_core::time::Clock::now(&talk.clock);
        talk.session("s").fork(2, id("f")).await.unwrap();
        let fork = talk.doc("f").await;
        let wanted = SessionDoc {
            id: id("f"),
            revision: 1,
            turns: Vec::new(),
            usage: TokenUsage::default(),
            owner: present.owner.clone(),
            labels: present.labels.clone(),
            created_at: now,
            updated_at: now,
            expires_at: Some(now.after(Duration::from_secs(3600))),
            lease: fork.lease.clone(),
            ..moved(then, "f", 4, now)
        };
        assert_eq!(fork, wanted);
        let unchanged = talk.doc("s").await;
        assert_eq!(SessionDoc { lease: present.lease.clone(), ..unchanged }, present);
    }
}

#[tokio::test]
async fn a_rewind_keeps_what_does_not_belong_to_the_conversation() {
    for (store, _kept) in stores().await {
        let (talk, then, present) = prepared(store).await;
        let now = flow_core::time::Clock::now(&talk.clock);
        talk.session("s").rewind(2).await.unwrap();
        let doc = talk.doc("s").await;
        let wanted = SessionDoc {
            revision: 4,
            turns: present.turns.clone(),
            usage: present.usage,
            next_message: 20,
            superseded: 2,
            owner: present.owner.clone(),
            labels: present.labels.clone(),
            updated_at: now,
            expires_at: Some(now.after(Duration::from_secs(3600))),
            lease: doc.lease.clone(),
            // Beyond all visits that a turn which was cut off may have made.
            ..moved(then, "s", 9 + 30 + 1, now)
        };
        assert_eq!(doc, wanted);
        let kept = talk.session("s").checkpoint(4).await.unwrap().doc;
        assert_eq!(kept, SessionDoc { lease: kept.lease.clone(), ..wanted });
    }
}

#[tokio::test]
async fn a_session_that_waits_for_nothing_that_is_over_is_not_due() {
    let (talk, ..) = prepared(Arc::new(MemoryStore::new())).await;
    talk.edit("s", |doc| {
        doc.status = Status::Waiting;
        doc.visit.number = 9;
        doc.wake_at = Some("2027-01-01T00:00:00Z".parse().unwrap());
        doc.waiting = Some(Waiting::Interrupts { pending: vec![request("9-2-aa")] });
    })
    .await;
    talk.session("s").rewind(4).await.unwrap();
    let doc = talk.doc("s").await;
    assert_eq!(doc.wake_at, Some("2027-01-01T00:00:00Z".parse().unwrap()));
    // It is kept until it wakes.
    assert_eq!(doc.expires_at, Some("2027-01-01T01:00:00Z".parse().unwrap()));
    assert_eq!(talk.engine.sweep().await.unwrap(), SweepReport::default());
}
