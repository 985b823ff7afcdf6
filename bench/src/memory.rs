//! Memory of all replicas while the program waits for input.
//!
//! What is shared is counted once: proportional set sizes (`Pss` of `smaps_rollup`) of all replicas
//! are added up. The bound is *n* times the private (written) pages of the native program plus one
//! copy of its read-only pages.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rcoe_faultlab::events::Events;
use rcoe_faultlab::stats::to_f64;

use crate::configuration::{Configuration, NATIVE, protected};
use crate::sample::{Collector, Series};
use crate::workshop::{Scale, Workshop, rotated, words};

const ALL: [Configuration; 4] = [
    NATIVE,
    protected(1, "args"),
    protected(2, "args"),
    protected(3, "args"),
];

const PYTHON: &str = "x = bytearray(b'x') * (64 << 20); print('ready', flush=True); input()";

/// Sizes in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sizes {
    /// Present pages.
    resident: u64,
    /// Present pages, each divided by the number of processes that share it.
    proportional: u64,
    /// Written pages that nobody shares.
    private: u64,
}

/// One program's memory, as series over all configurations: the sum over replicas, the bound that
/// it is held against, and the supervisor's own.
///
/// # Errors
///
/// If a run fails.
pub fn measure(workshop: &Workshop, scale: Scale) -> Result<Vec<Series>> {
    let programs = [
        (
            "busybox sh",
            words(&["/bin/busybox", "sh", "-c", "echo ready; read x"]),
        ),
        (
            "python3 with 64 MiB",
            words(&["/usr/bin/python3", "-c", PYTHON]),
        ),
    ];
    let mut collector = Collector::default();
    for repetition in 0..scale.long.min(5) {
        for (name, command) in &programs {
            let mut native = Sizes::default();
            // Native first: the bound of the others follows from it.
            for configuration in rotated(&ALL, 0) {
                let events = workshop.path(&format!("memory-{repetition}"));
                let child = workshop.command(configuration, Some(&events), command);
                let (own, replicas) = observe(child, configuration, &events)?;
                let sum = replicas.iter().map(|sizes| sizes.proportional).sum();
                if configuration == NATIVE {
                    native = own;
                }
                let count = configuration.replicas.max(1) as u64;
                let bound = count * native.private + (native.resident - native.private);
                let own = if configuration == NATIVE {
                    0
                } else {
                    own.proportional
                };
                for (what, value) in [("all replicas", sum), ("bound", bound), ("supervisor", own)]
                {
                    let what = format!("{name}: {what}");
                    collector.add(&what, configuration, "KiB", to_f64(value));
                }
                let what = format!("{name}: over the bound");
                collector.add(&what, configuration, "KiB", to_f64(sum) - to_f64(bound));
            }
        }
    }
    Ok(collector.finish())
}

/// Sizes of the started process and of each replica (of the program itself if it is native), read
/// while it waits for input.
fn observe(
    mut command: Command,
    configuration: Configuration,
    events: &std::path::Path,
) -> Result<(Sizes, Vec<Sizes>)> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let sizes = look(&mut child, configuration, events);
    if let Some(mut input) = child.stdin.take() {
        // If the program is gone already, its status says so.
        let _ = input.write_all(b"\n");
    }
    let status = child.wait()?;
    ensure!(status.success(), "{command:?} ended with {status}");
    sizes
}

fn look(
    child: &mut Child,
    configuration: Configuration,
    events: &std::path::Path,
) -> Result<(Sizes, Vec<Sizes>)> {
    let output = child.stdout.take().context("no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    ensure!(
        line == "ready\n",
        "the program does not get ready: {line:?}"
    );
    thread::sleep(Duration::from_millis(50));
    let own = sizes(child.id())?;
    if configuration == NATIVE {
        return Ok((own, vec![own]));
    }
    let replicas = Events::read(events).replicas;
    ensure!(
        replicas.len() == configuration.replicas,
        "not all replicas were announced"
    );
    let each = replicas
        .iter()
        .map(|replica| sizes(u32::try_from(replica.pid)?));
    Ok((own, each.collect::<Result<_>>()?))
}

fn sizes(pid: u32) -> Result<Sizes> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    Ok(parse(&text))
}

fn parse(text: &str) -> Sizes {
    let field = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok())
            .unwrap_or(0)
    };
    Sizes {
        resident: field("Rss"),
        proportional: field("Pss"),
        private: field("Private_Dirty"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Sizes, parse};

    #[test]
    fn rollup_is_read() {
        let text = "00400000-7fff r--p 00000000 00:00 0 [rollup]\n\
                    Rss:                3000 kB\nPss:                1200 kB\n\
                    Pss_Dirty:             7 kB\nPrivate_Dirty:       900 kB\n";
        assert_eq!(
            parse(text),
            Sizes {
                resident: 3000,
                proportional: 1200,
                private: 900
            }
        );
    }
}
