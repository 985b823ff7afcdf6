//! Clients of the servers: `redis-benchmark` and `wrk`, and what they report.

use std::ffi::OsString;
use std::io::Read as _;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::configuration::NATIVE;
use crate::server::wait;
use crate::workshop::{Workshop, tool, words};

/// Requests of the first warm-up, for each in a pipeline.
const FIRST: u64 = 2_000;
/// Longest wait for a client's end: far more than any run is planned to take.
const PATIENCE: Duration = Duration::from_secs(300);

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// `redis-benchmark -c 50` with this command and so many requests in a pipeline.
    Redis {
        command: &'static str,
        pipeline: u64,
    },
    /// `wrk -c 32 -t 1 --latency`.
    Page,
}

/// What a client reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Report {
    /// Requests answered.
    pub(super) requests: f64,
    /// Requests a second.
    pub(super) throughput: f64,
    /// Half of the answers took at most so many milliseconds.
    pub(super) median_ms: f64,
    /// 99 % of the answers took at most so many milliseconds.
    pub(super) p99_ms: f64,
}

impl Load {
    /// The least amount for a warm-up. Amounts are requests of `redis-benchmark` and seconds of
    /// `wrk`, whole ones: that is what these take.
    pub(super) const fn first(self) -> u64 {
        match self {
            Self::Redis { pipeline, .. } => FIRST * pipeline,
            Self::Page => 1,
        }
    }

    /// The amount that takes so many seconds at this throughput.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rounded down, and never negative"
    )]
    pub(super) fn lasting(self, seconds: f64, throughput: f64) -> u64 {
        let amount = match self {
            Self::Redis { .. } => throughput * seconds,
            Self::Page => seconds.round(),
        };
        (amount as u64).max(1)
    }

    fn line(self, port: u16, amount: u64) -> Result<Vec<OsString>> {
        let (port, amount) = (port.to_string(), amount.to_string());
        let (program, package) = match self {
            Self::Redis { .. } => ("redis-benchmark", "redis-tools"),
            Self::Page => ("wrk", "wrk"),
        };
        let mut line = vec![tool(program, package)?.into_os_string()];
        match self {
            Self::Redis { command, pipeline } => {
                let pipeline = pipeline.to_string();
                line.extend(words(&["-p", &port, "-c", "50", "-t", command]));
                line.extend(words(&["-n", &amount, "-P", &pipeline, "--csv"]));
            }
            Self::Page => {
                let page = format!("http://127.0.0.1:{port}/");
                line.extend(words(&["-c", "32", "-t", "1", "--latency"]));
                line.extend(words(&["--timeout", "60", "-d", &amount, &page]));
            }
        }
        Ok(line)
    }
}

/// A running client, killed if dropped before its end.
pub(super) struct Client {
    child: Child,
    load: Load,
    amount: u64,
}

impl Client {
    /// Starts it on the server at this port.
    ///
    /// # Errors
    ///
    /// If the program is missing.
    pub(super) fn start(workshop: &Workshop, load: Load, port: u16, amount: u64) -> Result<Self> {
        let line = load.line(port, amount)?;
        let mut command = workshop.tethered(NATIVE, None, &line)?;
        let child = command.stdout(Stdio::piped()).spawn();
        Ok(Self {
            child: child.with_context(|| format!("cannot start {command:?}"))?,
            load,
            amount,
        })
    }

    /// Waits for its end, and reads what it says.
    ///
    /// # Errors
    ///
    /// If a request failed.
    pub(super) fn finish(mut self) -> Result<Report> {
        let status = wait(&mut self.child, PATIENCE).context("a client was waited for")?;
        let mut text = String::new();
        // A report is far smaller than a pipe, so nothing need be read before the end.
        let mut output = self.child.stdout.take().context("no output")?;
        output.read_to_string(&mut text)?;
        ensure!(status.success(), "the client ended with {status}: {text}");
        let report = match self.load {
            Load::Redis { .. } => of_redis(&text, self.amount),
            Load::Page => of_wrk(&text),
        };
        report.with_context(|| format!("not a report: {text}"))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // There is nobody left to tell of a failure.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// What `redis-benchmark --csv` says of one command and so many requests.
fn of_redis(text: &str, requests: u64) -> Result<Report> {
    let mut lines = text.lines().map(|line| line.split(','));
    let names = lines.next().context("no header")?;
    let values: Vec<&str> = lines.next().context("no values")?.collect();
    ensure!(lines.next().is_none(), "more than one command");
    let columns: Vec<(&str, &str)> = names.zip(values).collect();
    let column = |wanted: &str| -> Result<f64> {
        let found = columns
            .iter()
            .find(|(name, _)| name.trim_matches('"') == wanted);
        let (_, value) = found.with_context(|| format!("no {wanted}"))?;
        Ok(value.trim_matches('"').parse()?)
    };
    Ok(Report {
        requests: requests as f64,
        throughput: column("rps")?,
        median_ms: column("p50_latency_ms")?,
        p99_ms: column("p99_latency_ms")?,
    })
}

/// What `wrk --latency` says.
fn of_wrk(text: &str) -> Result<Report> {
    let lines = || text.lines().map(str::trim);
    for wrong in ["Socket errors:", "Non-2xx or 3xx responses:"] {
        if let Some(line) = lines().find(|line| line.starts_with(wrong)) {
            bail!("requests failed: {line}");
        }
    }
    let after = |begin: &str| {
        let found = lines().find_map(|line| line.strip_prefix(begin));
        found.map(str::trim).with_context(|| format!("no {begin}"))
    };
    let requests = lines().find_map(|line| Some(line.split_once(" requests in ")?.0));
    Ok(Report {
        requests: requests.context("no number of requests")?.parse()?,
        throughput: after("Requests/sec:")?.parse()?,
        median_ms: milliseconds(after("50%")?)?,
        p99_ms: milliseconds(after("99%")?)?,
    })
}

/// A time as `wrk` writes it: `1.25ms`.
fn milliseconds(text: &str) -> Result<f64> {
    const UNITS: [(&str, f64); 5] = [
        ("us", 1e-3),
        ("ms", 1.0),
        ("s", 1e3),
        ("m", 60e3),
        ("h", 3600e3),
    ];
    let digits = text.trim_end_matches(char::is_alphabetic);
    let unit = &text[digits.len()..];
    let found = UNITS.iter().find(|(name, _)| *name == unit);
    let (_, factor) = found.with_context(|| format!("unknown unit of {text}"))?;
    Ok(digits.parse::<f64>()? * factor)
}

#[cfg(test)]
mod tests {
    use super::{Load, Report, milliseconds, of_redis, of_wrk};

    const REDIS: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\
        \"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
        \"SET\",\"26702.27\",\"1.234\",\"0.176\",\"1.119\",\"2.415\",\"3.951\",\"6.831\"\n";
    const WRK: &str = "Running 3s test @ http://127.0.0.1:7392/\n  1 threads and 32 connections\n  \
        Thread Stats   Avg      Stdev     Max   +/- Stdev\n    \
        Latency     1.25ms    2.23ms  36.34ms   94.33%\n    \
        Req/Sec    44.67k     4.38k   52.20k    70.00%\n  Latency Distribution\n     \
        50%  631.00us\n     75%    0.92ms\n     90%    2.24ms\n     99%   11.56ms\n  \
        133442 requests in 3.00s, 207.43MB read\nRequests/sec:  44433.10\n\
        Transfer/sec:     69.07MB\n";

    #[test]
    fn the_report_of_redis_benchmark_is_read_by_the_names_of_its_columns() {
        let report = Report {
            requests: 20_000.0,
            throughput: 26_702.27,
            median_ms: 1.119,
            p99_ms: 3.951,
        };
        assert_eq!(of_redis(REDIS, 20_000).unwrap(), report);
        let two = format!("{REDIS}\"GET\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\"\n");
        for wrong in ["", &two, &REDIS.replace("rps", "rate")] {
            assert!(of_redis(wrong, 1).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_report_of_wrk_is_read() {
        let report = Report {
            requests: 133_442.0,
            throughput: 44_433.1,
            median_ms: 0.631,
            p99_ms: 11.56,
        };
        assert_eq!(of_wrk(WRK).unwrap(), report);
    }

    #[test]
    fn a_report_of_wrk_with_failed_requests_does_not_count() {
        for wrong in [
            "  Socket errors: connect 0, read 0, write 0, timeout 3\n",
            "  Non-2xx or 3xx responses: 7\n",
        ] {
            let error = of_wrk(&format!("{WRK}{wrong}")).unwrap_err();
            assert!(error.to_string().contains(wrong.trim()), "{error}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(milliseconds("250.00us").unwrap(), 0.25);
        assert_eq!(milliseconds("1.50s").unwrap(), 1500.0);
        assert_eq!(milliseconds("2.00m").unwrap(), 120_000.0);
        assert!(milliseconds("1.5").is_err() && milliseconds("1d").is_err());
    }

    #[test]
    fn amounts_are_requests_or_seconds() {
        let set = Load::Redis {
            command: "set",
            pipeline: 16,
        };
        assert_eq!((set.first(), set.lasting(1.5, 1000.0)), (32_000, 1500));
        assert_eq!(
            (Load::Page.first(), Load::Page.lasting(3.0, 1000.0)),
            (1, 3)
        );
    }
}
