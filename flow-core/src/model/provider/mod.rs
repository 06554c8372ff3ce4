//! Models of real providers.
