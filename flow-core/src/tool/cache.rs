//! The tools that a type declares. Their schemas are made once: a step speaks often, and
//! making them takes longer than all else that the engine does for an answer.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use super::ToolDefinition;

/// The tools of a step, made when they are first asked for. Generic steps have their own for
/// each type.
pub(crate) fn declared<S: 'static>(make: fn() -> Vec<ToolDefinition>) -> Arc<[ToolDefinition]> {
    of(TypeId::of::<S>(), make)
}

fn of(id: TypeId, make: fn() -> Vec<ToolDefinition>) -> Arc<[ToolDefinition]> {
    type Known = RwLock<HashMap<TypeId, Arc<[ToolDefinition]>>>;
    static KNOWN: LazyLock<Known> = LazyLock::new(RwLock::default);

    // An entry is whole or not there, so a panic elsewhere does not matter.
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
    known.unwrap_or_else(|| {
        // Made outside of the lock, since it runs code of the user; of two the first stays.
        let made = make().into();
        let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
        known.entry(id).or_insert(made).clone()
    })
}
