//! The rules a table must keep beyond its grammar.

use crate::model::{Call, Class, File, Place, Request, Table, Treatment};
use std::collections::BTreeMap;

/// Reports the first rule that is broken.
pub(crate) fn table(table: &Table) -> Result<(), String> {
    let mut numbers = BTreeMap::new();
    for (name, call) in &table.calls {
        if let Some(other) = numbers.insert(call.nr, name) {
            return Err(format!(
                "`{other}` and `{name}` are both number {}",
                call.nr
            ));
        }
        one_call(call, table).map_err(|e| format!("`{name}`: {e}"))?;
    }
    for (table_name, rows) in &table.requests {
        let mut codes = BTreeMap::new();
        for (name, row) in rows {
            if let Some(other) = codes.insert(row.code, name) {
                return Err(format!(
                    "{table_name}: `{other}` and `{name}` are both {:#x}",
                    row.code
                ));
            }
            facts(&Facts::from(row)).map_err(|e| format!("{table_name} `{name}`: {e}"))?;
        }
        if !table.calls.values().any(|c| uses(c, table_name)) {
            return Err(format!("no call uses the requests `{table_name}`"));
        }
    }
    for (name, file) in &table.files {
        one_file(file).map_err(|e| format!("file `{name}`: {e}"))?;
    }
    Ok(())
}

fn one_file(file: &File) -> Result<(), String> {
    if file.doc.is_empty() {
        return Err("`doc` must say what it is for, or why it is refused".into());
    }
    if (file.treatment == Treatment::Join) != (file.place == Place::Cgroup) {
        return Err("control groups, and only they, are joined".into());
    }
    Ok(())
}

fn uses(call: &Call, table_name: &str) -> bool {
    call.requests
        .as_ref()
        .is_some_and(|s| s.table == table_name)
}

fn one_call(call: &Call, table: &Table) -> Result<(), String> {
    facts(&Facts::from(call))?;
    if call.output_if.is_some() && call.class != Class::Input {
        return Err("`output_if` makes sense for class input only".into());
    }
    let Some(select) = &call.requests else {
        return Ok(());
    };
    if !table.requests.contains_key(&select.table) {
        return Err(format!("there is no table [requests.{}]", select.table));
    }
    if call.class != Class::Unsupported {
        return Err("requests decide; the call itself must be unsupported to fail closed".into());
    }
    Ok(())
}

/// What a call and a request have in common.
struct Facts<'a> {
    class: Class,
    repeatable: bool,
    quiet: bool,
    straight: bool,
    columns: &'a crate::model::Facts,
    handler: Option<&'a str>,
    reason: &'a str,
}

impl<'a> From<&'a Call> for Facts<'a> {
    fn from(c: &'a Call) -> Self {
        let handler = c.handler.as_deref();
        Facts {
            class: c.class,
            repeatable: c.repeatable,
            quiet: c.quiet,
            straight: c.straight,
            columns: &c.facts,
            handler,
            reason: &c.reason,
        }
    }
}

impl<'a> From<&'a Request> for Facts<'a> {
    fn from(r: &'a Request) -> Self {
        let handler = r.handler.as_deref();
        Facts {
            class: r.class,
            repeatable: r.repeatable,
            quiet: r.quiet,
            straight: r.straight,
            columns: &r.facts,
            handler,
            reason: &r.reason,
        }
    }
}

fn facts(f: &Facts<'_>) -> Result<(), &'static str> {
    let unsupported = f.class == Class::Unsupported;
    let handled = matches!(f.class, Class::Emulated | Class::Process);
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if unsupported && f.reason.is_empty() {
        return Err("an unsupported call needs a `reason`");
    }
    if !unsupported && !f.reason.is_empty() {
        return Err("`reason` is for unsupported calls; use `doc`");
    }
    if handled != f.handler.is_some() && (handled || unsupported) {
        return Err("emulated and process calls need a `handler`, unsupported ones have none");
    }
    if f.handler
        .is_some_and(|h| h.is_empty() || !h.chars().all(word))
    {
        return Err("a `handler` is written in lower case with underscores");
    }
    if f.repeatable && f.class != Class::Input {
        return Err("`repeatable` makes sense for class input only");
    }
    const RARE: [&str; 3] = ["opens", "ids", "descriptors"];
    const COMMON: [&str; 2] = ["plain", "closes"];
    let is_rare = |key: &&str| {
        let word = f
            .columns
            .0
            .get(*key)
            .and_then(|value| value.split('(').next());
        word.is_some_and(|word| !COMMON.contains(&word))
    };
    if f.straight && (unsupported || RARE.iter().any(is_rare)) {
        return Err("what opens or closes by other means, or tells ids, does not go `straight`");
    }
    if f.quiet && !unsupported && f.class != Class::Process {
        return Err("`quiet` makes sense for calls that may be refused");
    }
    Ok(())
}
