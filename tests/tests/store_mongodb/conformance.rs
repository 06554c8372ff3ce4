//! The public conformance suite.

use flow_core::testing::conformance::Subject;

flow_core::testing::store_conformance!(match super::store().await {
    Some((store, _)) => Subject::from(store).expires_by_itself(),
    None => return,
});
