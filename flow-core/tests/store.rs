//! The stores that need no server, held to the contract.

mod memory {
    use flow_core::store::memory::MemoryStore;

    flow_core::testing::store_conformance!(MemoryStore::new());
}

mod sqlite {
    use flow_core::store::sqlite::SqliteStore;
    use flow_core::testing::conformance::Subject;

    async fn subject() -> Subject {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("sessions.db")).await.unwrap();
        Subject::from(store).keep(folder)
    }

    flow_core::testing::store_conformance!(subject().await);
}
