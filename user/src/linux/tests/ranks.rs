//! What a process may do, when it runs, and what it says of itself.

use linux_raw_sys::errno::ESRCH;

use super::*;
use crate::linux::signals::ENDED_BY;

/// Where answers go, and a place that no program has.
const TO: u64 = DATA + 0x400;
const NOWHERE: u64 = 8;

/// A negative number as it comes in a register.
const fn minus(number: u64) -> u64 {
    number.wrapping_neg()
}

fn invalid<T>() -> Result<T, Errno> {
    Err(Errno(EINVAL))
}

#[test]
fn the_superuser_is_told_of_itself_and_keeps_what_it_may() {
    with(|process, _| {
        process.write(TO, &[7; 12]).unwrap();
        let places = [TO, TO + 4, TO + 8];
        assert_eq!(ask(process, nr::__NR_getresuid, &places), Ok(0));
        let mut told = [1; 12];
        process.read(TO, &mut told).unwrap();
        assert_eq!(told, [0; 12]);
        let wrong = ask(process, nr::__NR_getresgid, &[TO, NOWHERE, TO]);
        assert_eq!(wrong, Err(Errno(EFAULT)));
        assert_eq!(ask(process, nr::__NR_setfsuid, &[5]), Ok(0));
        // Capabilities, by the latest version and by none.
        process.write_words(TO, &[0x2008_0522]).unwrap();
        let all = TO + 16;
        assert_eq!(ask(process, nr::__NR_capget, &[TO, all]), Ok(0));
        let words = [0, 8, 16].map(|at| process.word(all + at).unwrap());
        assert_eq!(words, [u64::MAX, 0x1ff << 32, 0x1ff]);
        assert_eq!(ask(process, nr::__NR_capset, &[TO, all]), Ok(0));
        process.write_words(all, &[0, 0, 0]).unwrap();
        assert_eq!(ask(process, nr::__NR_capset, &[TO, all]), Err(Errno(EPERM)));
        process.write_words(TO, &[1]).unwrap();
        assert_eq!(ask(process, nr::__NR_capget, &[TO, all]), invalid());
        assert_eq!(process.word(TO), Ok(0x2008_0522));
    });
}

#[test]
fn how_nice_a_process_is_is_kept_and_a_child_has_it() {
    with(|process, _| {
        let rank = |process: &mut Process<'_, Mock>, which: u64, whom: u64| {
            ask(process, nr::__NR_getpriority, &[which, whom])
        };
        assert_eq!(rank(process, 0, 0), Ok(20));
        assert_eq!(ask(process, nr::__NR_setpriority, &[0, 0, 5]), Ok(0));
        let child = ask(process, nr::__NR_fork, &[]).unwrap();
        assert_eq!(rank(process, 0, child), Ok(15));
        assert_eq!(
            ask(process, nr::__NR_setpriority, &[0, child, minus(30)]),
            Ok(0)
        );
        // Of a group and of a user the least nice counts.
        for (which, whom, found) in [(0, 0, 15), (0, child, 40), (1, 0, 40), (2, 0, 40)] {
            assert_eq!(rank(process, which, whom), Ok(found), "{which} {whom}");
        }
        assert_eq!(rank(process, 3, 0), invalid());
        for (which, whom) in [(0, 99), (1, 99), (2, 1)] {
            assert_eq!(rank(process, which, whom), Err(Errno(ESRCH)));
        }
    });
}

#[test]
fn there_is_one_manner_of_taking_turns() {
    with(|process, _| {
        let (usual, round, batch) = (0, 2, 3);
        process.write_words(TO, &[0]).unwrap();
        let set = |process: &mut Process<'_, Mock>, manner: u64, priority: u64| {
            process.write_words(TO, &[priority]).unwrap();
            ask(process, nr::__NR_sched_setscheduler, &[0, manner, TO])
        };
        assert_eq!(set(process, usual, 0), Ok(0));
        assert_eq!(set(process, usual, 1), invalid());
        assert_eq!(set(process, round, 0), invalid());
        assert_eq!(set(process, minus(1), 0), invalid());
        for (manner, priority) in [(round, 99), (batch, 0)] {
            assert_eq!(set(process, manner, priority), Err(Errno(EPERM)));
        }
        assert!(process.machine.notes.contains("SCHED_OTHER"));
        assert_eq!(ask(process, nr::__NR_sched_getscheduler, &[0]), Ok(0));
        let of = |process: &mut Process<'_, Mock>, whom: u64| {
            ask(process, nr::__NR_sched_getscheduler, &[whom])
        };
        assert_eq!(of(process, minus(1)), invalid());
        assert_eq!(of(process, 99), Err(Errno(ESRCH)));
        assert_eq!(ask(process, nr::__NR_sched_getparam, &[0, TO]), Ok(0));
        assert_eq!(ask(process, nr::__NR_sched_getparam, &[0, 0]), invalid());
        for (manner, bounds) in [(1, [1, 99]), (2, [1, 99]), (0, [0, 0]), (5, [0, 0])] {
            let least = ask(process, nr::__NR_sched_get_priority_min, &[manner]);
            let most = ask(process, nr::__NR_sched_get_priority_max, &[manner]);
            assert_eq!([least, most], bounds.map(Ok));
        }
        assert_eq!(
            ask(process, nr::__NR_sched_get_priority_min, &[9]),
            invalid()
        );
        assert_eq!(ask(process, nr::__NR_getcpu, &[TO, 0, 0]), Ok(0));
        assert_eq!(process.word(TO), Ok(0));
    });
}

#[test]
fn what_a_process_says_of_itself_is_told_again() {
    with(|process, _| {
        let say =
            |process: &mut Process<'_, Mock>, words: &[u64]| ask(process, nr::__NR_prctl, words);
        let name = text(process, "a name that is too long");
        assert_eq!(say(process, &[15, name]), Ok(0));
        assert_eq!(say(process, &[16, TO]), Ok(0));
        let mut told = [1; 16];
        process.read(TO, &mut told).unwrap();
        assert_eq!(&told, b"a name that is \0");
        for (set, get, before) in [(4, 3, 1), (8, 7, 0)] {
            assert_eq!(say(process, &[get]), Ok(before));
            assert_eq!(say(process, &[set, 1 - before]), Ok(0));
            assert_eq!(say(process, &[get]), Ok(1 - before));
            assert_eq!(say(process, &[set, 2]), invalid());
        }
        assert_eq!(say(process, &[38, 0]), invalid());
        assert_eq!(say(process, &[38, 1, 0, 0, 1]), invalid());
        assert_eq!(say(process, &[38, 1]), Ok(0));
        assert_eq!(say(process, &[39]), Ok(1));
        assert_eq!(say(process, &[23, 40]), Ok(1));
        assert_eq!(say(process, &[23, 41]), invalid());
        assert_eq!(say(process, &[1, 65]), invalid());
        assert!(process.machine.notes.is_empty());
        assert_eq!(say(process, &[999]), invalid());
        assert!(process.machine.notes.contains("request 999 of prctl"));
        let like = |process: &mut Process<'_, Mock>, like: u64| {
            ask(process, nr::__NR_personality, &[like])
        };
        assert_eq!(like(process, 0x4_0000), Ok(0));
        assert_eq!(like(process, 0xffff_ffff), Ok(0x4_0000));
        assert_eq!(like(process, 8), invalid());
    });
}

#[test]
fn a_child_is_told_of_the_end_of_its_parent_if_it_wants_that() {
    const USR1: u64 = 10;
    with(|process, _| {
        let parent = ask(process, nr::__NR_fork, &[]).unwrap();
        let place = process.process_of(parent).unwrap();
        process.enter(place);
        process.task.manner.death = 9;
        let mut numbers = [0; 2];
        for number in &mut numbers {
            process.of(place, |it| {
                let next = it.call(nr::__NR_fork.into(), [0; 6]);
                let Next::Answer(Ok(child)) = next else {
                    panic!("{next:?}");
                };
                *number = child;
            });
        }
        let [first, second] = numbers.map(|it| process.process_of(it).unwrap());
        // What is wanted is not inherited.
        assert_eq!(process.task.all()[first].manner.death, 0);
        process.task.at(second).manner.death = USR1;
        process.enter(place);
        process.end_process(0);
        let ended = |at: usize| process.task.all()[at].ended;
        // By itself the signal ends a process.
        assert_eq!([first, second].map(ended), [None, Some(ENDED_BY + USR1)]);
    });
}
