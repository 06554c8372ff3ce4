//! Yesterday's documents and today's program: writes sessions with version 1 of a flow and
//! goes on with them in version 3, where a step, a field and the shared state have changed.
//!
//! ```text
//! cargo run -p examples --bin migrate
//! ```

#![allow(clippy::print_stdout, reason = "it tells a person what happens")]

use std::sync::Arc;

use flow_core::engine::{MigrateEvent, MigrateOptions};
use flow_core::event::Event;
use flow_core::prelude::*;
use flow_core::store::SessionStore;
use flow_core::{Engine, TurnRequest};

/// The program of yesterday.
mod v1 {
    use super::*;

    #[flow(id = "trip", version = 1, steps(Browse, Pay), state = Cart)]
    #[derive(Clone)]
    pub(crate) struct Trip;

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub(crate) struct Cart {
        city: String,
    }

    impl Flow for Trip {}

    #[step(collect, next(Pay))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub(crate) struct Browse {
        #[slot(whole_message, ask = "Where do you want to go?")]
        city: Option<String>,
    }

    impl Collect for Browse {
        type Flow = Trip;

        async fn complete(
            &mut self,
            data: BrowseData,
            cx: &mut StepCx<'_, Trip>,
        ) -> Result<BrowseNext> {
            cx.state.city = data.city;
            Ok(BrowseNext::Pay)
        }
    }

    #[step(collect, next(end))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub(crate) struct Pay {
        #[slot(one_of("card", "cash"), ask = "Card or cash?")]
        method: Option<String>,
    }

    impl Collect for Pay {
        type Flow = Trip;

        async fn complete(&mut self, data: PayData, _: &mut StepCx<'_, Trip>) -> Result<PayNext> {
            Ok(PayNext::End(format!("paid by {}", data.method)))
        }
    }
}

/// The program of today: `Browse` became `Explore`, `Pay` became `Checkout` with a field
/// `payment`, and the state holds a list of cities.
mod v3 {
    use super::*;
    use flow_core::serde_json::json;

    #[flow(id = "trip", version = 3, steps(Explore, Checkout), state = Cart)]
    #[derive(Clone)]
    pub(crate) struct Trip;

    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub(crate) struct Cart {
        cities: Vec<String>,
    }

    impl Flow for Trip {
        fn migrations() -> Migrations {
            Migrations::new()
                .from(1, |doc| {
                    doc.rename_step("Browse", "Explore")?;
                    doc.rename_step("Pay", "Checkout")
                })
                .from(2, |doc| {
                    doc.rename_field("Checkout", "method", "payment")?;
                    doc.map_state(|state| Ok(json!({ "cities": [state["city"]] })))
                })
        }
    }

    #[step(collect, next(Checkout))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub(crate) struct Explore {
        #[slot(whole_message, ask = "Where do you want to go?")]
        city: Option<String>,
    }

    impl Collect for Explore {
        type Flow = Trip;

        async fn complete(
            &mut self,
            data: ExploreData,
            cx: &mut StepCx<'_, Trip>,
        ) -> Result<ExploreNext> {
            cx.state.cities.push(data.city);
            Ok(ExploreNext::Checkout)
        }
    }

    #[step(collect, next(end))]
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub(crate) struct Checkout {
        #[slot(one_of("card", "cash"), ask = "Card or cash?")]
        payment: Option<String>,
    }

    impl Collect for Checkout {
        type Flow = Trip;

        async fn complete(
            &mut self,
            data: CheckoutData,
            cx: &mut StepCx<'_, Trip>,
        ) -> Result<CheckoutNext> {
            cx.say(format!("To {}, paid by {}.", cx.state.cities.join(" and "), data.payment));
            Ok(CheckoutNext::End("paid".into()))
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = flow_core::store::open("memory").await?;

    println!("# Version 1 writes three sessions");
    let old = Engine::builder().shared_store(store.clone()).flow(v1::Trip).build()?;
    for (name, city) in [("ada", "Lisbon"), ("bob", "Oslo"), ("eve", "Turin")] {
        let session = SessionId::new(name)?;
        old.turn::<v1::Trip>(TurnRequest::new(session.clone())).await?;
        old.turn::<v1::Trip>(TurnRequest::new(session.clone()).message(city)).await?;
        show(&store, &session).await?;
    }

    println!("\n# Version 3, dry run: what would change");
    let new = Engine::builder().shared_store(store.clone()).flow(v3::Trip).build()?;
    let report = new.migrate_all::<v3::Trip>(MigrateOptions::dry_run(), tell).await?;
    println!("{} would be migrated, {} failed", report.migrated, report.failed.len());

    println!("\n# The next message of ada migrates her session on the way");
    let ada = SessionId::new("ada")?;
    let mut turn = new.turn::<v3::Trip>(TurnRequest::new(ada.clone()).message("card"));
    while let Some(event) = turn.next_event().await {
        if let Event::SessionMigrated { from, to } = event {
            println!("migrated from version {from} to {to}");
        }
    }
    println!("{}", turn.await?.replies.join("\n"));
    show(&store, &ada).await?;

    println!("\n# The others are migrated in bulk");
    let report = new.migrate_all::<v3::Trip>(MigrateOptions::default(), tell).await?;
    println!("{} migrated, {} failed", report.migrated, report.failed.len());
    show(&store, &SessionId::new("eve")?).await?;

    println!("\n# The program of yesterday leaves them alone");
    let eve = TurnRequest::new(SessionId::new("eve")?).message("cash");
    if let Err(error) = old.turn::<v1::Trip>(eve).await {
        println!("{error}");
    }
    Ok(())
}

fn tell(event: &MigrateEvent) {
    match event {
        MigrateEvent::Migrated { session, from, to, changed } => {
            println!("{session}: {from} -> {to}, changes {}", changed.join(", "));
        }
        other => println!("{other:?}"),
    }
}

async fn show(store: &Arc<dyn SessionStore>, session: &SessionId) -> Result<(), flow_core::Error> {
    if let Some(doc) = store.load(session).await? {
        println!(
            "{session}: version {}, at {}, state {}",
            doc.version, doc.current_step, doc.state
        );
    }
    Ok(())
}
