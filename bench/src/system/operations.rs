//! Instructions of an operation of Redis, whose client is in the same machine.
//!
//! A shell starts the distribution's `redis-server`, waits until it answers, and has
//! `redis-benchmark` make operations over the loopback of the machine; the difference of a run with
//! few and one with many is what the operations took, and all else cancels. The client asks again
//! as soon as it is answered, so one of both can always go on: no core is idle, and the clock,
//! which counts instructions of all cores together, never runs ahead to a timer. What a core
//! executes while it waits for its siblings is counted.

use std::fmt::Write as _;

use anyhow::Result;

use super::machine::{Bench, Clock, Run, per_each};
use super::{MODES, NS, Told, USUAL, collect, head, row};
use crate::workshop::tool;

/// Operations of the two runs.
const OPERATIONS: [u64; 2] = [2_000, 6_000];
/// Commands, as `redis-benchmark -t` names them, with the number of clients.
const WORK: [(&str, &str); 2] = [("incr", "1"), ("set", "8")];
const MEMORY: &str = "160M";

pub(super) fn measure(bench: &Bench, out: &mut Told) -> Result<()> {
    let _ = writeln!(
        out,
        "\n### Redis and its client in one machine, instructions an operation and replica\n"
    );
    head(out);
    for (command, clients) in WORK {
        let plural = if clients == "1" { "" } else { "s" };
        let name = command.to_uppercase();
        let what = format!("Redis, {name}, {clients} client{plural} in the machine");
        for compare in MODES {
            let figures = collect(Clock::Counted, 1, &NS, |replicas| {
                let run = Run {
                    replicas,
                    compare,
                    clock: Clock::Counted,
                    tick: USUAL,
                    words: "",
                };
                per_each(run, OPERATIONS, |count| {
                    serve(bench, run, command, (clients, count))
                })
            })?;
            row(out, &what, compare, &figures, 4);
        }
    }
    Ok(())
}

/// Runs server and client to the client's end.
fn serve(
    bench: &Bench,
    run: Run<'_>,
    command: &str,
    (clients, count): (&str, u64),
) -> Result<super::machine::Told> {
    let find =
        |name: &str| -> Result<String> { Ok(tool(name, "redis-tools")?.display().to_string()) };
    let server = tool("redis-server", "redis-server")?.display().to_string();
    let (asking, client) = (find("redis-cli")?, find("redis-benchmark")?);
    let script = format!(
        "{server} --save '' --loglevel warning & until {asking} ping > /dev/null 2>&1; do :; \
         done; {client} -c {clients} -n {count} -t {command} --csv"
    );
    let mut options = vec!["--no-reintegrate", "--memory", MEMORY];
    for file in [&server, &asking, &client] {
        options.extend(["--file", file]);
    }
    bench.run_words(run, &options, &["busybox", "sh", "-c", &script])
}
