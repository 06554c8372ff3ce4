//! What the integration tests share.

pub mod mongo_server;
mod test_tools;
