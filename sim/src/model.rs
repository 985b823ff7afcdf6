//! Exhaustive exploration.
