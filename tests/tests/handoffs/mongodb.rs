//! FlowMoves over MongoDB's wire protocol.

use flow_core::store::mongodb::MongoStore;

use super::*;

#[tokio::test]
async fn a_hand_off_and_a_digression_over_the_wire() {
    let Some(database) = tests::mongo_server::mongo().await else { return };
    let store = Arc::new(MongoStore::new(database.clone()).await.unwrap());
    let setup = setup_on(store, |builder| builder);
    let outcome = setup.say("charge:1 billing form").await.unwrap();
    assert_eq!(outcome.replies.last().unwrap(), "Which order?");
    assert_eq!(outcome.flow, "billing");
    let left = setup.aside(1).await.unwrap();
    assert_eq!(left.ended.as_deref(), Some("handed off to billing"));

    let state = Ticket { topic: "$a.b %".into(), plan: Vec::new() };
    let outcome = setup.digress("say:open?", HandOff::to::<Faq>(state)).await.unwrap();
    assert_eq!(outcome.replies, ["This is faq ($a.b %).", "open?"]);
    setup.say("say:more").await.unwrap();
    let outcome = setup.say("end").await.unwrap();
    assert_eq!(
        (outcome.flow.as_str(), &*outcome.replies),
        ("billing", &["Which order?".to_owned()][..])
    );
    assert_eq!(setup.say("#17").await.unwrap().replies, ["Order 17."]);
    let doc = setup.doc().await;
    assert_eq!((doc.flow.id.as_str(), doc.moves.unwrap().origin.as_str()), ("billing", "desk"));
    assert_eq!(setup.transcript().await.len(), 14);
    database.drop().await.unwrap();
}
