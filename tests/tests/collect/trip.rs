//! The flow of most tests: a form, a confirmation, and back.

use flow_core::prelude::*;
use tests::route_flow::Log;

/// Takes trips.
#[flow(id = "travel", version = 1, steps(Trip, Check), state = Desk)]
#[derive(Clone, Default)]
pub(crate) struct Travel {
    /// What the form was told to ask for, each time.
    pub(crate) asked: Log,
    /// Whether the confirmation gets the words that the form has read.
    pub(crate) pass_on: bool,
}

impl Flow for Travel {}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Desk {
    trips: Vec<TripRecord>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct TripRecord {
    name: String,
    guests: u8,
    nights: u8,
    class: Class,
    seat: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Class {
    Economy,
    Business,
}

#[step(collect, next(Check, stay))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Trip {
    #[slot(whole_message, verbatim, ask = "Who travels?")]
    name: Option<String>,
    #[slot(range(1, 8), ask = "How many guests?")]
    guests: Option<u8>,
    /// How many nights do you stay?
    #[slot(range(1, 30))]
    nights: Option<u8>,
    #[slot(one_of("economy", "business"))]
    class: Option<Class>,
    #[slot(one_of("window", "aisle"), optional)]
    seat: Option<String>,
    /// Not a slot: how often the form was complete.
    completed: u32,
}

impl Collect for Trip {
    type Flow = Travel;

    fn ask(&self, missing: &[&'static Slot], cx: &StepCx<'_, Travel>) -> Question {
        let names: Vec<_> = missing.iter().map(|slot| slot.name).collect();
        cx.flow.asked.push(names.join(" "));
        missing[0].question()
    }

    async fn complete(&mut self, data: TripData, cx: &mut StepCx<'_, Travel>) -> Result<TripNext> {
        self.completed += 1;
        let TripData { name, guests, nights, class, seat } = data.clone();
        if nights > 20 && guests > 4 {
            self.nights = None;
            cx.feedback("Groups stay 20 nights at most.");
            return Ok(TripNext::Stay);
        }
        cx.state.trips.push(TripRecord { name, guests, nights, class, seat });
        Ok(TripNext::Check)
    }
}

#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Yes,
    No,
}

#[step(collect, next(Trip, end))]
#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Check {
    #[slot(one_of("yes", "no"))]
    answer: Option<Answer>,
}

impl Collect for Check {
    type Flow = Travel;

    fn ask(&self, missing: &[&'static Slot], cx: &StepCx<'_, Travel>) -> Question {
        let TripRecord { name, guests, nights, .. } = &cx.state.trips[cx.state.trips.len() - 1];
        let text = format!("{name}, {guests} guests, {nights} nights: right?");
        Question { text, ..missing[0].question() }
    }

    async fn complete(&mut self, data: CheckData, _: &mut StepCx<'_, Travel>) -> Result<CheckNext> {
        Ok(match data.answer {
            Answer::Yes => CheckNext::End("confirmed".into()),
            Answer::No => CheckNext::Trip,
        })
    }

    async fn on_crossing(
        &mut self,
        crossing: Crossing<'_>,
        cx: &mut StepCx<'_, Travel>,
    ) -> Result<Option<String>> {
        assert_eq!(crossing.from, "Trip");
        Ok(crossing.message.filter(|_| cx.flow.pass_on).map(str::to_owned))
    }
}
