use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::effect::{Approved, Decision};
use crate::id::SessionId;
use crate::message::{Message, Part, Role, ToolCallPart, ToolResultPart};
use crate::model::TokenUsage;
use crate::outcome::Outcome;
use crate::session::{
    ArchiveMark, AskedCall, CallInput, ContextStart, Display, EdgeCount, EffectKind, EffectOutcome,
    EffectRecord, ErrorRecord, FORMAT, FlowMoves, FlowRef, GateVerdict, Interrupt, ItemGroup,
    ItemOutcome, ItemSet, Lease, MAIN_MEMORY, Memory, Operation, Parent, PathEntry, PendingCall,
    PendingRound, Question, Relation, SessionDoc, Status, Summary, TurnRecord, Visit, Waiting,
};
use crate::time::Timestamp;

/// The flow of a [`sample_doc`].
pub const SAMPLE_FLOW: &str = "conformance";

/// The document version of a [`sample_doc`].
pub const SAMPLE_VERSION: u32 = 3;

/// A point in time, so many milliseconds after some fixed one.
pub(super) fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(1_767_225_600_000 + millis).expect("the time is within the range")
}

/// A hundred years later.
pub(super) fn far() -> Timestamp {
    time(86_400_000 * 36_500)
}

/// A document at revision 1 in which every field is in use, to test stores with.
///
/// ```
/// use flow_core::id::SessionId;
/// use flow_core::session::{SessionDoc, Status};
/// use flow_core::testing::conformance::sample_doc;
///
/// let doc = SessionDoc { status: Status::Waiting, ..sample_doc(&SessionId::new("a")?) };
/// assert_eq!(doc.revision, 1);
/// # Ok::<(), flow_core::Error>(())
/// ```
pub fn sample_doc(id: &SessionId) -> SessionDoc {
    let question = Question {
        text: "Card or cash?".into(),
        fields: vec!["payment".into()],
        options: vec!["card".into(), "cash".into()],
    };
    let doc = SessionDoc {
        id: id.clone(),
        flow: FlowRef { id: SAMPLE_FLOW.into(), digest: "0".repeat(64) },
        format: FORMAT,
        version: SAMPLE_VERSION,
        revision: 1,
        status: Status::Running,
        current_step: "Checkout".into(),
        visit: Visit {
            number: 2,
            entered: true,
            from: Some("Explore".into()),
            input: Some(json!({"room": 7})),
            asked: 1,
            calls: 2,
            said: 3,
            message: Some("two nights".into()),
            heard: Some("two nights, please".into()),
            turn: Some("m-1".into()),
            round: Some(pending_round()),
        },
        state: json!({"room": 7, "guests": null}),
        steps: BTreeMap::from([
            ("Explore".into(), json!({"shown": [7, 8]})),
            ("Größe_1".into(), json!({})),
        ]),
        memory: BTreeMap::from([
            (
                MAIN_MEMORY.into(),
                Memory { messages: vec![message(2), message(3)], ..Memory::default() },
            ),
            (
                "explore".into(),
                Memory {
                    messages: vec![message(1)],
                    summary: Some(Summary { text: "They want room $7.".into(), through: 0 }),
                    start: Some(ContextStart { seq: 4, kept: Some(1) }),
                },
            ),
        ]),
        context: Map::from_iter([("locale".into(), json!("de-CH"))]),
        path: vec![path_entry(0), path_entry(1)],
        turns: vec![turn(1)],
        edges: vec![EdgeCount { from: "Explore".into(), to: "Checkout".into(), count: 1 }],
        effects: BTreeMap::from([
            ("a:2:0:charge".into(), EffectRecord::tool("charge", time(1_000))),
            ("a:2:1:book:0123".into(), {
                let mut record = EffectRecord::tool("book", time(1_500));
                record.arguments = Some("0123".into());
                record.due = Some(time(9_000));
                record.once = true;
                record.outcome = Some(EffectOutcome::Value(json!({"id": u64::MAX})));
                record
            }),
            ("a:2:2:mail".into(), {
                let mut record = EffectRecord::tool("mail", time(1_700));
                record.kind = EffectKind::Batch;
                let mut items = ItemSet::default();
                [0, 1, 2, 7].into_iter().for_each(|item| items.push(item));
                record.items = vec![ItemGroup { items, outcome: ItemOutcome::Waiting }];
                record
            }),
            ("a:2:3:card:4567".into(), {
                let mut record = EffectRecord::tool("card", time(1_750));
                record.kind = EffectKind::Call;
                record.call = Some(PendingCall {
                    turn: Some("7".into()),
                    input: Some(CallInput {
                        turn: "9".into(),
                        message: Some("$yes.".into()),
                        answers: vec![("2-0-1".into(), EffectOutcome::Value(json!({"$a.b": 1})))],
                    }),
                    waited: true,
                    replies: vec!["Which card?".into()],
                    escalated: true,
                    usage: TokenUsage::new(3, 2),
                });
                record
            }),
        ]),
        waiting: Some(Waiting::Message { question: Some(question) }),
        wake_at: Some(far()),
        ended: None,
        gates: vec![gate_verdict("within-budget"), gate_verdict("polite")],
        error: Some(ErrorRecord {
            code: "model-failed".into(),
            message: "the model did not answer".into(),
            retryable: true,
        }),
        usage: TokenUsage::new(7, 5),
        next_message: 4,
        archive: ArchiveMark::default(),
        superseded: 0,
        parent: Some(Parent {
            session: SessionId::random(),
            flow: "desk".into(),
            relation: Relation::Call,
            depth: 1,
        }),
        moves: None,
        owner: Some("ada".into()),
        labels: BTreeMap::from([("channel".into(), "web".into())]),
        lease: Lease::default(),
        created_at: time(0),
        updated_at: time(1_250),
        expires_at: Some(far()),
    };
    SessionDoc { moves: Some(moves(&doc)), ..doc }
}

/// A flow that is parked in another one, which is parked too.
pub(super) fn moves(doc: &SessionDoc) -> FlowMoves {
    let park = |doc: SessionDoc, visits| FlowMoves {
        origin: "desk".into(),
        trail: vec!["desk".into(), "$a.b".into()],
        visits,
        returned: true,
        parked: Some(Box::new(doc)),
    };
    let outer = SessionDoc { state: json!({ "$a.b": u64::MAX }), ..doc.clone() };
    let inner = SessionDoc { moves: Some(park(outer, 0)), memory: BTreeMap::new(), ..doc.clone() };
    park(inner, u64::MAX >> 1)
}

/// What a gate that could not run has said.
pub(super) fn gate_verdict(gate: &str) -> GateVerdict {
    let reason = Some("no $price at a.b \0".into());
    GateVerdict { gate: gate.into(), passed: false, blocking: true, ran: false, reason }
}

/// A round of two calls, of which one has its result and the other is approved.
pub(super) fn pending_round() -> PendingRound {
    let arguments = json!({ "$cents": 9_007_199_254_740_993_u64, "to.whom": "Bo" });
    let call = |id: &str, arguments: &Value| {
        let (id, name, arguments) = (id.to_owned(), "pay".to_owned(), arguments.clone());
        Part::ToolCall(ToolCallPart { id, name, arguments })
    };
    let request = Interrupt {
        request_id: "2-1-1".into(),
        kind: EffectKind::Approval,
        step: "Checkout".into(),
        path: vec!["card".into()],
        name: "call of `pay`".into(),
        display: Display { title: "call of `pay`".into(), description: "Pays.".into() },
        allowed: vec!["approved".into(), "denied".into()],
        response_schema: None,
        deadline: Some(far()),
        on_expiry: Some(EffectOutcome::Value(json!({ "decision": "denied" }))),
        operation: Some(Operation {
            tool: "pay".into(),
            arguments: arguments.clone(),
            argument_hash: "1".repeat(64),
        }),
    };
    let approved = Approved { by: Some("ada".into()), reason: Some("within budget".into()) };
    PendingRound {
        answer: vec![Part::text("I pay."), call("a", &json!({})), call("b", &arguments)],
        results: vec![ToolResultPart {
            id: "a".into(),
            name: "pay".into(),
            content: "no sum".into(),
            is_error: true,
        }],
        asked: vec![AskedCall {
            call: "b".into(),
            request,
            decision: Some(Decision::Approved(approved)),
        }],
        place: 3,
        rounds: 2,
        refused: 1,
    }
}

/// The `n`th message of a sample conversation.
pub(super) fn message(n: u64) -> Message {
    let role = if n.is_multiple_of(2) { Role::Assistant } else { Role::User };
    Message::text(n, role, format!("message {n}"), time(n as i64))
}

/// The `n`th step of a sample path.
pub(super) fn path_entry(n: u64) -> PathEntry {
    PathEntry { step: format!("Step{n}"), level: (n % 2) as u32, at: time(n as i64) }
}

/// The `n`th turn of a sample conversation.
pub(super) fn turn(n: u64) -> TurnRecord {
    let outcome = match n % 3 {
        0 => Outcome::Waiting { question: Some(Question::new("And then?")) },
        1 => Outcome::Ended { reason: "done".into() },
        _ => Outcome::HandedOff { to: "support".into() },
    };
    let replies = vec![format!("reply {n}"), "ü \u{1F6A2} \0".into()];
    let gates = (0..n % 3).map(|_| gate_verdict("tone")).collect();
    TurnRecord { id: format!("turn.{n}"), outcome, replies, gates, revision: n, at: time(n as i64) }
}

/// JSON values that stores have been seen to change: numbers at the ends of their ranges,
/// keys that are operators or paths somewhere, texts with NUL.
pub fn odd_values() -> Vec<Value> {
    let numbers = json!([
        0,
        1,
        -1,
        i64::MIN,
        i64::MAX,
        u64::MAX,
        9_007_199_254_740_993_u64,
        u32::MAX,
        i32::MIN,
        2_147_483_648_u64,
        9_223_372_036_854_775_808_u64,
    ]);
    let floats = json!([
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.1,
        0.2,
        0.3,
        1e300,
        -1e-300,
        5e-324,
        f64::MAX,
        f64::MIN_POSITIVE,
        9_007_199_254_740_992.0,
        1e16,
        1e21,
        123_456_789.123_456_79,
        1.797_693_134_862_315_5e308,
        0.304_602_120_171_061_9,
        64_060_467.350_254_69,
        2.225_073_858_507_201e-308,
    ]);
    let texts = json!([
        "",
        "\0",
        "a\0b",
        "\u{1}\u{1f}\u{7f}",
        "\"\\/",
        "ü",
        "e\u{301}",
        "\u{1F469}\u{200D}\u{1F680}",
        "\u{FFFF}\u{10FFFF}\u{E000}",
        "\u{2028}\u{FEFF}",
        "$a.b",
        "%24",
        "2026-01-01T00:00:00Z",
        "null",
        "1",
        " x ",
    ]);
    let mut keys = Map::new();
    for key in [
        "",
        ".",
        "a.b",
        "..",
        "$",
        "$set",
        "$$NOW",
        "a$",
        "a.$.b",
        "a.$[]",
        "\0",
        "a\0b",
        "%",
        "%2E",
        "%24",
        "%00",
        "%25",
        "\\u0000",
        "\\",
        "~",
        "~1",
        "~0",
        "/",
        "_id",
        "id",
        "0",
        "-1",
        "__proto__",
        "\u{FF0E}",
        "\u{FF04}",
        "ü",
        "u\u{308}",
        "\u{1F6A2}",
        " ",
        "'",
        "\"",
        "[0]",
        "*",
    ] {
        keys.insert(key.into(), json!({key: key}));
    }
    vec![
        Value::Null,
        json!(true),
        json!({}),
        json!([]),
        json!([[], [[]], {}, [{}], null]),
        json!([[1, [2.0, [3, {"a": [4, {"b": [null, false]}]}]]], "x"]),
        numbers,
        floats,
        texts,
        Value::Object(keys),
        json!({"$numberLong": "5"}),
        json!({"$numberDouble": "NaN"}),
        json!({"$oid": "507f1f77bcf86cd799439011"}),
        json!({"$date": {"$numberLong": "0"}}),
        json!({"$binary": {"base64": "AA==", "subType": "00"}}),
        json!({"$ref": "x", "$id": 1, "$db": "y"}),
        json!({"$literal": 1, "$add": [1, 2]}),
        json!("$state"),
        json!({"a": "$$ROOT"}),
        nested(50),
    ]
}

/// Objects and arrays in turn, so many levels deep.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1.0), |value, level| {
        if level.is_multiple_of(2) { json!({"n": value}) } else { json!([value]) }
    })
}
