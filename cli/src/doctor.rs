//! `rcoe doctor`: what this machine offers, and what follows.

use std::fs;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use rcoe_linux_sys::host::{Answer, Probe, exact_branches, probe};
use rcoe_supervisor::{allowed_cores, format_core_list};
use serde::Serialize;

use crate::args::DoctorArgs;

/// One line of the diagnosis.
#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    answer: &'static str,
    detail: String,
    consequence: &'static str,
    /// Whether nothing works without it.
    required: bool,
}

/// The whole diagnosis.
#[derive(Debug, Serialize)]
struct Diagnosis {
    version: &'static str,
    usable: bool,
    findings: Vec<Finding>,
}

/// Examines the machine; the exit status is 1 if programs cannot be run as replicas.
///
/// # Errors
///
/// If a probe cannot be made or the result cannot be written.
pub(crate) fn execute(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let mut findings = vec![kernel(), cores()?, memory()];
    for (question, texts) in QUESTIONS {
        findings.push(ask(question, texts)?);
    }
    findings.push(branches());
    findings.push(virtualisation());
    let usable = findings
        .iter()
        .all(|finding| !finding.required || finding.answer != "no");
    let diagnosis = Diagnosis {
        version: env!("CARGO_PKG_VERSION"),
        usable,
        findings,
    };
    print(&diagnosis, args.json).context("writing the diagnosis")?;
    Ok(ExitCode::from(u8::from(!usable)))
}

/// Name, consequence if present, consequence if absent, word for absent, required.
type Texts = (&'static str, &'static str, &'static str, &'static str, bool);

const QUESTIONS: [(Probe, Texts); 11] = [
    (
        Probe::SyscallUserDispatch,
        (
            "syscall user dispatch",
            "system calls of unmodified programs are intercepted",
            "programs cannot be run as replicas: use Linux 5.11 or later on \
             x86-64 with CONFIG_GENERIC_ENTRY",
            "no",
            true,
        ),
    ),
    (
        Probe::CpuidFaulting,
        (
            "CPUID faulting",
            "every cpuid instruction is trapped and answered alike",
            "cpuid and rdrand instructions are rewritten when code is loaded; hidden ones \
             are not caught",
            "limited",
            false,
        ),
    ),
    (
        Probe::TscTrapping,
        (
            "TSC trapping",
            "rdtsc and rdtscp are trapped and answered alike",
            "programs that read the time stamp counter will diverge, which stops the run",
            "no",
            false,
        ),
    ),
    (
        Probe::Rdrand,
        (
            "RDRAND",
            "hidden from programs; one that uses it unasked diverges, which is caught",
            "nothing to hide",
            "no",
            false,
        ),
    ),
    (
        Probe::FixedAddresses,
        (
            "fixed addresses",
            "a program's addresses are the same in each run",
            "addresses are alike in all replicas, and others in the next run",
            "limited",
            false,
        ),
    ),
    (
        Probe::PageZero,
        (
            "page 0 mappable",
            "call sites without room for a jump can be rewritten too",
            "such call sites stay on dispatch, which costs more a call",
            "no",
            false,
        ),
    ),
    (
        Probe::IoUring,
        (
            "io_uring",
            "effects can be recorded exactly once across the loss of the primary",
            "a primary lost inside an outside effect means fail-stop",
            "limited",
            false,
        ),
    ),
    (
        Probe::RestartableSequences,
        (
            "restartable sequences",
            "a primary that loses its CPU before an effect checks again what goes out",
            "what goes out is checked again before every effect, which costs time",
            "limited",
            false,
        ),
    ),
    (
        Probe::Timers,
        (
            "timers",
            "replicas that compute can be called away, so that threads and signals have their turn",
            "threads and signals wait for the next system call of a thread that computes, as with \
             --slice off; the host, or a filter of calls, forbids timer_create",
            "limited",
            false,
        ),
    ),
    (
        Probe::WriteProtection,
        (
            "write protection",
            "userfaultfd can tell which pages were written; replicas compare all pages anyway",
            "nothing is missing: replicas compare all pages",
            "no",
            false,
        ),
    ),
    (
        Probe::SoftDirty,
        (
            "soft-dirty bits",
            "they can tell which pages were written; replicas compare all pages anyway",
            "nothing is missing: replicas compare all pages",
            "no",
            false,
        ),
    ),
];

fn ask(question: Probe, texts: Texts) -> anyhow::Result<Finding> {
    let (name, present, absent, word, required) = texts;
    let answer = probe(question).with_context(|| format!("probing {name}"))?;
    Ok(match answer {
        Answer::Yes => Finding {
            name,
            answer: "yes",
            detail: String::new(),
            consequence: present,
            required,
        },
        Answer::No(errno) => {
            let detail = if errno == 0 {
                String::new()
            } else {
                reason(errno)
            };
            Finding {
                name,
                answer: word,
                detail,
                consequence: absent,
                required,
            }
        }
    })
}

/// The kernel's words for an errno, without Rust's "(os error N)".
fn reason(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os").next().unwrap_or_default().to_owned()
}

fn kernel() -> Finding {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Finding {
        name: "kernel",
        answer: "yes",
        detail: format!("Linux {} {}", release.trim(), std::env::consts::ARCH),
        consequence: "what it can do is probed below",
        required: false,
    }
}

fn cores() -> anyhow::Result<Finding> {
    let cores = allowed_cores()?;
    let (answer, consequence) = match cores.len() {
        0 | 1 => (
            "limited",
            "replicas share one CPU: a permanent fault of it hits all alike",
        ),
        2 => (
            "limited",
            "two replicas by default: faults are detected and stop the run; -n 3 shares CPUs",
        ),
        _ => ("yes", "three replicas by default: single faults are masked"),
    };
    let detail = format!("{} allowed: {}", cores.len(), format_core_list(&cores));
    Ok(Finding {
        name: "CPUs",
        answer,
        detail,
        consequence,
        required: false,
    })
}

fn memory() -> Finding {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    Finding {
        name: "memory",
        answer: "yes",
        detail: kilobytes.map_or_else(String::new, |kb| format!("{} MiB available", kb / 1024)),
        consequence: "each replica has its own copy of what the program writes",
        required: false,
    }
}

/// A counter that is not exact is none.
fn branches() -> Finding {
    let (answer, detail, consequence) = match exact_branches() {
        Ok(event) => (
            "yes",
            format!("event {:#x}", event.event),
            "with --tick --places counter replicas that differ in a tight loop know it sooner",
        ),
        Err(why) => (
            "no",
            why,
            "with --tick nothing is counted in tight loops; --places counter is refused",
        ),
    };
    Finding {
        name: "branch counter",
        answer,
        detail,
        consequence,
        required: false,
    }
}

fn virtualisation() -> Finding {
    let (answer, detail, consequence) = match rcoe_system::kvm() {
        Ok(()) => (
            "yes",
            String::new(),
            "--sphere system --accel kvm has the processor run machines",
        ),
        Err(why) => (
            "no",
            why,
            "machines of the system sphere are emulated; --accel kvm is refused",
        ),
    };
    Finding {
        name: "KVM",
        answer,
        detail,
        consequence,
        required: false,
    }
}

fn print(diagnosis: &Diagnosis, json: bool) -> std::io::Result<()> {
    let mut out = anstream::stdout();
    if json {
        return writeln!(out, "{}", serde_json::to_string_pretty(diagnosis)?);
    }
    for finding in &diagnosis.findings {
        let detail = match finding.detail.as_str() {
            "" => String::new(),
            detail => format!("{detail}; "),
        };
        writeln!(
            out,
            "{:<22} {:<8} {detail}{}",
            finding.name, finding.answer, finding.consequence
        )?;
    }
    let verdict = if diagnosis.usable { "can" } else { "CANNOT" };
    writeln!(
        out,
        "\nPrograms {verdict} be run as replicas on this machine."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_becomes_a_line() {
        for (question, texts) in QUESTIONS {
            let finding = ask(question, texts).expect("probed");
            assert!(["yes", "no", "limited"].contains(&finding.answer));
            assert!(!finding.consequence.is_empty());
        }
    }
}
