//! Unsafe steps of the supervisor, wrapped safely.
