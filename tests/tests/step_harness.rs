//! Steps, hooks and tools in plain tests, without an engine and without a store.

use flow_core::error::ToolError;
use flow_core::event::Event;
use flow_core::prelude::*;
use flow_core::step::StepTools as _;
use flow_core::testing::StepHarness;
use serde_json::json;

/// A small hotel.
#[flow(id = "inn", version = 1, steps(Desk, Booking, Bill, Sort), state = Stay, tools)]
#[derive(Clone)]
struct Inn {
    price: u32,
}

impl Flow for Inn {}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Stay {
    guest: String,
    nights: u8,
    paid: u32,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Room {
    number: u32,
}

/// Answers questions about rooms.
#[step(reply, tools, next(Booking(Room), stay, end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Desk {
    shown: Vec<u32>,
}

impl Reply for Desk {
    type Flow = Inn;

    fn response(&self, cx: &StepCx<'_, Inn>) -> Option<String> {
        Some(match cx.last_message() {
            Some(message) => format!("You said: {message}"),
            None => "Good evening.".to_owned(),
        })
    }

    async fn on_response(
        &mut self,
        response: &str,
        cx: &mut StepCx<'_, Inn>,
    ) -> Result<Option<DeskNext>> {
        if response.contains("bye") {
            cx.note("the guest has left");
            return Ok(Some(DeskNext::End("bye".into())));
        }
        Ok(None)
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Query {
    /// How many guests.
    guests: u8,
}

#[tools]
impl Desk {
    /// Finds rooms.
    #[tool]
    async fn find(&mut self, cx: &mut StepCx<'_, Inn>, query: Query) -> ToolResult<Vec<u32>> {
        if query.guests == 0 {
            return Err(StepError::terminal("nobody needs no room"));
        }
        let rooms: Vec<u32> = (1..=u32::from(query.guests)).collect();
        self.shown.clone_from(&rooms);
        cx.say(format!("{} room(s)", rooms.len()));
        Ok(rooms)
    }

    /// The guest takes a room.
    #[tool]
    fn take(&mut self, number: u32) -> DeskNext {
        DeskNext::Booking(Room { number })
    }

    /// The guest takes a room, and is told so.
    #[tool]
    fn take_aloud(&mut self, number: u32) -> ToolOutcome<String, DeskNext> {
        if self.shown.contains(&number) {
            ToolOutcome::new(format!("room {number} is yours"))
                .go(DeskNext::Booking(Room { number }))
        } else {
            ToolOutcome::new(format!("there is no room {number}"))
        }
    }
}

/// Takes what the booking needs.
#[step(collect, input = Room, next(Bill, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Booking {
    #[slot(whole_message)]
    guest: Option<String>,
    #[slot(range(1, 30))]
    nights: Option<u8>,
    #[slot(one_of("card", "cash"), optional)]
    payment: Option<String>,
    room: u32,
}

impl Collect for Booking {
    type Flow = Inn;

    async fn on_enter(&mut self, input: Room, _: &mut StepCx<'_, Inn>) -> Result<()> {
        self.room = input.number;
        Ok(())
    }

    async fn complete(
        &mut self,
        data: BookingData,
        cx: &mut StepCx<'_, Inn>,
    ) -> Result<BookingNext> {
        if data.nights > 14 && data.payment.is_none() {
            cx.feedback("Long stays are paid in advance.");
            return Ok(BookingNext::Stay);
        }
        cx.state.guest = data.guest;
        cx.state.nights = data.nights;
        Ok(BookingNext::Bill)
    }
}

#[tools(flow)]
impl Inn {
    /// Charges the guest.
    #[tool]
    async fn charge(&self, cx: &ToolCx, cents: u32) -> ToolResult<String> {
        if cents == 0 {
            return Err(StepError::terminal("nothing to pay"));
        }
        Ok(format!("{cents} as {}", cx.idempotency_key()))
    }
}

/// Charges the stay.
#[step(action, next(Sort, escalate))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Bill;

impl Action for Bill {
    type Flow = Inn;

    async fn run(&mut self, cx: &mut ActionCx<'_, Inn>) -> Result<BillNext> {
        let cents = cx.flow.price * u32::from(cx.state.nights);
        let receipt = cx.tool(Charge { cents }).await?;
        cx.state.paid = cents;
        cx.emit("paid", &receipt)?;
        cx.say(receipt);
        if cx.context("vip").is_some() {
            return Ok(BillNext::Escalate("greet the guest".into()));
        }
        Ok(BillNext::Sort)
    }

    async fn verify(&mut self, _: &BillNext, cx: &mut StepCx<'_, Inn>) -> Result<Gate> {
        if cx.state.paid > 100_000 {
            return Ok(Gate::Hold("that is too much".into()));
        }
        Ok(Gate::Pass)
    }
}

/// Sorts guests by what they pay.
#[step(decide, next(Desk, end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Sort;

impl Decide for Sort {
    type Flow = Inn;
    type Verdict = bool;

    async fn verdict(&mut self, cx: &mut StepCx<'_, Inn>) -> Result<bool> {
        Ok(cx.state.paid >= 10_000)
    }

    async fn decide(&mut self, good: bool, _: &mut StepCx<'_, Inn>) -> Result<SortNext> {
        Ok(if good { SortNext::Desk } else { SortNext::End("cheap".into()) })
    }
}

fn harness() -> StepHarness<Inn> {
    StepHarness::new(Inn { price: 5_000 })
}

#[tokio::test]
async fn a_reply_answers_and_says_where_to_go() {
    let mut desk = Desk::default();
    let mut harness = harness();
    assert_eq!(desk.response(&harness.cx()).as_deref(), Some("Good evening."));
    let mut harness = harness.message("bye");
    let response = desk.response(&harness.cx()).unwrap();
    assert_eq!(response, "You said: bye");
    let next = desk.on_response(&response, &mut harness.cx()).await.unwrap();
    assert!(matches!(next, Some(DeskNext::End(reason)) if reason == "bye"));
    assert!(desk.on_response("hello", &mut harness.cx()).await.unwrap().is_none());
    assert!(harness.said().is_empty(), "a note is not for the user");
}

#[tokio::test]
async fn a_step_tool_is_called_by_name_with_arguments_as_a_model_sends_them() {
    let mut desk = Desk::default();
    let mut harness = harness();
    let output = desk.call(&mut harness.cx(), "find", json!({ "guests": "2" })).await.unwrap();
    assert_eq!(output.result, json!([1, 2]));
    assert!(output.next.is_none());
    assert_eq!(desk.shown, [1, 2]);
    assert_eq!(harness.said(), ["2 room(s)"]);
}

#[tokio::test]
async fn a_step_tool_moves_the_flow_by_the_next_enum() {
    let mut desk = Desk { shown: vec![7] };
    let mut harness = harness();
    let output = desk.call(&mut harness.cx(), "take", json!({ "number": 7 })).await.unwrap();
    let transition = output.into_transition();
    let Some(Transition::Go { step, input }) = transition else { panic!("{transition:?}") };
    assert_eq!((&*step, input.take::<Room>().unwrap()), ("Booking", Room { number: 7 }));

    let call = json!({ "number": 7 });
    let output = desk.call(&mut harness.cx(), "take_aloud", call).await.unwrap();
    assert_eq!(output.result, "room 7 is yours");
    assert!(
        matches!(output.into_transition(), Some(Transition::Go { step, .. }) if step == "Booking")
    );

    let call = json!({ "number": 8 });
    let output = desk.call(&mut harness.cx(), "take_aloud", call).await.unwrap();
    assert_eq!(output.result, "there is no room 8");
    assert!(output.next.is_none());
}

#[tokio::test]
async fn a_bad_call_says_what_does_not_fit_and_changes_nothing() {
    let mut desk = Desk::default();
    let mut harness = harness();
    let error = desk.call(&mut harness.cx(), "find", json!({ "guests": [] })).await.unwrap_err();
    let ToolError::Arguments { tool, path, .. } = &error else { panic!("{error}") };
    assert_eq!((tool.as_str(), path.as_str()), ("find", "guests"));
    assert_eq!(error.code(), "invalid-arguments");
    let error = desk.call(&mut harness.cx(), "find", json!({})).await.unwrap_err();
    assert!(matches!(&error, ToolError::Arguments { .. }), "{error}");
    assert!(error.to_string().contains("guests"), "{error}");
    let error = desk.call(&mut harness.cx(), "find", json!({ "guests": 0 })).await.unwrap_err();
    assert_eq!(error.to_string(), "tool `find` failed: nobody needs no room");
    assert!(!error.retryable());
    let error = desk.call(&mut harness.cx(), "charge", json!({ "cents": 1 })).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no tool `charge`; known tools: find, take, take_aloud");
    assert!(desk.shown.is_empty() && harness.said().is_empty());
}

#[tokio::test]
async fn a_form_is_entered_and_completed_with_the_generated_data() {
    let mut form = Booking::default();
    let mut harness = harness();
    form.on_enter(Room { number: 12 }, &mut harness.cx()).await.unwrap();
    assert_eq!(form.room, 12);
    assert!(form.data().is_none());

    let data = BookingData { guest: "Ada".into(), nights: 3, payment: None };
    let next = form.complete(data, &mut harness.cx()).await.unwrap();
    assert!(matches!(next, BookingNext::Bill));
    assert_eq!((harness.state.guest.as_str(), harness.state.nights), ("Ada", 3));

    let data = BookingData { guest: "Ada".into(), nights: 20, payment: None };
    let next = form.complete(data, &mut harness.cx()).await.unwrap();
    assert!(matches!(next, BookingNext::Stay));
    assert_eq!(harness.said(), ["Long stays are paid in advance."]);
    assert_eq!(harness.state.nights, 3);

    let missing: Vec<&'static Slot> = Booking::slots().iter().skip(1).collect();
    let question = form.ask(&missing, &harness.cx());
    assert_eq!(
        (question.text.as_str(), &*question.fields),
        ("Please tell me: nights.", &["nights".to_owned()][..])
    );
}

#[tokio::test]
async fn an_action_calls_the_tools_of_the_flow() {
    let mut harness = harness();
    harness.state.nights = 3;
    let next = Bill.run(&mut harness.action_cx()).await.unwrap();
    assert!(matches!(next, BillNext::Sort));
    assert_eq!(harness.state.paid, 15_000);
    assert_eq!(harness.said(), ["15000 as test:1:0:charge:307bd32cdd73"]);
    let events = harness.events();
    let [
        Event::ToolCall { id, tool, arguments },
        Event::ToolResult { id: answered, failed: false, result, .. },
        Event::Custom { name, payload },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((id, tool.as_str(), arguments), (answered, "charge", &json!({ "cents": 15_000 })));
    assert_eq!((name.as_str(), payload), ("paid", result));
    assert!(harness.events().is_empty(), "events are told once");

    // The second call of one visit has another key.
    Bill.run(&mut harness.action_cx()).await.unwrap();
    assert_eq!(harness.said()[1], "15000 as test:1:1:charge:307bd32cdd73");
}

#[tokio::test]
async fn an_action_reads_the_context_and_fails_with_its_tool() {
    let mut harness = harness().context("vip", true);
    let error = Bill.run(&mut harness.action_cx()).await.unwrap_err();
    assert_eq!(error.to_string(), "tool `charge` failed: nothing to pay");
    assert_eq!(error.code(), "tool-failed");
    assert!(!error.retryable());
    let events = harness.events();
    assert!(
        matches!(&events[..], [Event::ToolCall { .. }, Event::ToolResult { failed: true, .. }]),
        "{events:?}"
    );
    harness.state.nights = 1;
    let next = Bill.run(&mut harness.action_cx()).await.unwrap();
    assert!(matches!(next, BillNext::Escalate(_)));
}

#[tokio::test]
async fn hooks_and_verdicts_are_plain_methods() {
    let mut harness = harness();
    assert_eq!(Bill.verify(&BillNext::Sort, &mut harness.cx()).await.unwrap(), Gate::Pass);
    harness.state.paid = 200_000;
    let gate = Bill.verify(&BillNext::Sort, &mut harness.cx()).await.unwrap();
    assert_eq!(gate, Gate::Hold("that is too much".into()));
    let verdict = Sort.verdict(&mut harness.cx()).await.unwrap();
    assert!(verdict);
    assert!(matches!(Sort.decide(verdict, &mut harness.cx()).await.unwrap(), SortNext::Desk));
    assert!(matches!(Sort.decide(false, &mut harness.cx()).await.unwrap(), SortNext::End(_)));
}
