//! Signals: which wait, who takes them, and what becomes of a program by them.

use linux_raw_sys::errno::{EAGAIN, EINVAL, ENOSYS, ESRCH};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{
    SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK, SIGABRT, SIGCHLD, SIGCONT, SIGKILL, SIGSTOP, SIGTERM,
    SIGTSTP, SIGUSR1, SIGUSR2,
};

use super::threads::{Program, begin, call, failed, last};
use super::{DATA, Errno, Turn, ask, with};

/// Where sets and what is told of signals are.
const SET: u64 = DATA + 0x100;
const INFO: u64 = DATA + 0x180;
/// The process and its first thread.
const SELF: u64 = 2;
/// A real-time signal.
const QUEUED: u32 = 40;

fn set(signals: &[u32]) -> u64 {
    signals.iter().map(|signal| 1 << (signal - 1)).sum()
}

fn mask(process: Program<'_, '_>, thread: usize, how: u32, signals: &[u32]) {
    process.write_words(SET, &[set(signals)]).unwrap();
    let words = [how.into(), SET, 0, 8];
    assert_eq!(
        call(process, thread, nr::__NR_rt_sigprocmask, &words),
        Turn::Answer(0)
    );
}

fn pending(process: Program<'_, '_>) -> u64 {
    assert_eq!(ask(process, nr::__NR_rt_sigpending, &[SET, 8]), Ok(0));
    process.word(SET).unwrap()
}

fn kill(process: Program<'_, '_>, signal: u32) -> Turn {
    call(process, 0, nr::__NR_kill, &[SELF, signal.into()])
}

/// Sends one with a value; a real-time one queues.
fn queue(process: Program<'_, '_>, signal: u32, value: u64) -> Turn {
    let minus_one = u64::from(u32::MAX);
    let words = [signal.into(), minus_one, SELF, value];
    process.write_words(INFO, &words).unwrap();
    let words = [SELF, signal.into(), INFO];
    call(process, 0, nr::__NR_rt_sigqueueinfo, &words)
}

/// Takes one of these that has come, or does not wait for it; the signal and the value.
fn take(process: Program<'_, '_>, signals: &[u32]) -> (Turn, u64) {
    process.write_words(SET, &[set(signals), 0, 0]).unwrap();
    let words = [SET, INFO, SET + 8, 8];
    let turn = call(process, 0, nr::__NR_rt_sigtimedwait, &words);
    (turn, process.word(INFO + 24).unwrap())
}

/// What a program says of a signal: to ignore it, to handle it, or nothing.
fn say(process: Program<'_, '_>, signal: u32, handler: u64) {
    process.write_words(SET, &[handler, 0, 0, 0]).unwrap();
    let words = [signal.into(), SET, 0, 8];
    assert_eq!(ask(process, nr::__NR_rt_sigaction, &words), Ok(0));
}

#[test]
fn what_is_said_of_a_signal_is_kept_as_far_as_it_is_known() {
    with(|process, _| {
        let all = u64::MAX;
        process.write_words(SET, &[1, all, 3, all]).unwrap();
        let words = [u64::from(SIGUSR1), SET, 0, 8];
        assert_eq!(ask(process, nr::__NR_rt_sigaction, &words), Ok(0));
        let words = [u64::from(SIGUSR1), 0, SET, 8];
        assert_eq!(ask(process, nr::__NR_rt_sigaction, &words), Ok(0));
        let kept = [0, 8, 16, 24].map(|at| process.word(SET + at).unwrap());
        assert_eq!(kept, [1, 0xdc00_0807, 3, !set(&[SIGKILL, SIGSTOP])]);
        for (signal, new, size) in [(9, SET, 8), (19, SET, 8), (65, 0, 8), (0, 0, 8), (10, 0, 4)] {
            let words = [signal, new, 0, size];
            let answer = ask(process, nr::__NR_rt_sigaction, &words);
            assert_eq!(answer, Err(Errno(EINVAL)), "{words:?}");
        }
        assert_eq!(ask(process, nr::__NR_rt_sigaction, &[9, 0, SET, 8]), Ok(0));
    });
}

#[test]
fn a_signal_that_nobody_blocks_ends_the_program_or_is_ignored() {
    for (signal, status) in [
        (SIGTERM, 143),
        (SIGKILL, 137),
        (SIGABRT, 134),
        (QUEUED, 168),
    ] {
        with(|process, _| assert_eq!(kill(process, signal), Turn::End(status)));
    }
    with(|process, _| {
        for signal in [SIGCHLD, SIGCONT] {
            assert_eq!(kill(process, signal), Turn::Answer(0));
            assert_eq!(pending(process), 0);
        }
        say(process, SIGTERM, 1);
        assert_eq!(kill(process, SIGTERM), Turn::Answer(0));
        mask(process, 0, SIG_SETMASK, &[SIGKILL]);
        assert_eq!(kill(process, SIGKILL), Turn::End(137));
    });
}

#[test]
fn what_is_blocked_waits_and_standard_signals_do_not_queue() {
    with(|process, _| {
        mask(process, 0, SIG_BLOCK, &[SIGUSR1, SIGCHLD, QUEUED]);
        for signal in [SIGUSR1, SIGUSR1, SIGCHLD, QUEUED, QUEUED] {
            assert_eq!(kill(process, signal), Turn::Answer(0));
        }
        assert_eq!(pending(process), set(&[SIGUSR1, SIGCHLD, QUEUED]));
        let all = [SIGUSR1, SIGCHLD, QUEUED];
        for expected in [SIGUSR1, SIGCHLD, QUEUED, QUEUED] {
            assert_eq!(take(process, &all).0, Turn::Answer(expected.into()));
        }
        assert_eq!(take(process, &all).0, Turn::Answer(failed(EAGAIN)));
        assert_eq!(pending(process), 0);
        // What comes to be ignored has not come.
        kill(process, SIGUSR1);
        say(process, SIGUSR1, 1);
        assert_eq!(pending(process), 0);
        kill(process, SIGUSR1);
        say(process, SIGUSR1, 0);
        assert_eq!(pending(process), set(&[SIGUSR1]));
        process.write_words(SET, &[set(&[SIGUSR1])]).unwrap();
        let words = [SIG_UNBLOCK.into(), SET, 0, 8];
        let unblock = call(process, 0, nr::__NR_rt_sigprocmask, &words);
        assert_eq!(unblock, Turn::End(138));
    });
}

#[test]
fn real_time_signals_queue_in_their_order_until_there_is_no_room() {
    with(|process, _| {
        mask(process, 0, SIG_BLOCK, &[SIGUSR1, QUEUED]);
        let room = crate::linux::signals::QUEUE as u64;
        for value in 0..room {
            assert_eq!(queue(process, QUEUED, value), Turn::Answer(0));
        }
        let full = queue(process, QUEUED, room);
        assert_eq!(full, Turn::Answer(failed(EAGAIN)));
        // One that does not queue comes, and nothing is known of it.
        assert_eq!(queue(process, SIGUSR1, 7), Turn::Answer(0));
        let (turn, value) = take(process, &[SIGUSR1]);
        assert_eq!((turn, value), (Turn::Answer(SIGUSR1.into()), 0));
        for value in 0..room {
            let taken = take(process, &[QUEUED]);
            assert_eq!(taken, (Turn::Answer(QUEUED.into()), value));
        }
        let none = take(process, &[QUEUED]).0;
        assert_eq!(none, Turn::Answer(failed(EAGAIN)));
    });
}

#[test]
fn whoever_sends_to_others_or_to_nobody_is_told() {
    with(|process, _| {
        let third = begin(process, 0);
        for (number, words, error) in [
            (nr::__NR_kill, [77, 10, 0], ESRCH),
            (nr::__NR_kill, [77, 99, 0], ESRCH),
            (nr::__NR_kill, [u64::MAX, 10, 0], ESRCH),
            (nr::__NR_kill, [SELF, 65, 0], EINVAL),
            (nr::__NR_tkill, [0, 10, 0], EINVAL),
            (nr::__NR_tkill, [77, 10, 0], ESRCH),
            (nr::__NR_tgkill, [SELF, 77, 10], ESRCH),
            (nr::__NR_tgkill, [third, third, 10], ESRCH),
            (nr::__NR_tgkill, [SELF, u64::MAX, 10], EINVAL),
        ] {
            let answer = ask(process, number, &words);
            assert_eq!(answer, Err(Errno(error)), "{number} {words:?}");
        }
        for whom in [0, SELF, third, SELF.wrapping_neg()] {
            assert_eq!(ask(process, nr::__NR_kill, &[whom, 0]), Ok(0));
        }
        assert_eq!(ask(process, nr::__NR_tgkill, &[SELF, third, 0]), Ok(0));
    });
}

#[test]
fn a_program_is_not_stopped_and_is_told() {
    with(|process, _| {
        for signal in [SIGSTOP, SIGTSTP] {
            assert_eq!(kill(process, signal), Turn::Answer(failed(ENOSYS)));
        }
        assert_eq!(process.machine.notes.lines().count(), 1);
        // Stopping and going on end each other.
        mask(process, 0, SIG_BLOCK, &[SIGTSTP, SIGCONT]);
        assert_eq!(kill(process, SIGTSTP), Turn::Answer(0));
        assert_eq!(pending(process), set(&[SIGTSTP]));
        assert_eq!(kill(process, SIGCONT), Turn::Answer(0));
        assert_eq!(pending(process), set(&[SIGCONT]));
        assert_eq!(kill(process, SIGTSTP), Turn::Answer(0));
        process.write_words(SET, &[0]).unwrap();
        let words = [SIG_SETMASK.into(), SET, 0, 8];
        let unblock = call(process, 0, nr::__NR_rt_sigprocmask, &words);
        assert_eq!(unblock, Turn::End(148));
    });
}

#[test]
fn a_thread_that_waits_for_a_signal_gets_it() {
    with(|process, _| {
        mask(process, 0, SIG_BLOCK, &[SIGUSR1, SIGTERM]);
        let second = begin(process, 0);
        process
            .write_words(SET, &[set(&[SIGTERM, QUEUED])])
            .unwrap();
        let words = [SET, INFO, 0, 8];
        let waits = call(process, 0, nr::__NR_rt_sigtimedwait, &words);
        assert_eq!((waits, last(process)), (Turn::Other, (1, 0)));
        // It has what its maker blocked, and nothing that came for that.
        assert_eq!(
            call(process, 1, nr::__NR_tkill, &[second, SIGUSR1.into()]),
            Turn::Answer(0)
        );
        let words = [SELF, SIGTERM.into()];
        assert_eq!(call(process, 1, nr::__NR_kill, &words), Turn::Other);
        assert_eq!(last(process), (0, SIGTERM.into()));
        let told = [0, 8, 16].map(|at| process.word(INFO + at).unwrap());
        assert_eq!(told, [SIGTERM.into(), 0, SELF]);
        assert_eq!(pending(process), 0);
        // A time that is over.
        process.write_words(DATA, &[0, 5_000_000]).unwrap();
        let words = [SET, INFO, DATA, 8];
        process.write_words(SET, &[set(&[SIGUSR2])]).unwrap();
        let turn = call(process, 0, nr::__NR_rt_sigtimedwait, &words);
        assert_eq!((turn, last(process)), (Turn::Other, (1, 0)));
        let wait = [DATA + 8, u64::from(nr::FUTEX_WAIT), 5_000_000];
        assert_eq!(call(process, 1, nr::__NR_futex, &wait), Turn::Other);
        assert_eq!(last(process), (0, failed(EAGAIN)));
    });
}
