//! Memory that processes share.

use linux_raw_sys::errno::{EACCES, EFAULT, EINVAL, ENOMEM, ETIMEDOUT};
use linux_raw_sys::general as nr;

use super::machine_uses;
use super::threads::{Program, call, failed, last};
use super::{Answer, BOTH, DATA, Errno, Turn, ask, map, with};
use crate::linux::machine::PAGE;

const STATUS: u64 = DATA + 0x108;
const TIME: u64 = DATA + 0x110;
const WAIT: u64 = nr::FUTEX_WAIT as u64;
const WAKE: u64 = nr::FUTEX_WAKE as u64;
const PRIVATE: u64 = nr::FUTEX_PRIVATE_FLAG as u64;

fn share(process: Program<'_, '_>, pages: u64, protection: u32) -> Answer {
    let flags = (nr::MAP_SHARED | nr::MAP_ANONYMOUS).into();
    let words = [0, pages * PAGE, protection.into(), flags];
    ask(process, nr::__NR_mmap, &words)
}

/// Process 2 makes another one, which has its turn.
fn fork(process: Program<'_, '_>) {
    assert_eq!(ask(process, nr::__NR_fork, &[]), Ok(3));
    turn(process, 0);
    assert_eq!(last(process), (1, 0));
}

/// Another process has its turn.
fn turn(process: Program<'_, '_>, of: usize) {
    assert_eq!(call(process, of, nr::__NR_sched_yield, &[]), Turn::Other);
}

/// The child ends, and its parent asks for it.
fn end(process: Program<'_, '_>) {
    assert_eq!(call(process, 1, nr::__NR_exit_group, &[0]), Turn::Other);
    let words = [u64::MAX, STATUS, 0, 0];
    assert_eq!(ask(process, nr::__NR_wait4, &words), Ok(3));
}

#[test]
fn what_one_process_writes_the_other_one_reads() {
    with(|process, _| {
        let before = machine_uses(process);
        let shared = share(process, 2, BOTH).unwrap();
        let own = map(process, PAGE, BOTH).unwrap();
        process.write_words(shared, &[1]).unwrap();
        fork(process);
        assert_eq!(process.word(shared), Ok(1));
        process.write_words(shared + PAGE, &[2]).unwrap();
        process.write_words(own, &[3]).unwrap();
        turn(process, 1);
        assert_eq!(
            [shared, shared + PAGE, own].map(|at| process.word(at)),
            [Ok(1), Ok(2), Ok(0)]
        );
        // One may do without it, and the other one has it yet.
        let words = [shared, PAGE];
        assert_eq!(ask(process, nr::__NR_munmap, &words), Ok(0));
        assert_eq!(process.word(shared), Err(Errno(EFAULT)));
        turn(process, 0);
        assert_eq!(process.word(shared), Ok(1));
        end(process);
        assert_eq!(process.word(shared + PAGE), Ok(2));
        let words = [shared, 2 * PAGE];
        assert_eq!(ask(process, nr::__NR_munmap, &words), Ok(0));
        assert_eq!(ask(process, nr::__NR_munmap, &[own, PAGE]), Ok(0));
        assert_eq!(machine_uses(process), before);
    });
}

#[test]
fn each_process_has_rights_of_its_own_to_what_is_shared() {
    with(|process, _| {
        let shared = share(process, 1, nr::PROT_NONE).unwrap();
        let protect = |process: Program<'_, '_>, thread: usize, protection: u32| {
            let words = [shared, PAGE, protection.into()];
            call(process, thread, nr::__NR_mprotect, &words)
        };
        assert_eq!(process.word(shared), Err(Errno(EFAULT)));
        fork(process);
        assert_eq!(protect(process, 1, BOTH), Turn::Answer(0));
        process.write_words(shared, &[7]).unwrap();
        turn(process, 1);
        assert_eq!(process.word(shared), Err(Errno(EFAULT)));
        assert_eq!(protect(process, 0, nr::PROT_READ), Turn::Answer(0));
        assert_eq!(process.word(shared), Ok(7));
        assert_eq!(process.write_words(shared, &[8]), Err(Errno(EFAULT)));
        let code = protect(process, 0, nr::PROT_READ | nr::PROT_EXEC);
        assert_ne!(code, Turn::Answer(0));
    });
}

#[test]
fn what_is_given_up_by_one_stays_and_what_is_punched_is_zero_for_all() {
    with(|process, _| {
        let shared = share(process, 1, BOTH).unwrap();
        let own = map(process, PAGE, BOTH).unwrap();
        process.write_words(shared, &[7]).unwrap();
        fork(process);
        let advise = |process: Program<'_, '_>, at: u64, advice: u32| {
            call(process, 1, nr::__NR_madvise, &[at, PAGE, advice.into()])
        };
        assert_eq!(advise(process, shared, nr::MADV_DONTNEED), Turn::Answer(0));
        assert_eq!(process.word(shared), Ok(7));
        assert_eq!(
            advise(process, own, nr::MADV_REMOVE),
            Turn::Answer(failed(EINVAL))
        );
        assert_eq!(advise(process, shared, nr::MADV_REMOVE), Turn::Answer(0));
        turn(process, 1);
        assert_eq!(process.word(shared), Ok(0));
        let words = [shared, PAGE, nr::PROT_READ.into()];
        assert_eq!(ask(process, nr::__NR_mprotect, &words), Ok(0));
        let words = [shared, PAGE, nr::MADV_REMOVE.into()];
        assert_eq!(ask(process, nr::__NR_madvise, &words), Err(Errno(EACCES)));
    });
}

#[test]
fn what_is_shared_becomes_shorter_and_not_longer() {
    with(|process, _| {
        let before = machine_uses(process);
        let shared = share(process, 2, BOTH).unwrap();
        let remap = |process: Program<'_, '_>, from: u64, to: u64| {
            let words = [shared, from * PAGE, to * PAGE, nr::MREMAP_MAYMOVE.into()];
            ask(process, nr::__NR_mremap, &words)
        };
        assert_eq!(remap(process, 2, 3), Err(Errno(ENOMEM)));
        assert!(process.machine.notes.contains("mremap"));
        assert_eq!(remap(process, 2, 1), Ok(shared));
        assert_eq!(process.word(shared + PAGE), Err(Errno(EFAULT)));
        assert_eq!(ask(process, nr::__NR_munmap, &[shared, PAGE]), Ok(0));
        // More than there is: all or nothing.
        assert_eq!(
            share(process, super::FRAMES as u64, BOTH),
            Err(Errno(ENOMEM))
        );
        assert!(process.machine.notes.contains("share"));
        assert_eq!(machine_uses(process), before);
    });
}

#[test]
fn a_process_wakes_another_one_at_a_word_that_both_have() {
    with(|process, _| {
        let shared = share(process, 1, BOTH).unwrap();
        let own = map(process, PAGE, BOTH).unwrap();
        fork(process);
        let wake = |process: Program<'_, '_>, at: u64, how: u64| {
            call(process, 1, nr::__NR_futex, &[at, WAKE | how, 9])
        };
        turn(process, 1);
        let wait = [shared + 8, WAIT, 0, 0];
        assert_eq!(call(process, 0, nr::__NR_futex, &wait), Turn::Other);
        // Another word, or the same one for one process only, is not meant.
        assert_eq!(wake(process, shared + 4, 0), Turn::Answer(0));
        assert_eq!(wake(process, shared + 8, PRIVATE), Turn::Answer(0));
        assert_eq!(wake(process, shared + 8, 0), Turn::Answer(1));
        turn(process, 1);
        assert_eq!(last(process), (0, 0));
        // Whoever moves those who wait does so among processes too.
        assert_eq!(call(process, 0, nr::__NR_futex, &wait), Turn::Other);
        let requeue = [shared + 8, nr::FUTEX_REQUEUE.into(), 0, 1, shared + 64];
        let moved = call(process, 1, nr::__NR_futex, &requeue);
        assert_eq!(moved, Turn::Answer(1));
        assert_eq!(wake(process, shared + 8, 0), Turn::Answer(0));
        assert_eq!(wake(process, shared + 64, 0), Turn::Answer(1));
        turn(process, 1);
        // A word of one's own is nobody else's, though it has the same address.
        process.write_words(TIME, &[0, 1000]).unwrap();
        let wait = [own, WAIT, 0, TIME];
        let waits = call(process, 0, nr::__NR_futex, &wait);
        assert_eq!(waits, Turn::Other);
        assert_eq!(wake(process, own, 0), Turn::Answer(0));
        process.machine.now += 2000;
        turn(process, 1);
        assert_eq!(last(process), (0, failed(ETIMEDOUT)));
    });
}

#[test]
fn locks_of_a_process_that_ends_are_told_to_those_who_share_them() {
    with(|process, _| {
        let shared = share(process, 1, BOTH).unwrap();
        fork(process);
        // A list of one lock, which the child holds while its parent waits.
        let (head, lock) = (shared, shared + 64);
        process.write_words(head, &[lock, 16, 0]).unwrap();
        process.write_words(lock, &[head]).unwrap();
        let held = 3 | nr::FUTEX_WAITERS;
        process.write(lock + 16, &held.to_le_bytes()).unwrap();
        let list = [head, 24];
        let set = call(process, 1, nr::__NR_set_robust_list, &list);
        assert_eq!(set, Turn::Answer(0));
        turn(process, 1);
        let wait = [lock + 16, WAIT, held.into(), 0];
        assert_eq!(call(process, 0, nr::__NR_futex, &wait), Turn::Other);
        assert_eq!(call(process, 1, nr::__NR_exit_group, &[0]), Turn::Other);
        assert_eq!(last(process), (0, 0));
        let told = process.word(lock + 16).unwrap() & 0xffff_ffff;
        assert_eq!(told, (nr::FUTEX_WAITERS | nr::FUTEX_OWNER_DIED).into());
    });
}
