//! `#[step]` and `#[flow]`.

use flow_core::prelude::*;
use flow_core::step::{Kind, Resolver};
use flow_core::transition::{Target, Transition};

/// Books a hotel room
/// in a conversation.
#[flow(
    id = "hotel",
    version = 2,
    steps(Explore, Checkout, Book, Sort, Farewell),
    state = Booking,
    model = "openai::gpt-5.1-mini"
)]
#[derive(Clone)]
pub(crate) struct Hotel;

impl Flow for Hotel {}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Booking {
    pub(crate) room: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Choice {
    pub(crate) room: u32,
}

/// Finds rooms.
#[step(
    reply,
    memory = "explore",
    id = "explore",
    alias("Browse", "Look"),
    next(Checkout(Choice), self::Farewell, stay, end, hand_off, escalate)
)]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Explore {
    pub(crate) shown: Vec<u32>,
}

impl Reply for Explore {
    type Flow = Hotel;
}

// The derives may stand above `#[step]` too.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[step(collect, input = Choice, next(Book, stay))]
pub(crate) struct Checkout {
    /// Full name, exactly as written.
    #[slot(verbatim, whole_message)]
    pub(crate) name: Option<String>,
    #[slot(range(-1.5, 8), ask = "How many?")]
    guests: Option<u8>,
    #[slot(one_of("card", "cash"), optional)]
    #[serde(rename = "pay")]
    pub(crate) payment: Option<String>,
    #[slot(pattern("#(\\d+)"))]
    pub(crate) code: Option<u32>,
    /// Not a slot.
    pub(crate) room: u32,
}

impl Collect for Checkout {
    type Flow = Hotel;

    async fn on_enter(&mut self, input: Choice, _: &mut StepCx<'_, Hotel>) -> Result<()> {
        self.room = input.room;
        Ok(())
    }

    async fn complete(
        &mut self,
        data: CheckoutData,
        _: &mut StepCx<'_, Hotel>,
    ) -> Result<CheckoutNext> {
        let CheckoutData { name, guests, payment, code } = data;
        let _: (String, u8, Option<String>, u32) = (name, guests, payment, code);
        Ok(CheckoutNext::Book)
    }
}

#[step(action, next(Sort, end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Book;

impl Action for Book {
    type Flow = Hotel;
    async fn run(&mut self, _: &mut ActionCx<'_, Hotel>) -> Result<BookNext> {
        Ok(if self::rare() { BookNext::End("no".into()) } else { BookNext::Sort })
    }
}

fn rare() -> bool {
    false
}

#[step(decide, next(Farewell))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Sort;

impl Decide for Sort {
    type Flow = Hotel;
    type Verdict = bool;
    async fn verdict(&mut self, _: &mut StepCx<'_, Hotel>) -> Result<bool> {
        Ok(true)
    }
    async fn decide(&mut self, _: bool, _: &mut StepCx<'_, Hotel>) -> Result<SortNext> {
        Ok(SortNext::Farewell)
    }
}

#[step(reply, next(end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Farewell {}

impl Reply for Farewell {
    type Flow = Hotel;
    async fn on_response(
        &mut self,
        _: &str,
        _: &mut StepCx<'_, Hotel>,
    ) -> Result<Option<FarewellNext>> {
        Ok(Some(FarewellNext::End("done".into())))
    }
}

#[test]
fn a_flow_knows_its_names_and_its_steps() {
    assert_eq!(Hotel::ID, "hotel");
    assert_eq!(Hotel::VERSION, 2);
    assert_eq!(Hotel::DOC, "Books a hotel room\nin a conversation.");
    assert_eq!(Hotel::MODEL, Some("openai::gpt-5.1-mini"));
    let steps = Hotel::steps();
    let names: Vec<&str> = steps.iter().map(|entry| &*entry.info().name).collect();
    assert_eq!(names, ["explore", "Checkout", "Book", "Sort", "Farewell"]);
    let kinds: Vec<Kind> = steps.iter().map(|entry| entry.info().kind).collect();
    assert_eq!(kinds, [Kind::Reply, Kind::Collect, Kind::Action, Kind::Decide, Kind::Reply]);
}

#[test]
fn a_step_knows_its_names_and_its_ways_out() {
    assert_eq!(Explore::NAME, "explore");
    assert_eq!(Explore::ALIASES, ["Browse", "Look"]);
    assert_eq!(Explore::MEMORY, Some("explore"));
    assert_eq!(Explore::DOC, "Finds rooms.");
    assert_eq!(
        Explore::TARGETS,
        [
            Target::Step("Checkout".into()),
            Target::Step("Farewell".into()),
            Target::Stay,
            Target::End,
            Target::HandOff,
            Target::Escalate,
        ]
    );
    assert_eq!((Book::NAME, Book::DOC, Book::MEMORY), ("Book", "", None));
}

#[test]
fn each_way_out_is_a_transition() {
    let choice = Choice { room: 7 };
    match Explore::transition(ExploreNext::Checkout(choice.clone())) {
        Transition::Go { step, input } => {
            assert_eq!(step, "Checkout");
            assert_eq!(input.take::<Choice>().unwrap(), choice);
        }
        other => panic!("{other:?}"),
    }
    let text = || "why".to_owned();
    let ways = [
        ExploreNext::Farewell,
        ExploreNext::Stay,
        ExploreNext::End(text()),
        ExploreNext::HandOff(text().into()),
        ExploreNext::Escalate(text()),
    ];
    assert_eq!(ways.each_ref().map(Explore::is_stay), [false, true, false, false, false]);
    let shown = ways.map(|way| (format!("{way:?}"), format!("{:?}", Explore::transition(way))));
    insta::assert_debug_snapshot!(shown, @r#"
    [
        (
            "Farewell",
            "Go { step: \"Farewell\", input: Payload }",
        ),
        (
            "Stay",
            "Stay",
        ),
        (
            "End",
            "End(\"why\")",
        ),
        (
            "HandOff",
            "HandOff(HandOff { flow: \"why\", .. })",
        ),
        (
            "Escalate",
            "Escalate(\"why\")",
        ),
    ]
    "#);
}

#[test]
fn the_slots_are_a_form() {
    let slots = Checkout::slots();
    let names: Vec<&str> = slots.iter().map(|slot| slot.name).collect();
    assert_eq!(names, ["name", "guests", "pay", "code"]);
    assert_eq!(slots[0].doc, "Full name, exactly as written.");
    assert!(slots[0].verbatim && !slots[0].optional);
    assert!(matches!(slots[0].resolver, Some(Resolver::WholeMessage)));
    assert_eq!(slots[1].ask, Some("How many?"));
    assert!(
        matches!(slots[1].resolver, Some(Resolver::Range(min, max)) if (min, max) == (-1.5, 8.0))
    );
    assert!(slots[2].optional);
    assert!(matches!(slots[2].resolver, Some(Resolver::OneOf(["card", "cash"]))));
    assert!(matches!(&slots[3].resolver, Some(Resolver::Pattern(p)) if p.as_str() == "#(\\d+)"));

    let mut form = Checkout { room: 7, ..Checkout::default() };
    assert!(form.data().is_none());
    for (i, value) in [(0, "Ada".into()), (1, 2.into()), (3, 5.into())] {
        assert!(form.get(i).is_none());
        form.set(i, Some(value)).unwrap();
    }
    assert!(form.set(1, Some("many".into())).is_err());
    assert_eq!(form.get(1), Some(2.into()));
    let data = form.data().unwrap();
    assert_eq!((data.name.as_str(), data.guests, data.payment, data.code), ("Ada", 2, None, 5));
    form.set(0, None).unwrap();
    assert!(form.data().is_none());
    assert!(form.set(4, None).is_err());
    assert_eq!(form.room, 7);
}
