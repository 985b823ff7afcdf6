//! Writes the checked table as Rust.

use crate::columns;
use crate::model::{Call, Request, Table};
use crate::pools::Pools;
use crate::signature::{self, Param};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The whole generated file.
pub(crate) fn table(table: &Table) -> Result<String, String> {
    let mut calls: Vec<_> = table.calls.iter().collect();
    calls.sort_by_key(|(_, call)| call.nr);
    let mut out = specials(table);
    out += &tables(table);
    let mut pools = Pools::default();
    for (name, rows) in &table.requests {
        out += &requests(name, rows, &mut pools).map_err(|e| format!("requests.{name}: {e}"))?;
    }
    let _ = writeln!(
        out,
        "/// Every call, by number.\npub static ALL: &[Syscall] = &CALLS;"
    );
    let _ = writeln!(out, "static CALLS: [Syscall; {}] = [", calls.len());
    let mut resolved = Resolutions::new(&calls);
    for (name, call) in &calls {
        out += &one_call(call, table, &mut resolved, &mut pools)
            .map_err(|e| format!("`{name}`: {e}"))?;
    }
    out += "];\n";
    out += &resolved.render();
    out += &words(&calls, &mut pools)?;
    out += &pools.render();
    out += &slots(&calls);
    out += &notes(&calls);
    out += &facts(table);
    out += &files(table);
    Ok(out)
}

/// The files that act on who writes to them, by name.
fn files(table: &Table) -> String {
    let mut out = String::from(
        "/// Files that act on the process that writes to them, by name.\n\
         pub static FILES: &[File] = &[\n",
    );
    for (name, file) in &table.files {
        let _ = writeln!(
            out,
            "File {{ name: {name:?}, place: Place::{:?}, treatment: Treatment::{:?}, doc: {:?} }},",
            file.place, file.treatment, file.doc
        );
    }
    out + "];\n"
}

/// The `Special` enum, with the calls that each variant serves.
fn specials(table: &Table) -> String {
    let mut served: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, call) in &table.calls {
        if let Some(h) = &call.handler {
            served.entry(h).or_default().insert(name);
        }
    }
    for (name, row) in table.requests.values().flatten() {
        if let Some(h) = &row.handler {
            served.entry(h).or_default().insert(name);
        }
    }
    let mut out = String::from(
        "/// The hand-written part of the agent that a call needs; `None` for generic handling.\n\
         #[derive(Copy, Clone, Debug, PartialEq, Eq)]\npub enum Special {\n\
         /// The description suffices.\nNone,\n",
    );
    for (handler, names) in served {
        let names: Vec<_> = names.iter().map(|n| format!("`{n}`")).collect();
        let _ = writeln!(out, "/// For {}.\n{},", names.join(", "), camel(handler));
    }
    out + "}\n"
}

pub(crate) fn camel(name: &str) -> String {
    let mut out = String::new();
    for part in name.split('_').filter(|p| !p.is_empty()) {
        let (head, tail) = part.split_at(1);
        out += &head.to_ascii_uppercase();
        out += tail;
    }
    out
}

fn special(handler: Option<&String>) -> String {
    format!("Special::{}", handler.map_or("None".into(), |h| camel(h)))
}

/// The names of the tables of requests, and their rows.
fn tables(table: &Table) -> String {
    let mut out = String::from(
        "/// The tables of requests.\n\
         #[derive(Copy, Clone, Debug, PartialEq, Eq)]\npub enum Table {\n",
    );
    for name in table.requests.keys() {
        let _ = writeln!(out, "/// Of `{name}`.\n{},", camel(name));
    }
    out += "}\nimpl Table {\n/// Its rows, by code.\n#[must_use]\n\
            pub const fn rows(self) -> &'static [Request] {\nmatch self {\n";
    for name in table.requests.keys() {
        let (variant, rows) = (camel(name), name.to_ascii_uppercase());
        let _ = writeln!(out, "Self::{variant} => &{rows}_ROWS,");
    }
    out + "}\n}\n}\n"
}

/// One table of requests, sorted by code for binary search.
fn requests(
    name: &str,
    rows: &BTreeMap<String, Request>,
    pools: &mut Pools,
) -> Result<String, String> {
    let mut rows: Vec<_> = rows.iter().collect();
    rows.sort_by_key(|(_, row)| row.code);
    let upper = name.to_ascii_uppercase();
    let mut out = format!(
        "/// The requests of `{name}`, by code.\n\
         pub static {upper}: &[Request] = &{upper}_ROWS;\n\
         static {upper}_ROWS: [Request; {}] = [\n",
        rows.len()
    );
    for (name, r) in rows {
        let arg = signature::kind_of("arg", &r.arg).and_then(|p| signature::render(&p, &[]));
        let arg = arg.map_err(|e| format!("`{name}`: {e}"))?;
        let facts = columns::render(&r.facts, &[]).map_err(|e| format!("`{name}`: {e}"))?;
        let _ = writeln!(
            out,
            "Request {{ code: {}, name: {}, class: Class::{:?}, arg: {arg}, \
             repeatable: {}, blocking: {}, quiet: {}, special: {}, straight: {}, \
             facts: {}, reason: {} }},",
            r.code,
            pools.text(name),
            r.class,
            r.repeatable,
            r.blocking,
            r.quiet,
            special(r.handler.as_ref()),
            r.straight,
            pools.columns(facts),
            pools.text(&r.reason)
        );
    }
    Ok(out + "];\n")
}

/// The calls as they can be resolved: each as it is, then those that conditions and requests make
/// of them.
struct Resolutions {
    all: Vec<String>,
    /// The call that is being written.
    call: usize,
}

impl Resolutions {
    fn new(calls: &[(&String, &Call)]) -> Self {
        let plain = |(at, (_, call)): (usize, &(&String, &Call))| {
            format!("Resolved::of(&CALLS[{at}], Class::{:?})", call.class)
        };
        Self {
            all: calls.iter().enumerate().map(plain).collect(),
            call: 0,
        }
    }

    fn render(&self) -> String {
        let all = self.all.join(",\n");
        let count = self.all.len();
        format!("pub(crate) static RESOLVED: [Resolved; {count}] = [\n{all}\n];\n")
    }
}

fn one_call(
    c: &Call,
    table: &Table,
    resolved: &mut Resolutions,
    pools: &mut Pools,
) -> Result<String, String> {
    let params = signature::parse(&c.args)?;
    let mut kinds = Vec::new();
    for p in &params {
        kinds.push(signature::render(p, &params)?);
    }
    kinds.resize(6, "Arg::None".into());
    let at = resolved.call;
    let output_if = output_if(c, &params, resolved)?;
    let requests = select(c, &params, table, resolved)?;
    resolved.call += 1;
    Ok(format!(
        "Syscall {{ nr: {}, class: Class::{:?}, args: [{}], nargs: {}, \
         pointers: pointers(&[{}]), output_if: {output_if}, requests: {requests}, \
         repeatable: {}, blocking: {}, quiet: {}, special: {}, straight: {}, facts: {}, \
         resolved: {at} }},\n",
        c.nr,
        c.class,
        kinds.join(", "),
        params.len(),
        kinds.join(", "),
        c.repeatable,
        c.blocking,
        c.quiet,
        special(c.handler.as_ref()),
        c.straight,
        pools.columns(columns::render(&c.facts, &params)?)
    ))
}

/// What is said of the calls to people, in their order.
fn words(calls: &[(&String, &Call)], pools: &mut Pools) -> Result<String, String> {
    let mut out = format!("pub(crate) static WORDS: [Words; {}] = [\n", calls.len());
    for (name, call) in calls {
        let params = signature::parse(&call.args).map_err(|e| format!("`{name}`: {e}"))?;
        let mut names: Vec<&str> = params.iter().map(|p| p.name.as_str()).collect();
        names.resize(6, "");
        let names: Vec<String> = names.iter().map(|name| pools.text(name)).collect();
        let _ = writeln!(
            out,
            "Words {{ name: {}, params: [{}], reason: {} }},",
            pools.text(name),
            names.join(", "),
            pools.text(&call.reason)
        );
    }
    Ok(out + "];\n")
}

fn output_if(c: &Call, params: &[Param], resolved: &mut Resolutions) -> Result<String, String> {
    let Some(o) = &c.output_if else {
        return Ok("None".into());
    };
    let arg = signature::index(params, &o.arg)?;
    let (at, call) = (resolved.all.len(), resolved.call);
    let output = format!("Resolved::of(&CALLS[{call}], Class::Output)");
    resolved.all.push(output);
    Ok(format!(
        "Some(OutputIf {{ arg: {arg}, any_bits: {:#x}, resolved: {at} }})",
        o.any_bits
    ))
}

fn select(
    c: &Call,
    params: &[Param],
    table: &Table,
    resolved: &mut Resolutions,
) -> Result<String, String> {
    let Some(s) = &c.requests else {
        return Ok("None".into());
    };
    let selector = signature::index(params, &s.selector)?;
    let data = s
        .data
        .as_ref()
        .map(|d| signature::index(params, d))
        .transpose()?;
    let (rows, name) = (s.table.to_ascii_uppercase(), camel(&s.table));
    let (first, call) = (resolved.all.len(), resolved.call);
    let count = table.requests.get(&s.table).map_or(0, BTreeMap::len);
    let with = |row| format!("Resolved::with(&CALLS[{call}], &{rows}_ROWS[{row}])");
    resolved.all.extend((0..count).map(with));
    Ok(format!(
        "Some(Requests {{ table: Table::{name}, selector: {selector}, data: {data:?}, \
         errno: {}, resolved: {first} }})",
        s.errno
    ))
}

/// The array that `entry` indexes.
fn slots(calls: &[(&String, &Call)]) -> String {
    let last = calls.last().map_or(0, |(_, c)| c.nr);
    let mut out = format!("static SLOTS: [u16; {}] = [\n", usize::from(last) + 1);
    for nr in 0..=last {
        match calls.iter().position(|(_, c)| c.nr == nr) {
            Some(at) => {
                let _ = writeln!(out, "{at},");
            }
            None => out += "u16::MAX,\n",
        }
    }
    out + "];\n"
}

/// The columns in the words of the table, for the reader.
fn facts(table: &Table) -> String {
    let mut out = String::from(
        "/// What else is known of a call or request, by its name, in the words of the table.\n\
         pub static FACTS: &[(&str, &[(&str, &str)])] = &[\n",
    );
    let calls = table.calls.iter().map(|(name, call)| (name, &call.facts));
    let rows = table.requests.values().flatten();
    let rows = rows.map(|(name, row)| (name, &row.facts));
    for (name, facts) in calls.chain(rows).filter(|(_, it)| !it.0.is_empty()) {
        let pairs: Vec<_> = facts.0.iter().collect();
        let _ = writeln!(out, "({name:?}, &{pairs:?}),");
    }
    out + "];\n"
}

/// Remarks stand apart from the table, so that the agent does not carry them.
fn notes(calls: &[(&String, &Call)]) -> String {
    let mut out = String::from(
        "/// Remarks for the reader, by name of the call.\n\
         pub static NOTES: &[(&str, &str)] = &[\n",
    );
    for (name, call) in calls.iter().filter(|(_, c)| !c.doc.is_empty()) {
        let _ = writeln!(out, "({name:?}, {:?}),", call.doc);
    }
    out + "];\n"
}
