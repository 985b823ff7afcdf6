//! The columns in `facts = { ... }`: a word each, with arguments of the call or numbers in
//! parentheses.

use crate::model::Facts;
use crate::signature::{self, Param};
use std::fmt::Write as _;

/// A column: its key, its type, and its words with the number of their operands.
type Column = (&'static str, &'static str, &'static [(&'static str, usize)]);

const COLUMNS: &[Column] = &[
    (
        "waits",
        "Waits",
        &[
            ("read", 0),
            ("accept", 0),
            ("write", 0),
            ("move", 2),
            ("splice", 3),
            ("receive", 1),
            ("send", 1),
            ("connect", 0),
            ("poll", 0),
            ("select", 0),
            ("epoll", 0),
            ("flock", 0),
            ("file_lock", 1),
            ("child", 0),
            ("semaphores", 0),
            ("queue", 1),
            ("mail_out", 0),
            ("mail_in", 0),
        ],
    ),
    ("unless", "Unless", &[("bits", 2)]),
    (
        "time",
        "Time",
        &[
            ("milliseconds", 1),
            ("timespec", 1),
            ("timespec_rest", 1),
            ("timeval_rest", 1),
        ],
    ),
    (
        "position",
        "Position",
        &[
            ("reads", 1),
            ("reads_some", 0),
            ("writes", 1),
            ("writes_some", 0),
        ],
    ),
    (
        "stream",
        "Stream",
        &[("read", 0), ("write", 0), ("receive", 1), ("send", 1)],
    ),
    (
        "takeover",
        "Takeover",
        &[
            ("again", 0),
            ("again_without", 2),
            ("again_but", 4),
            ("again_if_null", 1),
            ("again_unless_same", 2),
            ("descriptor", 0),
            ("descriptor_from", 1),
            ("pair", 1),
            ("closed", 0),
            ("directory", 0),
            ("bound", 0),
            ("connected", 0),
            ("events", 0),
            ("asked", 1),
            ("ring_rename", 2),
            ("ring_rename_at", 4),
            ("ring_rename_at_flags", 5),
            ("ring_unlink", 1),
            ("ring_rmdir", 1),
            ("ring_unlink_at", 3),
            ("ring_mkdir", 2),
            ("ring_mkdir_at", 3),
            ("ring_symlink", 2),
            ("ring_symlink_at", 3),
            ("ring_link", 2),
            ("ring_link_at", 5),
            ("ring_epoll_ctl", 4),
            ("ring_shutdown", 2),
        ],
    ),
    (
        "outgoing",
        "Outgoing",
        &[
            ("passes", 0),
            ("sends", 0),
            ("connects", 0),
            ("opens", 1),
            ("describes", 1),
        ],
    ),
    ("content", "Content", &[("reads", 0), ("writes", 0)]),
    ("moves", "Moves", &[("by", 1), ("what_is_there", 3)]),
    ("offset", "Offset", &[("at", 1), ("at_or_on", 1), ("to", 1)]),
    (
        "opens",
        "Opens",
        &[("plain", 2), ("described", 2), ("created", 1), ("peer", 1)],
    ),
    (
        "ids",
        "Ids",
        &[
            ("option", 3),
            ("owner", 1),
            ("received", 1),
            ("received_many", 1),
            ("sent", 1),
            ("sent_many", 2),
        ],
    ),
    (
        "terminal",
        "Terminal",
        &[("reads", 0), ("writes", 0), ("sets", 0)],
    ),
    (
        "descriptors",
        "Descriptors",
        &[
            ("closes", 1),
            ("replaces", 1),
            ("copies", 0),
            ("closes_range", 3),
            ("closes_marked", 0),
            ("closes_own", 0),
        ],
    ),
    (
        "sigpipe",
        "Sigpipe",
        &[("raises", 0), ("raises_without", 2)],
    ),
    (
        "size",
        "Size",
        &[("none", 0), ("to", 1), ("by", 2), ("from", 1)],
    ),
];

/// The Rust value of all columns.
pub(crate) fn render(facts: &Facts, params: &[Param]) -> Result<String, String> {
    let mut out = String::from("Facts { ");
    for (key, text) in &facts.0 {
        let column = COLUMNS.iter().find(|column| column.0 == key);
        let column = column.ok_or_else(|| format!("there is no column `{key}`"))?;
        let value = value(column, text, params).map_err(|e| format!("`{key}`: {e}"))?;
        let _ = write!(out, "{key}: {value}, ");
    }
    Ok(out + "..Facts::NONE }")
}

fn value(column: &Column, text: &str, params: &[Param]) -> Result<String, String> {
    let (word, operands) = match text.split_once('(') {
        None => (text, ""),
        Some((word, rest)) => (word, rest.strip_suffix(')').ok_or("it lacks its `)`")?),
    };
    let known = column.2.iter().find(|known| known.0 == word);
    let (_, count) = known.ok_or_else(|| format!("`{word}` is no such word"))?;
    let operands: Vec<_> = operands.split(',').map(str::trim).collect();
    let operands: Vec<_> = operands.into_iter().filter(|it| !it.is_empty()).collect();
    if operands.len() != *count {
        return Err(format!("`{word}` has {count} operands"));
    }
    let operands: Result<Vec<_>, _> = operands.iter().map(|it| operand(it, params)).collect();
    let operands = operands?;
    let variant = crate::emit::camel(word);
    Ok(if operands.is_empty() {
        format!("{}::{variant}", column.1)
    } else {
        format!("{}::{variant}({})", column.1, operands.join(", "))
    })
}

/// A number as it is, or the index of an argument.
fn operand(text: &str, params: &[Param]) -> Result<String, String> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(text.into());
    }
    signature::index(params, text).map(|index| index.to_string())
}
