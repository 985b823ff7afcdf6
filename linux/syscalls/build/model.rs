//! What `table.toml` looks like to serde. Unknown keys are errors.

use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    pub(crate) calls: BTreeMap<String, Call>,
    pub(crate) requests: BTreeMap<String, BTreeMap<String, Request>>,
    pub(crate) files: BTreeMap<String, File>,
}

/// A file that acts on the process that writes to it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) place: Place,
    pub(crate) treatment: Treatment,
    pub(crate) doc: String,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Place {
    Process,
    Cgroup,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Treatment {
    Memory,
    Each,
    Join,
    Once,
    Refused,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Call {
    pub(crate) nr: u16,
    #[serde(default)]
    pub(crate) args: String,
    pub(crate) requests: Option<Select>,
    pub(crate) output_if: Option<OutputIf>,
    pub(crate) class: Class,
    #[serde(default)]
    pub(crate) repeatable: bool,
    #[serde(default)]
    pub(crate) blocking: bool,
    #[serde(default)]
    pub(crate) quiet: bool,
    pub(crate) handler: Option<String>,
    #[serde(default)]
    pub(crate) straight: bool,
    #[serde(default)]
    pub(crate) facts: Facts,
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) doc: String,
}

/// One row of a table of requests: the same words as in a call, but a single argument.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    pub(crate) code: u32,
    #[serde(default = "none")]
    pub(crate) arg: String,
    pub(crate) class: Class,
    #[serde(default)]
    pub(crate) repeatable: bool,
    #[serde(default)]
    pub(crate) blocking: bool,
    #[serde(default)]
    pub(crate) quiet: bool,
    pub(crate) handler: Option<String>,
    #[serde(default)]
    pub(crate) straight: bool,
    #[serde(default)]
    pub(crate) facts: Facts,
    #[serde(default)]
    pub(crate) reason: String,
}

/// Columns by name: see `columns.rs`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Facts(pub(crate) BTreeMap<String, String>);

fn none() -> String {
    "none".into()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Select {
    pub(crate) table: String,
    pub(crate) selector: String,
    pub(crate) data: Option<String>,
    pub(crate) errno: u16,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutputIf {
    pub(crate) arg: String,
    pub(crate) any_bits: u64,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Class {
    Local,
    Emulated,
    Input,
    Output,
    Process,
    Unsupported,
}
