//! Shares of native and of the floor, as tables.

use std::fmt::Write as _;

use super::{ALL, CELLS, CPU, Cell, MEDIAN, P99, THROUGHPUT};
use crate::configuration::{Configuration, NATIVE};
use crate::floor::{counterpart, multiples, text, values};
use crate::sample::{Series, Spread};

/// All values of one thing of a load.
fn of_cell<'a>(
    series: &'a [Series],
    cell: &Cell,
    what: &str,
    configuration: Configuration,
) -> Option<&'a [f64]> {
    values(series, &named(cell, what), configuration)
}

fn named(cell: &Cell, what: &str) -> String {
    format!("{}: {what}", cell.name)
}

/// One table for each load.
#[must_use]
pub fn table(series: &[Series]) -> String {
    let rounds = series.first().map_or(0, |series| series.values.len());
    let mut out = format!(
        "Median (10 % to 90 %) of {rounds} rounds. *Share* and *CPU over*: with several replicas, \
         of as many native servers at once (the floor) in the same round, else of native.\n"
    );
    let measured = |cell: &&Cell| of_cell(series, cell, THROUGHPUT, NATIVE).is_some();
    for cell in CELLS.iter().filter(measured) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "\n### {}\n\n| run as | requests a second | share | 50 % latency, ms | \
             99 % latency, ms | 99 % over native | CPU a request, us | CPU over |\n\
             |---|---|---|---|---|---|---|---|",
            cell.name
        );
        for configuration in ALL {
            out.push_str(&row(series, cell, configuration));
        }
    }
    out
}

fn row(series: &[Series], cell: &Cell, configuration: Configuration) -> String {
    let value = |what| of_cell(series, cell, what, configuration).map(Spread::of);
    let over = |what, other| {
        let pair = [configuration, other];
        let told = !configuration.is_native();
        multiples(series, &named(cell, what), pair).filter(|_| told)
    };
    let fair = counterpart(configuration);
    let columns = [
        text(value(THROUGHPUT), 0),
        text(over(THROUGHPUT, fair), 2),
        text(value(MEDIAN), 2),
        text(value(P99), 2),
        text(over(P99, NATIVE), 2),
        text(value(CPU), 1),
        text(over(CPU, fair), 2),
    ];
    format!("| {configuration} | {} |\n", columns.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::table;
    use crate::configuration::{Configuration, NATIVE, protected};
    use crate::sample::{Collector, Series};
    use crate::servers::{CPU, P99, THROUGHPUT};

    const SYNCHRONOUS: Configuration = Configuration {
        defer: false,
        ..protected(2, "args")
    };

    /// Two rounds of nginx; the machine is half as fast in the second.
    fn nginx() -> Vec<Series> {
        let mut collector = Collector::default();
        for slowness in [1.0, 2.0] {
            for (configuration, rate) in [
                (SYNCHRONOUS, 1_000.0),
                (protected(2, "args"), 19_000.0),
                (NATIVE.copies(2), 20_000.0),
                (NATIVE, 50_000.0),
                (protected(1, "args"), 40_000.0),
            ] {
                let mut add = |what: &str, value| {
                    collector.add(&format!("nginx: {what}"), configuration, "", value);
                };
                add(THROUGHPUT, rate / slowness);
                add(P99, 120_000.0 * slowness / rate);
                add(CPU, 1_000_000.0 * slowness / rate);
            }
        }
        collector.finish()
    }

    #[test]
    fn shares_are_of_the_floor_and_taken_within_a_round() {
        let table = table(&nginx());
        let row = |name: &str| {
            let row = table.lines().find(|line| line.starts_with(name)).unwrap();
            row.split(" | ").map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(row("| n=2 args |")[2], "0.95 (0.95 to 0.95)");
        assert_eq!(row("| n=2 args |")[5], "2.63 (2.63 to 2.63)", "over native");
        assert_eq!(row("| n=2 args |")[7], "1.05 (1.05 to 1.05) |");
        assert_eq!(row("| n=2 args, defer off")[2], "0.05 (0.05 to 0.05)");
        assert_eq!(row("| n=1")[2], "0.80 (0.80 to 0.80)");
        assert_eq!(row("| floor: 2")[2], "0.40 (0.40 to 0.40)");
        assert_eq!(row("| native")[2], "");
    }
}
