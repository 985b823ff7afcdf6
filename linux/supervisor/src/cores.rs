//! Which replica runs on which CPU.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::{Doing, RunError};

/// The CPUs this process may use, in ascending order, as inherited.
///
/// # Errors
///
/// If the kernel does not tell.
pub fn allowed_cores() -> Result<Vec<u32>, RunError> {
    let set = sched_getaffinity(None).doing("reading the CPU affinity")?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .filter_map(|cpu| cpu.try_into().ok())
        .collect())
}

/// Parses a list like `0,2-3`; order is kept, duplicates are refused.
///
/// # Errors
///
/// A message that names the part which is no CPU number or range.
pub fn parse_core_list(text: &str) -> Result<Vec<u32>, String> {
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| -> Result<u32, String> {
            text.trim()
                .parse()
                .map_err(|_| format!("'{part}' is no CPU number or range like 2-3"))
        };
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("'{part}' counts down; write {last}-{first}"));
        }
        if last >= CpuSet::MAX_CPU.try_into().unwrap_or(u32::MAX) {
            return Err(format!("CPU {last} is beyond what Linux can have here"));
        }
        for core in first..=last {
            if cores.contains(&core) {
                return Err(format!("CPU {core} is listed twice"));
            }
            cores.push(core);
        }
    }
    Ok(cores)
}

/// The CPUs to use: those asked for, which must all be allowed, or all allowed ones.
///
/// # Errors
///
/// A message that names the CPU which is not allowed, and those that are.
pub fn choose_cores(wanted: Option<&[u32]>, allowed: &[u32]) -> Result<Vec<u32>, String> {
    let Some(wanted) = wanted else {
        return Ok(allowed.to_vec());
    };
    match wanted.iter().find(|core| !allowed.contains(core)) {
        Some(core) => Err(format!(
            "CPU {core} does not exist or is not allowed here; allowed: {}",
            format_core_list(allowed)
        )),
        None => Ok(wanted.to_vec()),
    }
}

/// The CPU of each replica: round robin over `cores`.
#[must_use]
pub fn assign_cores(replicas: usize, cores: &[u32]) -> Vec<u32> {
    cores.iter().copied().cycle().take(replicas).collect()
}

/// The CPUs to place replicas on, in order: those that nobody suspects, and only if they are fewer
/// than the replicas also the `suspects`, those with the shortest record first. Without suspects
/// the order stays.
#[must_use]
pub fn avoid(replicas: usize, cores: &[u32], suspects: &[u32]) -> Vec<u32> {
    let good = cores.iter().filter(|core| !suspects.contains(core));
    let mut chosen = good.copied().collect::<Vec<_>>();
    if chosen.len() < replicas {
        let rest = suspects.iter().filter(|core| cores.contains(core));
        chosen.extend(rest);
    }
    chosen
}

/// Binds a process to a CPU. That is a wish: one that has just ended needs none.
pub(crate) fn bind(pid: u32, core: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let (Some(_), Ok(core)) = (pid, usize::try_from(core)) {
        let mut set = CpuSet::new();
        set.set(core);
        let _ = sched_setaffinity(pid, &set);
    }
}

/// Which replicas change their CPU, and to which, so that those of `present` use the `wanted` ones:
/// as few as can be.
#[must_use]
pub(crate) fn moves(present: &[u32], wanted: &[u32]) -> Vec<(usize, u32)> {
    let mut free = wanted.to_vec();
    let mut movers = Vec::new();
    for (replica, core) in present.iter().enumerate() {
        match free.iter().position(|it| it == core) {
            Some(at) => drop(free.remove(at)),
            None => movers.push(replica),
        }
    }
    movers.into_iter().zip(free).collect()
}

/// Writes ascending CPU numbers as a list with ranges.
#[must_use]
pub fn format_core_list(cores: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &core in cores {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == core => *last = core,
            _ => ranges.push((core, core)),
        }
    }
    let texts = ranges.iter().map(|&(first, last)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    });
    texts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_parse_and_format() {
        assert_eq!(parse_core_list("0,2-4"), Ok(vec![0, 2, 3, 4]));
        assert_eq!(parse_core_list("3, 1"), Ok(vec![3, 1]));
        assert_eq!(format_core_list(&[0, 2, 3, 4, 7]), "0,2-4,7");
        assert_eq!(format_core_list(&[]), "");
    }

    #[test]
    fn bad_lists_name_the_part() {
        for (list, part) in [
            ("", "''"),
            ("a", "'a'"),
            ("1,,2", "''"),
            ("4-2", "2-4"),
            ("1,0-1", "CPU 1"),
            ("-1", "'-1'"),
            ("0-4294967295", "4294967295"),
            ("99999999999", "'99999999999'"),
        ] {
            let error = parse_core_list(list).expect_err(list);
            assert!(error.contains(part), "{list}: {error}");
        }
    }

    #[test]
    fn only_allowed_cores_are_chosen() {
        assert_eq!(choose_cores(None, &[0, 1]), Ok(vec![0, 1]));
        assert_eq!(choose_cores(Some(&[1]), &[0, 1]), Ok(vec![1]));
        let error = choose_cores(Some(&[5]), &[0, 1]).expect_err("not allowed");
        assert!(error.contains("CPU 5") && error.contains("0-1"), "{error}");
    }

    #[test]
    fn as_few_replicas_move_as_can_be() {
        assert_eq!(moves(&[0, 1, 2], &[2, 1, 0]), []);
        assert_eq!(moves(&[0, 1, 2], &[3, 1, 2]), [(0, 3)]);
        assert_eq!(moves(&[0, 1, 0], &[1, 0, 1]), [(2, 1)]);
        assert_eq!(moves(&[], &[]), []);
    }

    #[test]
    fn suspects_are_avoided_as_long_as_there_are_enough_others() {
        let cores = [0, 1, 2, 3];
        assert_eq!(avoid(3, &cores, &[]), cores);
        assert_eq!(avoid(3, &cores, &[1]), [0, 2, 3]);
        assert_eq!(avoid(3, &cores, &[9]), cores, "not here");
        assert_eq!(
            avoid(3, &cores, &[2, 1]),
            [0, 3, 2, 1],
            "the lesser one first"
        );
        assert_eq!(avoid(2, &cores, &[2, 1]), [0, 3]);
        assert_eq!(avoid(1, &[5, 4], &[4, 5]), [4, 5], "all are suspect");
        assert_eq!(assign_cores(3, &avoid(3, &[0, 1], &[0])), [1, 0, 1]);
    }

    #[test]
    fn replicas_go_round_the_cores() {
        assert_eq!(assign_cores(3, &[4, 6]), [4, 6, 4]);
    }
}
