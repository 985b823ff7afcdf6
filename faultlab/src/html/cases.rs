//! Injections of both spheres as cases of one kind.

use super::Section;
use super::section::{Case, section};
use crate::journal::{self, Record};
use crate::report::{describe, hit_replica};
use crate::system;

/// A campaign of flips in processes.
pub(super) fn of_processes(header: &journal::Header, records: &[Record]) -> Section {
    let campaign = &header.campaign;
    let misses: u64 = records.iter().map(|record| u64::from(record.misses)).sum();
    let title = match campaign.replicas {
        0 => format!("Bare programs: {}", campaign.programs),
        count => format!("{count} replicas: {}", campaign.programs),
    };
    let facts = vec![
        ("seed", campaign.seed.to_string()),
        ("compared", campaign.compare.clone()),
        ("on a fault", campaign.on_fault.clone()),
        ("timeout", campaign.timeout.clone()),
        (
            "tick",
            campaign.tick.clone().unwrap_or_else(|| "off".into()),
        ),
        ("targets", campaign.targets.clone()),
        ("when", format!("{:?}", campaign.when).to_lowercase()),
        ("runs without a flip", misses.to_string()),
        ("commit", header.commit.clone()),
        ("machine", header.machine.clone()),
    ];
    let cases: Vec<_> = records.iter().map(process_case).collect();
    section(title, facts, campaign.replicas, &cases)
}

fn process_case(record: &Record) -> Case<'_> {
    let hit = record.hit.as_ref();
    let flips = hit.map(|_| (record.plan.target.to_string(), &record.verdict));
    Case {
        name: format!("{}.{}", record.plan.index, record.plan.attempt),
        program: &record.name,
        replica: hit_replica(record),
        core: record.core,
        charged: record.charged,
        named: record.named,
        flips: flips.into_iter().collect(),
        verdict: &record.verdict,
        place: hit.map(describe).unwrap_or_default(),
        detail: joined(&record.detail, &record.evidence),
        detected_us: record.detected_us,
        after_us: Some(record.after_us),
        wall_us: record.wall_us,
        leftovers: record.leftovers,
    }
}

/// A campaign against machines.
pub(super) fn of_machines(header: &system::Header, records: &[system::Record]) -> Section {
    let facts = vec![
        ("seed", header.seed.to_string()),
        ("compared", header.compare.clone()),
        ("timeout", header.timeout.clone()),
        ("flips in a machine", header.flips.to_string()),
        ("machines", records.len().to_string()),
        ("commit", header.commit.clone()),
        ("machine", header.machine.clone()),
    ];
    let cases: Vec<_> = records.iter().map(machine_case).collect();
    let title = format!("System sphere, {} replicas", header.replicas);
    section(title, facts, header.replicas, &cases)
}

fn machine_case(record: &system::Record) -> Case<'_> {
    let last = record.hits.len().wrapping_sub(1);
    let flips = record.hits.iter().enumerate().map(|(place, hit)| {
        let verdict = if place == last {
            &record.verdict
        } else {
            &crate::taxonomy::Verdict::Masked
        };
        (hit.target.to_string(), verdict)
    });
    Case {
        name: record.index.to_string(),
        program: &record.name,
        replica: Some(record.victim as u64),
        core: None,
        charged: None,
        named: record.named,
        flips: flips.collect(),
        verdict: &record.verdict,
        place: record.hits.last().map(last_flip).unwrap_or_default(),
        detail: record.detail.clone(),
        detected_us: None,
        after_us: None,
        wall_us: record.wall_us,
        leftovers: 0,
    }
}

fn last_flip(hit: &system::Hit) -> String {
    let (bit, target, place) = (hit.bit, hit.target, &hit.place);
    format!("last: bit {bit} of {target} {place} at ip {:#x}", hit.ip)
}

fn joined(detail: &str, evidence: &str) -> String {
    let parts = [detail, evidence];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("; ")
}
