//! The kernel as programs see it, on the host: a world with a few threads, and what must hold in it
//! whatever they ask for.

mod alike;
mod devices;
mod fuzz;
mod grants;
mod guests;
mod invariants;
mod large;
mod long;
mod manner;
mod portions;
mod random;
mod scenes;
mod shared;
mod tables;
mod trace;
mod world;
