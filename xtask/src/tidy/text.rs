//! Rules about plain text: lengths and words.

use anyhow::Result;

use super::{House, Source, exempt};

/// Most lines of a file.
const FILE_LINES: usize = 800;
/// Lines past which a file is reported, for information.
const FILE_LINES_SOFT: usize = 500;
/// Most columns of a line of code.
const COLUMNS: usize = 100;

/// Beginnings of paths that exist on one machine only.
const MACHINE_PATHS: &[&str] = &["/root/", "/work/", "/tmp/", "/home/", "/farm/"];
/// Words for what is left undone; each needs a reason in parentheses behind it.
const OPEN_ENDS: &[&str] = &["TODO", "FIXME", "XXX", "HACK"];

pub(super) fn long_files(house: &House) -> Result<Vec<String>> {
    let long = |source: &&Source| {
        source.content.lines().count() > FILE_LINES
            && !exempt(&house.exemptions.long_file, &source.path, None)
    };
    Ok(house.rust().filter(long).map(described).collect())
}

/// Prints the files past the soft limit.
pub(super) fn report_soft_limit(house: &House) {
    let big = |source: &&Source| source.content.lines().count() > FILE_LINES_SOFT;
    for source in house.rust().filter(big) {
        println!("tidy: note: {}", described(source));
    }
}

fn described(source: &Source) -> String {
    format!("{}: {} lines", source.path, source.content.lines().count())
}

/// All lines of the given files for which `finding` says something.
fn lines<'a>(
    sources: impl Iterator<Item = &'a Source>,
    finding: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut findings = Vec::new();
    for source in sources {
        for (index, line) in source.content.lines().enumerate() {
            if let Some(text) = finding(line) {
                findings.push(format!("{}:{}: {text}", source.path, index + 1));
            }
        }
    }
    findings
}

pub(super) fn wide_lines(house: &House) -> Result<Vec<String>> {
    Ok(lines(house.rust(), |line| {
        let columns = line.chars().count();
        (columns > COLUMNS).then(|| format!("{columns} columns"))
    }))
}

/// Whether `line` holds `word` as a word of its own without a reason in parentheses behind it.
fn unreasoned(line: &str, word: &str) -> bool {
    let letter = |c: char| c.is_alphanumeric() || c == '_' || c == '"';
    line.match_indices(word).any(|(at, _)| {
        let (before, behind) = (&line[..at], &line[at + word.len()..]);
        let apart = !before.ends_with(letter) && !behind.starts_with(letter);
        apart && !behind.starts_with('(')
    })
}

pub(super) fn open_ends(house: &House) -> Result<Vec<String>> {
    let code = house.sources.iter().filter(|source| !source.is_markdown());
    Ok(lines(code, |line| {
        let word = OPEN_ENDS.iter().find(|word| unreasoned(line, word))?;
        Some(format!("{word} without a reason in parentheses"))
    }))
}

pub(super) fn machine_paths(house: &House) -> Result<Vec<String>> {
    // A path inside a longer one (`x/work/y`) is not of this machine.
    let inside = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | '/');
    let names = |line: &str| {
        MACHINE_PATHS.iter().copied().find(|path| {
            line.match_indices(path)
                .any(|(at, _)| !line[..at].ends_with(inside))
        })
    };
    let mut findings = lines(house.sources.iter(), |line| names(line).map(str::to_owned));
    findings.retain(|finding| {
        let path = finding.split(':').next().unwrap_or_default();
        !exempt(&house.exemptions.machine_path, path, None)
    });
    Ok(findings)
}

/// Numbers and names of system calls in the agent, whose table says all that it asks of a call.
pub(super) fn call_numbers(house: &House) -> Result<Vec<String>> {
    const WORDS: [&str; 2] = [concat!("__", "NR_"), ".call.name"];
    let of_agent = |source: &&Source| source.is_rust() && source.path.starts_with("linux/agent/");
    let mut findings = lines(house.sources.iter().filter(of_agent), |line| {
        let found = WORDS.iter().find(|word| line.contains(**word))?;
        Some((*found).to_owned())
    });
    findings.retain(|finding| {
        let path = finding.split(':').next().unwrap_or_default();
        !exempt(&house.exemptions.call_number, path, None)
    });
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::super::house_of;
    use super::*;

    #[test]
    fn limits_are_exact() {
        let (fits, long) = ("x\n".repeat(800), "x\n".repeat(801));
        let house = house_of(&[("a.rs", &fits), ("b.rs", &long), ("c.toml", &long)]);
        assert_eq!(long_files(&house).unwrap(), ["b.rs: 801 lines"]);
        let (fits, wide) = ("x".repeat(100), "x".repeat(101));
        let house = house_of(&[("a.rs", &fits), ("b.rs", &wide)]);
        assert_eq!(wide_lines(&house).unwrap(), ["b.rs:1: 101 columns"]);
    }

    #[test]
    fn an_open_end_needs_a_reason() {
        let word = OPEN_ENDS[0];
        let with = format!("// {word}(until the kernel lands) do this");
        let without = format!("// {word}: do this");
        let house = house_of(&[
            ("a.rs", &with),
            ("b.rs", &without),
            ("c.rs", "mktemp XXXXXX"),
        ]);
        assert_eq!(open_ends(&house).unwrap().len(), 1);
    }

    #[test]
    fn a_path_of_one_machine_is_found() {
        let path = format!("cd {}x", MACHINE_PATHS[0]);
        let house = house_of(&[("a.sh", &path), ("b.sh", "cd target/work/x")]);
        assert_eq!(
            machine_paths(&house).unwrap(),
            [format!("a.sh:1: {}", MACHINE_PATHS[0])]
        );
    }

    #[test]
    fn a_call_by_its_number_is_found_in_the_agent_only() {
        let line = format!(
            "//! x\nmatch nr {{ {}read => {{}} }}\n",
            concat!("__", "NR_")
        );
        let name = "//! x\nif call.what.call.name == \"read\" {}\n";
        let house = house_of(&[
            ("linux/agent/src/a.rs", &line),
            ("linux/agent/src/b.rs", name),
            ("linux/sys/src/c.rs", &line),
        ]);
        let findings = call_numbers(&house).unwrap();
        assert_eq!(findings.len(), 2, "{findings:?}");
    }
}
