//! What the integration tests share.

pub mod mongo_server;
pub mod recording_store;
pub mod route_flow;
mod test_tools;
