//! CPython's own test suite, natively and as replicas: one row for each of its test modules.
//!
//! The suite comes from a Debian package and is run as its users do (`python -m test MODULE`). What
//! each test *case* came to is read from the report it writes for machines, so a module with one
//! failing case still tells about all others. A case that passes natively has to pass under rcoe
//! too; the exceptions stand in `tests/cpython.toml`, each with its reason.
//!
//! * [`plan`] reads that file; [`report`] reads the suite's reports; [`run`] runs a module and
//!   compares; [`page`] makes the table.
//!
//! Not covered: cases that do not pass natively here, whatever the cause.

pub mod page;
pub mod plan;
pub mod report;
pub mod run;
