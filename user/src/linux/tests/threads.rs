//! Programs of several threads.

use linux_raw_sys::errno::{E2BIG, EAGAIN, ENOSYS, ETIMEDOUT};
use linux_raw_sys::general as nr;

use super::{CALL_WORDS, DATA, Errno, Mock, Process, Turn, ask, with};

pub(super) type Program<'p, 'a> = &'p mut Process<'a, Mock>;

const WORD: u64 = DATA + 0x100;
const OTHER: u64 = DATA + 0x104;
/// What libraries ask for when they make a thread.
const FLAGS: u64 = 0x7d_0f00;
const WAIT: u64 = (nr::FUTEX_WAIT | nr::FUTEX_PRIVATE_FLAG) as u64;
const WAKE: u64 = (nr::FUTEX_WAKE | nr::FUTEX_PRIVATE_FLAG) as u64;

pub(super) fn call(process: Program<'_, '_>, thread: usize, call: u32, words: &[u64]) -> Turn {
    let mut all = [0; 6];
    all[..words.len()].copy_from_slice(words);
    let registers = core::array::from_fn(|index| 100 * thread as u64 + index as u64);
    process.called(thread, call.into(), all, &registers)
}

/// Another thread, whose end is told at this place; its number.
pub(super) fn begin(process: Program<'_, '_>, place: u64) -> u64 {
    let words = [FLAGS, 0x7000_0000, DATA, place, 0x1234];
    let Turn::Answer(number) = call(process, 0, nr::__NR_clone, &words) else {
        panic!("its maker goes on");
    };
    number
}

/// The thread that went on last, and the answer that it got.
pub(super) fn last(process: Program<'_, '_>) -> (usize, u64) {
    let (thread, registers) = process.machine.gone.last().unwrap();
    (*thread, registers[0])
}

pub(super) const fn failed(error: u32) -> u64 {
    (error as u64).wrapping_neg()
}

#[test]
fn a_thread_begins_as_its_maker_says() {
    with(|process, _| {
        let number = begin(process, WORD);
        assert_eq!(number, 3);
        assert_eq!(process.word(DATA).unwrap() & 0xffff_ffff, 3);
        assert_eq!(process.machine.made, [(1, 0)]);
        assert_eq!(process.machine.pointers[&1], [0x1234, 0]);
        // It has its turn when its maker waits.
        assert_eq!(call(process, 0, nr::__NR_sched_yield, &[]), Turn::Other);
        let (thread, registers) = process.machine.gone.last().unwrap();
        assert_eq!(*thread, 1);
        assert_eq!(
            (registers[0], registers[17], registers[3]),
            (0, 0x7000_0000, 3)
        );
        assert_eq!(call(process, 1, nr::__NR_gettid, &[]), Turn::Answer(3));
        assert_eq!(call(process, 1, nr::__NR_getpid, &[]), Turn::Answer(2));
        // One alone ends without the others, and what its maker asked for is told.
        process.write(WORD, &[9]).unwrap();
        assert_eq!(call(process, 1, nr::__NR_exit, &[5]), Turn::Other);
        assert_eq!(last(process), (0, 0));
        assert_eq!(process.word(WORD).unwrap() & 0xffff_ffff, 0);
        assert_eq!(call(process, 0, nr::__NR_exit, &[6]), Turn::End(6));
    });
}

#[test]
fn a_thread_begins_as_a_record_says() {
    with(|process, _| {
        process
            .write_words(WORD, &[FLAGS, 0, OTHER, DATA, 0, 0x6000_0000, 0x1000, 8])
            .unwrap();
        // What Linux does not know has to be zero, and so has what is not carried.
        for (at, why) in [(88, E2BIG), (64, ENOSYS)] {
            process.write(WORD + at, &[1]).unwrap();
            let wrong = ask(process, nr::__NR_clone3, &[WORD, 96]);
            assert_eq!(wrong, Err(Errno(why)));
            process.write(WORD + at, &[0]).unwrap();
        }
        let wrong = ask(process, nr::__NR_clone3, &[WORD, 5000]);
        assert_eq!(wrong, Err(Errno(E2BIG)));
        assert_eq!(ask(process, nr::__NR_clone3, &[WORD, 88]), Ok(3));
        assert_eq!(call(process, 0, nr::__NR_sched_yield, &[]), Turn::Other);
        let (_, registers) = process.machine.gone.last().unwrap();
        assert_eq!(registers[17], 0x6000_1000);
    });
}

#[test]
fn a_thread_waits_at_a_word_until_it_is_woken_or_its_time_is_over() {
    with(|process, _| {
        begin(process, 0);
        let stale = [WORD, WAIT, 7];
        assert_eq!(
            call(process, 0, nr::__NR_futex, &stale),
            Turn::Answer(failed(EAGAIN))
        );
        assert_eq!(call(process, 0, nr::__NR_futex, &[WORD, WAIT]), Turn::Other);
        assert_eq!(last(process), (1, 0));
        // Nobody waits there.
        let wrong = [OTHER, WAKE, 1];
        assert_eq!(call(process, 1, nr::__NR_futex, &wrong), Turn::Answer(0));
        let wake = [WORD, WAKE, 9];
        assert_eq!(call(process, 1, nr::__NR_futex, &wake), Turn::Answer(1));
        assert_eq!(call(process, 1, nr::__NR_futex, &wake), Turn::Answer(0));
        assert_eq!(call(process, 1, nr::__NR_futex, &[WORD, WAIT]), Turn::Other);
        assert_eq!(last(process), (0, 0));
        // A millisecond, while the other one waits without an end.
        process.write_words(DATA, &[0, 1_000_000]).unwrap();
        let before = process.machine.now;
        let timed = [OTHER, WAIT, 0, DATA];
        assert_eq!(
            call(process, 0, nr::__NR_futex, &timed),
            Turn::Answer(failed(ETIMEDOUT))
        );
        assert!(process.machine.now - before >= 1_000_000);
    });
}

#[test]
fn those_who_wait_are_moved_to_another_word_in_their_order() {
    with(|process, _| {
        for _ in 0..3 {
            begin(process, 0);
        }
        assert_eq!(call(process, 0, nr::__NR_sched_yield, &[]), Turn::Other);
        for thread in 1..4 {
            assert_eq!(
                call(process, thread, nr::__NR_futex, &[WORD, WAIT]),
                Turn::Other
            );
        }
        let stale = [WORD, nr::FUTEX_CMP_REQUEUE.into(), 1, 9, OTHER, 1];
        assert_eq!(
            call(process, 0, nr::__NR_futex, &stale),
            Turn::Answer(failed(EAGAIN))
        );
        let move_all = [WORD, nr::FUTEX_CMP_REQUEUE.into(), 1, 9, OTHER, 0];
        assert_eq!(call(process, 0, nr::__NR_futex, &move_all), Turn::Answer(3));
        assert_eq!(call(process, 0, nr::__NR_sched_yield, &[]), Turn::Other);
        assert_eq!(last(process), (1, 0));
        let wake = [OTHER, WAKE, 1];
        assert_eq!(call(process, 1, nr::__NR_futex, &wake), Turn::Answer(1));
        assert_eq!(call(process, 1, nr::__NR_exit, &[]), Turn::Other);
        assert_eq!(last(process), (2, 0));
    });
}

#[test]
fn a_thread_that_makes_many_calls_gives_way() {
    with(|process, _| {
        begin(process, 0);
        let mut calls = 0;
        while call(process, 0, nr::__NR_gettid, &[]) == Turn::Answer(2) {
            calls += 1;
            assert!(calls < 1000);
        }
        assert_eq!(last(process), (1, 0));
    });
}

#[test]
fn whoever_waits_for_a_lock_learns_that_its_owner_ended() {
    with(|process, _| {
        begin(process, 0);
        assert_eq!(
            call(process, 0, nr::__NR_futex, &[OTHER, WAIT]),
            Turn::Other
        );
        // A list of one lock, which lies 8 bytes behind its entry.
        let (head, entry) = (DATA + 0x200, DATA + 0x240);
        process.write_words(head, &[entry, 8, 0]).unwrap();
        process.write_words(entry, &[head]).unwrap();
        let held = nr::FUTEX_WAITERS | 3;
        process.write(entry + 8, &held.to_le_bytes()).unwrap();
        assert_eq!(
            call(process, 1, nr::__NR_set_robust_list, &[head, 24]),
            Turn::Answer(0)
        );
        let wait = [entry + 8, WAIT, held.into()];
        begin_other(process);
        assert_eq!(call(process, 2, nr::__NR_futex, &wait), Turn::Other);
        assert_eq!(call(process, 1, nr::__NR_exit, &[]), Turn::Other);
        assert_eq!(last(process), (2, 0));
        let word = process.word(entry + 8).unwrap() & 0xffff_ffff;
        assert_eq!(word, (nr::FUTEX_WAITERS | nr::FUTEX_OWNER_DIED).into());
    });
}

/// The second thread makes a third one and lets it run.
fn begin_other(process: Program<'_, '_>) {
    let words = [FLAGS, 0x7000_0000, DATA, 0, 0];
    assert_eq!(call(process, 1, nr::__NR_clone, &words), Turn::Answer(4));
    assert_eq!(call(process, 1, nr::__NR_sched_yield, &[]), Turn::Other);
    assert_eq!(last(process), (2, 0));
}

const _: () = assert!(CALL_WORDS == 18);
