//! `rcoe-sim`: runs seeds and prints those that fail with the command that replays them.

#![forbid(unsafe_code)]

#[cfg(not(feature = "shuttle"))]
fn main() -> std::process::ExitCode {
    cli::main()
}

#[cfg(feature = "shuttle")]
fn main() {
    println!("built for tests/schedules.rs; build without feature shuttle to simulate");
}

#[cfg(not(feature = "shuttle"))]
mod cli {
    use std::process::ExitCode;
    use std::time::Instant;

    use clap::Parser;
    use rcoe_core::Guards;
    use rcoe_sim::coupled;
    use rcoe_sim::random::{
        Failure, simulate, simulate_deferring, simulate_reading, simulate_reduced,
    };

    /// Simulates replicated runs, each a function of its seed.
    #[derive(Parser, Debug)]
    #[command(version)]
    struct Args {
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// How many seeds to run from there.
        #[arg(long, default_value_t = 1)]
        count: u64,
        /// Number of replicas; without it the seed decides.
        #[arg(long, value_parser = clap::value_parser!(u64).range(2..=8))]
        n: Option<u64>,
        /// Groups that have lost a replica and get it back, with one fault more.
        #[arg(long)]
        reduced: bool,
        /// Groups that defer effects.
        #[arg(long, conflicts_with_all = ["n", "reduced"])]
        deferred: bool,
        /// Groups that read a file, each replica by itself.
        #[arg(long, conflicts_with_all = ["n", "reduced", "deferred"])]
        reading: bool,
        /// Groups that are interrupted anywhere and agree on a point.
        #[arg(long, conflicts_with_all = ["reduced", "deferred", "reading"])]
        coupled: bool,
        /// Groups of three that are interrupted, of which one is hit amid an attempt to agree.
        #[arg(long, conflicts_with_all = ["n", "reduced", "deferred", "reading", "coupled"])]
        amid: bool,
        /// Print every step.
        #[arg(long)]
        trace: bool,
    }

    pub(crate) fn main() -> ExitCode {
        let args = Args::parse();
        let n = args.n.map(|n| usize::try_from(n).expect("at most 8"));
        let start = Instant::now();
        let (mut failures, mut steps, mut noticed) = (0u64, 0, 0u64);
        for seed in args.seed..args.seed.saturating_add(args.count) {
            let simulated = match args {
                Args { deferred: true, .. } => simulate_deferring(seed, Guards::ON, args.trace),
                Args { reading: true, .. } => simulate_reading(seed, Guards::ON, args.trace),
                Args { coupled: true, .. } => {
                    coupled::random::simulate(seed, n, Guards::ON, args.trace)
                        .map(Into::into)
                        .map_err(Into::into)
                }
                Args { amid: true, .. } => {
                    coupled::random::simulate_amid(seed, Guards::ON, args.trace)
                        .map(Into::into)
                        .map_err(Into::into)
                }
                Args { reduced: true, .. } => simulate_reduced(seed, n, Guards::ON, args.trace),
                _ => simulate(seed, n, Guards::ON, args.trace),
            };
            match simulated {
                Ok(summary) => {
                    steps += summary.steps;
                    noticed += u64::from(summary.noticed);
                }
                Err(failure) => {
                    failures += 1;
                    report(&args, seed, &failure);
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "seeds {}..{}: {failures} failed, {noticed} with a verdict or a stop, \
             {steps} steps, {seconds:.2} s",
            args.seed,
            args.seed.saturating_add(args.count)
        );
        if failures == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    fn report(args: &Args, seed: u64, failure: &Failure) {
        let n = args.n.map_or(String::new(), |n| format!(" --n {n}"));
        let kind = match args {
            Args { deferred: true, .. } => " --deferred",
            Args { reading: true, .. } => " --reading",
            Args { coupled: true, .. } => " --coupled",
            Args { amid: true, .. } => " --amid",
            Args { reduced: true, .. } => " --reduced",
            _ => "",
        };
        println!(
            "seed {seed} fails at step {}: {}",
            failure.step, failure.what
        );
        println!("  fault: {:?}", failure.fault);
        println!("  replay: cargo run -p rcoe-sim -- --seed {seed}{n}{kind} --trace");
    }
}
