//! Several processes.

use linux_raw_sys::errno::{EAGAIN, ECHILD, EDEADLK, ENOMEM, ENOSYS, ESRCH};
use linux_raw_sys::general as nr;

use super::threads::{Program, call, failed, last};
use super::{DATA, Errno, Turn, ask, with};
use crate::linux::tasks::PROCESSES;

const WORD: u64 = DATA + 0x100;
const STATUS: u64 = DATA + 0x108;

/// Process 2 makes another one; its number.
fn fork(process: Program<'_, '_>) -> u64 {
    ask(process, nr::__NR_fork, &[]).expect("there is room")
}

/// Process 2 waits for any child, which is another one's turn.
fn wait(process: Program<'_, '_>) {
    let words = [u64::MAX, STATUS, 0, 0];
    assert_eq!(call(process, 0, nr::__NR_wait4, &words), Turn::Other);
}

fn status(process: Program<'_, '_>) -> u64 {
    process.word(STATUS).unwrap() & 0xffff_ffff
}

#[test]
fn a_child_has_a_copy_of_all_memory_and_its_end_is_told() {
    with(|process, _| {
        process.write_words(WORD, &[5]).unwrap();
        assert_eq!(fork(process), 3);
        wait(process);
        assert_eq!(last(process), (1, 0));
        assert_eq!(call(process, 1, nr::__NR_getpid, &[]), Turn::Answer(3));
        assert_eq!(call(process, 1, nr::__NR_getppid, &[]), Turn::Answer(2));
        assert_eq!(process.word(WORD), Ok(5));
        process.write_words(WORD, &[9]).unwrap();
        assert_eq!(call(process, 1, nr::__NR_exit_group, &[7]), Turn::Other);
        assert_eq!(last(process), (0, 3));
        assert_eq!((process.word(WORD), status(process)), (Ok(5), 7 << 8));
        assert_eq!(
            ask(process, nr::__NR_wait4, &[3, 0, 0, 0]),
            Err(Errno(ECHILD))
        );
    });
}

#[test]
fn a_child_by_vfork_has_its_parents_memory_and_its_parent_wait() {
    with(|process, _| {
        assert_eq!(call(process, 0, nr::__NR_vfork, &[]), Turn::Other);
        assert_eq!(last(process), (1, 0));
        process.write_words(WORD, &[9]).unwrap();
        assert_eq!(call(process, 1, nr::__NR_exit_group, &[0]), Turn::Other);
        assert_eq!(last(process), (0, 3));
        assert_eq!(process.word(WORD), Ok(9));
    });
}

#[test]
fn there_are_so_many_processes_and_each_can_be_made_again() {
    with(|process, _| {
        let before = process.machine.mapped.len();
        for number in 3..1003 {
            assert_eq!(fork(process), number);
            wait(process);
            assert_eq!(call(process, 1, nr::__NR_exit_group, &[1]), Turn::Other);
            assert_eq!((last(process), status(process)), ((0, number), 1 << 8));
        }
        assert_eq!(process.machine.mapped.len(), before);
        // Those that have ended count until they are asked for.
        for _ in 1..PROCESSES {
            fork(process);
            assert_eq!(call(process, 0, nr::__NR_sched_yield, &[]), Turn::Other);
            assert_eq!(call(process, 1, nr::__NR_exit_group, &[1]), Turn::Other);
        }
        assert_eq!(process.machine.mapped.len(), before);
        assert_eq!(ask(process, nr::__NR_fork, &[]), Err(Errno(EAGAIN)));
        let words = [u64::MAX, 0, 0, 0];
        assert!(ask(process, nr::__NR_wait4, &words).is_ok());
        assert!(ask(process, nr::__NR_fork, &[]).is_ok());
    });
}

#[test]
fn what_a_child_cannot_have_is_given_back() {
    with(|process, _| {
        let error = loop {
            match ask(process, nr::__NR_fork, &[]) {
                Ok(child) => assert!(child < 3 + PROCESSES as u64),
                Err(error) => break error,
            }
        };
        assert_eq!(error, Errno(ENOMEM));
        let mapped = process.machine.mapped.len();
        assert_eq!(ask(process, nr::__NR_fork, &[]), Err(Errno(ENOMEM)));
        assert_eq!(process.machine.mapped.len(), mapped);
    });
}

#[test]
fn a_child_that_has_not_ended_is_told_apart_from_none() {
    with(|process, _| {
        let look = [u64::MAX, 0, nr::WNOHANG.into(), 0];
        assert_eq!(ask(process, nr::__NR_wait4, &look), Err(Errno(ECHILD)));
        fork(process);
        assert_eq!(ask(process, nr::__NR_wait4, &look), Ok(0));
        assert_eq!(ask(process, nr::__NR_kill, &[9, 0]), Err(Errno(ESRCH)));
        // A signal ends it, and the signal is its status.
        assert_eq!(ask(process, nr::__NR_kill, &[3, 9]), Ok(0));
        let words = [3, STATUS, 0, 0];
        assert_eq!(ask(process, nr::__NR_wait4, &words), Ok(3));
        assert_eq!(status(process), 9);
    });
}

#[test]
fn a_process_waits_for_the_lock_of_another_one() {
    with(|process, _| {
        let path = super::text(process, "/etc/text");
        let file = ask(process, nr::__NR_open, &[path, nr::O_RDWR.into()]).unwrap();
        fork(process);
        let [set, wait, tell] = [nr::F_SETLK, nr::F_SETLKW, nr::F_GETLK].map(u64::from);
        let lock = |process: Program<'_, '_>, kind: u32| {
            let words = [kind.into(), 2, 4, 0];
            process.write_words(WORD, &words).unwrap();
        };
        lock(process, nr::F_WRLCK);
        assert_eq!(ask(process, nr::__NR_fcntl, &[file, set, WORD]), Ok(0));
        assert_eq!(call(process, 0, nr::__NR_sched_yield, &[]), Turn::Other);
        assert_eq!(last(process), (1, 0));
        lock(process, nr::F_RDLCK);
        let call_of = |process: Program<'_, '_>, request: u64| {
            call(process, 1, nr::__NR_fcntl, &[file, request, WORD])
        };
        assert_eq!(call_of(process, set), Turn::Answer(failed(EAGAIN)));
        assert_eq!(call_of(process, tell), Turn::Answer(0));
        let told = [0, 1, 2, 3].map(|at| process.word(WORD + 8 * at).unwrap());
        assert_eq!(told, [nr::F_WRLCK.into(), 2, 4, 2]);
        lock(process, nr::F_RDLCK);
        assert_eq!(call_of(process, wait), Turn::Other);
        // It ends when the other one closes the file, which takes its locks away.
        assert_eq!(ask(process, nr::__NR_close, &[file]), Ok(0));
        assert_eq!(call(process, 0, nr::__NR_sched_yield, &[]), Turn::Other);
        assert_eq!(last(process), (1, 0));
        let held = call(process, 1, nr::__NR_flock, &[file, nr::LOCK_EX.into()]);
        assert_eq!(held, Turn::Answer(0));
    });
}

#[test]
fn processes_that_wait_for_one_another_are_told() {
    with(|process, _| {
        let path = super::text(process, "/etc/text");
        let file = ask(process, nr::__NR_open, &[path, nr::O_RDWR.into()]).unwrap();
        fork(process);
        let [set, wait] = [nr::F_SETLK, nr::F_SETLKW].map(u64::from);
        let lock = |process: Program<'_, '_>, at: u64| {
            process
                .write_words(WORD, &[nr::F_WRLCK.into(), at, 1, 0])
                .unwrap();
        };
        lock(process, 1);
        assert_eq!(ask(process, nr::__NR_fcntl, &[file, set, WORD]), Ok(0));
        assert_eq!(call(process, 0, nr::__NR_sched_yield, &[]), Turn::Other);
        lock(process, 2);
        let locked = call(process, 1, nr::__NR_fcntl, &[file, set, WORD]);
        assert_eq!(locked, Turn::Answer(0));
        lock(process, 1);
        let waits = call(process, 1, nr::__NR_fcntl, &[file, wait, WORD]);
        assert_eq!(waits, Turn::Other);
        lock(process, 2);
        let around = ask(process, nr::__NR_fcntl, &[file, wait, WORD]);
        assert_eq!(around, Err(Errno(EDEADLK)));
        // Who holds none has others wait for it no longer.
        lock(process, 3);
        assert_eq!(ask(process, nr::__NR_fcntl, &[file, wait, WORD]), Ok(0));
    });
}

#[test]
fn whatever_else_would_be_shared_is_refused_by_name() {
    with(|process, _| {
        // Descriptors, and memory without waiting.
        for flags in [nr::CLONE_FILES, nr::CLONE_VM] {
            let words = [u64::from(flags) | 17];
            let clone = call(process, 0, nr::__NR_clone, &words);
            assert_eq!(clone, Turn::Answer(failed(ENOSYS)));
        }
        assert!(process.machine.notes.contains("clone (56)"));
    });
}
