//! Values of callers: what comes back, and what they cannot do.

use flow_core::error::StoreError;
use flow_core::store::ListQuery;
use mongodb::bson::doc;
use serde_json::Value;

use super::*;

fn nasty() -> Value {
    json!({
        "integers": [0, -1, i64::MIN, i64::MAX, i64::MAX as u64 + 1, u64::MAX, 9_007_199_254_740_993_u64],
        "floats": [0.0, -0.0, 1.0, 0.1, 1e300, 5e-324, f64::MAX, f64::MIN],
        "texts": ["", "\u{0}", "a\u{0}b", "日本語", "🦀", "$lease.holder", "$$NOW", "%24", "%u64", "\u{FFFF}"],
        "": 1, "$": 1, "$set": { "revision": 99 }, "$where": "sleep(1000)", "a.b": 1, ".": 1, "..": 1,
        "a\u{0}b": 1, "%": 1, "%25": 1, "%u64": "1", "wide": { "%u64": "7" }, "$oid": "0123456789abcdef01234567",
        "$date": { "$numberLong": "1" }, "date": "2026-11-30T12:00:00Z", "_id": { "_id": null },
        "nested": [[[], {}], { "x": [{ "$literal": { "$x": [1, { "y.z": true }] } }] }],
    })
}

/// Equality of JSON values takes 0.0 for -0.0; their texts differ.
fn text(doc: &SessionDoc) -> String {
    serde_json::to_string(doc).unwrap()
}

#[tokio::test]
async fn every_value_comes_back_equal_from_each_kind_of_write() {
    let Some((store, _)) = store().await else { return };
    let value = nasty();
    let labels = [("$a.b".to_owned(), "$x".to_owned()), (String::new(), "\0".into())];
    let mut imported = document(&id("imported"));
    imported.state = value.clone();
    imported.steps.insert("Odd".into(), value.clone());
    imported.context = value.as_object().unwrap().clone();
    imported.labels = labels.into();
    imported.owner = Some("$owner\0".into());
    store.create(&imported).await.unwrap();
    assert_eq!(text(&stored(&store, &imported.id).await.unwrap()), text(&imported));

    let session = id("committed");
    let grant = open(&store, &session, "$holder").await.grant;
    let first = SessionDoc { id: session.clone(), ..imported };
    store.commit(&whole(&grant, &first, &Delta::replace())).await.unwrap();
    assert_eq!(text(&stored(&store, &session).await.unwrap()), text(&first));

    let delta = Delta {
        state: Some(json!([value.clone()])),
        steps: [("Odd".to_owned(), json!({ "x": value.clone() }))].into(),
        context: Some([("y".to_owned(), value)].into_iter().collect()),
        ..Delta::default()
    };
    let second = next(&first, &delta);
    store.commit(&whole(&grant, &second, &delta)).await.unwrap();
    assert_eq!(text(&stored(&store, &session).await.unwrap()), text(&second));
}

#[tokio::test]
async fn random_values_come_back_equal() {
    let Some((store, _)) = store().await else { return };
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for n in 0..100 {
        let mut doc = document(&id(&format!("r{n}")));
        doc.state = random.value(4);
        store.create(&doc).await.unwrap();
        assert_eq!(text(&stored(&store, &doc.id).await.unwrap()), text(&doc));
    }
}

/// Seeded, so that a failure is seen again (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn text(&mut self) -> String {
        const PIECES: [&str; 12] =
            ["$", ".", "%", "\0", "a", "u64", "25", "é", "🦀", "\"", "\\", "$set"];
        let length = self.below(5);
        (0..length).map(|_| PIECES[self.below(12) as usize]).collect()
    }

    fn value(&mut self, depth: u32) -> Value {
        match self.below(if depth == 0 { 6 } else { 9 }) {
            0 => Value::Null,
            1 => (self.below(2) == 0).into(),
            2 => self.below(u64::MAX).into(),
            3 => (self.below(u64::MAX) as i64).into(),
            4 => f64::from_bits(self.below(u64::MAX)).into(),
            5 => self.text().into(),
            6 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => (0..self.below(6)).map(|_| (self.text(), self.value(depth - 1))).collect(),
        }
    }
}

#[tokio::test]
async fn a_document_can_be_read_in_compass() {
    let Some((store, database)) = store().await else { return };
    let session = id("a");
    let (_, mut doc) = begin(&store, &session, "one").await;
    doc.id = id("b");
    doc.memory.entry("main".into()).or_default().messages.push(message(1));
    doc.path.push(flow_core::session::PathEntry { step: "B".into(), level: 0, at: at(7) });
    doc.expires_at = Some(at(60_000));
    doc.wake_at = Some(at(30_000));
    store.create(&doc).await.unwrap();
    let sessions = database.collection::<Document>("sessions");
    // Each date is found as a date, by its path.
    let moment = |time: Timestamp| mongodb::bson::DateTime::from_millis(time.as_millis());
    let filter = doc! {
        "_id": "b", "created_at": moment(at(0)), "updated_at": moment(at(0)), "expires_at": moment(at(60_000)),
        "wake_at": moment(at(30_000)),
        "memory.main.messages.at": moment(at(1)), "path.at": moment(at(7)), "state.guests": 2,
    };
    assert!(sessions.find_one(filter).await.unwrap().is_some());
    let filter = doc! { "_id": "a", "lease.until": { "$type": "date" }, "lease.holder": "one" };
    assert!(sessions.find_one(filter).await.unwrap().is_some());
}

#[tokio::test]
async fn text_of_callers_is_never_an_operator() {
    let Some((store, _)) = store().await else { return };
    let session = id("a");
    // Neither a field path nor a variable, though both stand in a pipeline.
    for (holder, flow) in
        [("$flow.id", "$lease.holder"), ("$$NOW", "$$ROOT"), ("", ""), ("a\0", "b\0")]
    {
        let request = OpenRequest { flow, ..request(&session, holder, LONG) };
        let grant = store.open(&request).await.unwrap().grant;
        let mut doc = document(&session);
        doc.flow.id = flow.into();
        store.commit(&whole(&grant, &doc, &Delta::replace())).await.unwrap();
        let read = store.load(&session).await.unwrap().unwrap();
        assert_eq!((read.lease.holder.as_deref(), read.flow.id.as_str()), (Some(holder), flow));
        let error =
            store.open(&OpenRequest { holder: "other", ..request.clone() }).await.unwrap_err();
        assert!(matches!(error, StoreError::Busy { .. }), "{error}");
        let wrong = store.open(&OpenRequest { flow: "$flow.id", ..request }).await.unwrap_err();
        assert!(matches!(wrong, StoreError::WrongFlow { .. }), "{wrong}");
        assert!(store.delete(&session).await.unwrap());
    }
    store.create(&document(&session)).await.unwrap();
    for text in ["$ne", "{\"$ne\": null}", "/.*/", ".*"] {
        let owner = ListQuery { owner: Some(text.into()), limit: 5, ..Default::default() };
        assert!(store.list(&owner).await.unwrap().is_empty());
        let flow = ListQuery { flow: Some(text.into()), limit: 5, ..Default::default() };
        assert!(store.list(&flow).await.unwrap().is_empty());
    }
    // A name that the engine would refuse is a key of one level here, not a path.
    let grant = open(&store, &session, "one").await.grant;
    let first = document(&session);
    let delta = Delta {
        steps: [("Explore.shown".to_owned(), json!(1)), ("$inc".to_owned(), json!(2))].into(),
        ..Delta::default()
    };
    let second = next(&first, &delta);
    store.commit(&whole(&grant, &second, &delta)).await.unwrap();
    assert_eq!(stored(&store, &session).await, Some(second));
}

#[tokio::test]
async fn a_document_that_is_too_big_is_refused_and_the_session_goes_on() {
    let Some((store, _)) = store().await else { return };
    let session = id("a");
    let (grant, first) = begin(&store, &session, "one").await;
    let delta = Delta { state: Some(json!("x".repeat(17 * 1024 * 1024))), ..Delta::default() };
    let second = next(&first, &delta);
    assert!(store.encoded_len(&json!(second)) > store.limits().document_bytes);
    let error = store.commit(&whole(&grant, &second, &delta)).await.unwrap_err();
    assert!(matches!(error, StoreError::Backend { .. }), "{}", error.code());
    assert!(error.to_string().len() < 2000);
    assert_eq!(stored(&store, &session).await.as_ref(), Some(&first));
    let second = next(&first, &Delta::default());
    store.commit(&whole(&grant, &second, &Delta::default())).await.unwrap();
}
