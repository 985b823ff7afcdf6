//! Handled signals: their frames, the calls that they come out of, faults, and timers.

use linux_raw_sys::errno::{EAGAIN, EINTR, EINVAL, ENOMEM, ENOSYS};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{
    SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SA_RESTORER, SA_SIGINFO, SIG_BLOCK,
    SIG_SETMASK, SIGALRM, SIGFPE, SIGSEGV, SIGUSR1, SIGUSR2,
};
use linux_raw_sys::net::{AF_INET, SOCK_STREAM};

use super::threads::{Program, begin, failed};
use super::{CALL_WORDS, CODE, DATA, Errno, FLOAT_WORDS, Mock, Process, Turn, ask, with};
use crate::linux::Trap;

type Registers = [u64; CALL_WORDS];

const SELF: u64 = 2;
const SET: u64 = DATA + 0x100;
const PLACE: u64 = DATA + 0x180;
/// The alternate stack.
const AREA: u64 = DATA + 0x400;
const AREA_BYTES: u64 = 2048;
const HANDLER: u64 = CODE + 5;
const BACK: u64 = CODE + 6;
/// Registers by their places, and a stack pointer as a function in the midst of its work has it.
const AX: usize = 0;
const DX: usize = 3;
const SI: usize = 4;
const DI: usize = 5;
const IP: usize = 15;
const STATUS: usize = 16;
const SP: usize = 17;
const STACK: u64 = DATA + 0x17f3;
const READER: u64 = 3;

fn registers(number: u32) -> Registers {
    let mut registers: Registers = core::array::from_fn(|index| 0x1000 + index as u64);
    registers[AX] = number.into();
    (registers[IP], registers[STATUS], registers[SP]) = (CODE + 4, 0x646, STACK);
    registers
}

/// A call of a thread that has such registers.
fn call(process: Program<'_, '_>, thread: usize, number: u32, words: &[u64]) -> Turn {
    let mut all = [0; 6];
    all[..words.len()].copy_from_slice(words);
    process.called(thread, number.into(), all, &registers(number))
}

fn handle(process: Program<'_, '_>, signal: u32, flags: u32, mask: u64) {
    let flags = u64::from(flags | SA_RESTORER);
    let words = [HANDLER, flags, BACK, mask];
    process.write_words(SET, &words).unwrap();
    let words = [signal.into(), SET, 0, 8];
    assert_eq!(ask(process, nr::__NR_rt_sigaction, &words), Ok(0));
}

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

fn resumed(turn: Turn) -> Registers {
    match turn {
        Turn::Resume(registers) => registers,
        other => panic!("{other:?}"),
    }
}

fn kill(process: Program<'_, '_>, signal: u32) -> Turn {
    call(process, 0, nr::__NR_kill, &[SELF, signal.into()])
}

/// The thread returns from a handler that it began with these registers.
fn leave(process: Program<'_, '_>, inside: &Registers) -> Turn {
    let mut registers = *inside;
    registers[AX] = nr::__NR_rt_sigreturn.into();
    registers[SP] += 8;
    let number = nr::__NR_rt_sigreturn.into();
    process.called(0, number, [0; 6], &registers)
}

fn blocked(process: Program<'_, '_>) -> u64 {
    let words = [SIG_BLOCK.into(), 0, PLACE, 8];
    assert_eq!(ask(process, nr::__NR_rt_sigprocmask, &words), Ok(0));
    process.word(PLACE).unwrap()
}

#[test]
fn a_handler_has_a_frame_and_behind_it_all_is_as_it_was() {
    with(|process, _| {
        let floats: [u64; FLOAT_WORDS] = core::array::from_fn(|index| index as u64 + 9);
        process.machine.floats.insert(0, floats);
        handle(process, SIGUSR1, SA_SIGINFO, bit(SIGUSR2));
        let inside = resumed(kill(process, SIGUSR1));
        assert_eq!(inside[SP] % 16, 8);
        assert!(inside[SP] + 440 <= STACK - 128 - 512);
        assert_eq!((inside[IP], inside[DI], inside[AX]), (HANDLER, 10, 0));
        // Backwards no more; the stepping bit is the kernel's.
        assert_eq!(inside[STATUS], 0x246);
        assert_eq!((inside[DX], inside[SI]), (inside[SP] + 8, inside[SP] + 312));
        let word = |process: &Process<'_, Mock>, at| process.word(inside[DX] + at).unwrap();
        assert_eq!(process.word(inside[SP]), Ok(BACK));
        // r8, rsp, rip, flags, segments, mask.
        let told = [40, 160, 168, 176, 184, 296].map(|at| word(process, at));
        assert_eq!(told, [0x1007, STACK, CODE + 4, 0x646, 0x2b << 48 | 0x33, 0]);
        let saved = word(process, 224);
        assert_eq!(saved % 64, 0);
        assert_eq!(process.word(saved + 8 * 57), Ok(66));
        assert_eq!(process.word(saved + 8 * 58), Ok(0));
        let info = [0, 8, 16].map(|at| process.word(inside[SI] + at).unwrap());
        assert_eq!(info, [SIGUSR1.into(), 0, SELF]);
        assert_eq!(process.machine.floats[&0][..4], [0x37f, 0, 0, 0x1f80]);
        assert_eq!(blocked(process), bit(SIGUSR1) | bit(SIGUSR2));
        // The handler changes a register and a number.
        process.write_words(inside[DX] + 40, &[77]).unwrap();
        process.write_words(saved + 8 * 30, &[78]).unwrap();
        let mut expected = registers(nr::__NR_kill);
        (expected[AX], expected[7]) = (0, 77);
        assert_eq!(resumed(leave(process, &inside)), expected);
        assert_eq!(process.machine.floats[&0][30], 78);
        assert_eq!(process.machine.floats[&0][31], 40);
        assert_eq!(blocked(process), 0);
    });
}

#[test]
fn flags_say_what_else_comes_with_a_handler() {
    with(|process, _| {
        handle(process, SIGUSR1, SA_NODEFER | SA_RESETHAND, 0);
        resumed(kill(process, SIGUSR1));
        assert_eq!(blocked(process), 0);
        assert_eq!(kill(process, SIGUSR1), Turn::End(138));
    });
    with(|process, _| {
        let stack = [AREA, 0, AREA_BYTES];
        process.write_words(PLACE, &[AREA, 0, 2047]).unwrap();
        let small = ask(process, nr::__NR_sigaltstack, &[PLACE]);
        assert_eq!(small, Err(Errno(ENOMEM)));
        process.write_words(PLACE, &[AREA, 4, AREA_BYTES]).unwrap();
        let wrong = ask(process, nr::__NR_sigaltstack, &[PLACE]);
        assert_eq!(wrong, Err(Errno(EINVAL)));
        process.write_words(PLACE, &stack).unwrap();
        assert_eq!(ask(process, nr::__NR_sigaltstack, &[PLACE, SET]), Ok(0));
        assert_eq!(process.word(SET + 8), Ok(nr::SS_DISABLE.into()));
        handle(process, SIGUSR1, SA_ONSTACK | SA_NODEFER, 0);
        let inside = resumed(kill(process, SIGUSR1));
        assert!((AREA..AREA + AREA_BYTES).contains(&inside[SP]));
        // It goes on below until there is no room, which is a fault that nobody handles.
        let mut deeper = inside;
        let mut turn = Turn::Same;
        for _ in 0..3 {
            deeper[AX] = nr::__NR_kill.into();
            turn = process.called(0, 62, [SELF, 10, 0, 0, 0, 0], &deeper);
            let Turn::Resume(registers) = turn else {
                break;
            };
            assert!(registers[SP] > AREA);
            deeper = registers;
        }
        assert_eq!(turn, Turn::End(139));
        assert!(process.machine.notes.contains("no stack"));
    });
}

#[test]
fn those_that_come_at_once_are_taken_one_on_top_of_the_other() {
    with(|process, _| {
        handle(process, SIGUSR1, 0, 0);
        handle(process, SIGUSR2, 0, 0);
        let both = bit(SIGUSR1) | bit(SIGUSR2);
        process.write_words(SET, &[both, 0]).unwrap();
        let mask = |at| [SIG_SETMASK.into(), SET + at, 0, 8];
        let set = nr::__NR_rt_sigprocmask;
        assert_eq!(call(process, 0, set, &mask(0)), Turn::Answer(0));
        for signal in [SIGUSR2, SIGUSR1] {
            assert_eq!(kill(process, signal), Turn::Answer(0));
        }
        process.write_words(SET, &[both, 0]).unwrap();
        let top = resumed(call(process, 0, set, &mask(8)));
        assert_eq!(top[DI], SIGUSR2.into());
        let below = resumed(leave(process, &top));
        assert_eq!((below[DI], below[IP]), (SIGUSR1.into(), HANDLER));
        let out = resumed(leave(process, &below));
        assert_eq!((out[AX], out[IP], out[SP]), (0, CODE + 4, STACK));
    });
}

#[test]
fn a_call_that_waits_is_broken_off_or_made_again() {
    for (flags, answer, back) in [(0, failed(EINTR), 0), (SA_RESTART, 0, 2)] {
        with(|process, _| {
            assert_eq!(ask(process, nr::__NR_pipe, &[PLACE]), Ok(0));
            begin(process, 0);
            handle(process, SIGUSR1, flags, 0);
            let read = [READER, PLACE, 1];
            assert_eq!(call(process, 0, nr::__NR_read, &read), Turn::Other);
            let words = [SELF, SELF, SIGUSR1.into()];
            assert_eq!(call(process, 1, nr::__NR_tgkill, &words), Turn::Other);
            let (thread, inside) = *process.machine.gone.last().unwrap();
            assert_eq!((thread, inside[IP]), (0, HANDLER));
            let out = resumed(leave(process, &inside));
            let number = u64::from(nr::__NR_read);
            let answer = if back == 0 { answer } else { number };
            assert_eq!((out[AX], out[IP]), (answer, CODE + 4 - back));
            // A wait for a time is broken off in any case, and says what is left.
            process.write_words(PLACE, &[3600, 0, 0, 0]).unwrap();
            let sleep = [PLACE, PLACE + 16];
            assert_eq!(call(process, 0, nr::__NR_nanosleep, &sleep), Turn::Other);
            let words = [SELF, SELF, SIGUSR1.into()];
            assert_eq!(call(process, 1, nr::__NR_tgkill, &words), Turn::Other);
            let (_, inside) = *process.machine.gone.last().unwrap();
            let out = resumed(leave(process, &inside));
            assert_eq!((out[AX], out[IP]), (failed(EINTR), CODE + 4));
            assert_eq!(process.word(PLACE + 16), Ok(3599));
        });
    }
}

#[test]
fn whoever_waits_for_a_connection_is_interrupted() {
    with(|process, _| {
        let socket = [AF_INET.into(), SOCK_STREAM.into(), 0];
        let socket = ask(process, nr::__NR_socket, &socket).unwrap();
        process.write_words(PLACE, &[0x0f27_0002, 0]).unwrap();
        assert_eq!(ask(process, nr::__NR_bind, &[socket, PLACE, 16]), Ok(0));
        assert_eq!(ask(process, nr::__NR_listen, &[socket, 8]), Ok(0));
        begin(process, 0);
        for (flags, answer) in [(0, failed(EINTR)), (SA_RESTART, nr::__NR_accept.into())] {
            handle(process, SIGUSR1, flags, 0);
            let waits = call(process, 0, nr::__NR_accept, &[socket, 0, 0]);
            assert_eq!(waits, Turn::Other);
            let words = [SELF, SELF, SIGUSR1.into()];
            assert_eq!(call(process, 1, nr::__NR_tgkill, &words), Turn::Other);
            let (_, inside) = *process.machine.gone.last().unwrap();
            assert_eq!(resumed(leave(process, &inside))[AX], answer);
        }
        // No descriptor is left of it.
        let next = ask(process, nr::__NR_dup, &[1]).unwrap();
        assert_eq!(next, socket + 1);
    });
}

#[test]
fn a_mask_for_the_time_of_a_call_is_gone_behind_the_handler() {
    with(|process, _| {
        handle(process, SIGUSR1, 0, 0);
        process
            .write_words(SET, &[bit(SIGUSR1), bit(SIGUSR2)])
            .unwrap();
        let words = [SIG_BLOCK.into(), SET, 0, 8];
        assert_eq!(ask(process, nr::__NR_rt_sigprocmask, &words), Ok(0));
        assert_eq!(kill(process, SIGUSR1), Turn::Answer(0));
        let inside = resumed(call(process, 0, nr::__NR_rt_sigsuspend, &[SET + 8, 8]));
        assert_eq!(blocked(process), bit(SIGUSR1) | bit(SIGUSR2));
        let out = resumed(leave(process, &inside));
        assert_eq!(out[AX], failed(EINTR));
        assert_eq!(blocked(process), bit(SIGUSR1));
        // What does not wait leaves it as it was.
        assert_eq!(kill(process, SIGUSR1), Turn::Answer(0));
        process.write_words(PLACE, &[0, 0]).unwrap();
        let words = [0, 0, PLACE, SET + 16, 8];
        assert_eq!(ask(process, nr::__NR_ppoll, &words), Ok(0));
        assert_eq!(blocked(process), bit(SIGUSR1));
    });
}

#[test]
fn faults_are_handled_or_end_the_program() {
    let page = Trap::Page {
        address: 0x10,
        code: 6,
    };
    let divides = Trap::Exception { vector: 0, code: 0 };
    with(|process, begin| {
        let registers = registers(1);
        handle(process, SIGSEGV, SA_SIGINFO, 0);
        let inside = resumed(process.trapped(0, page, &registers));
        let info = [0, 8, 16].map(|at| process.word(inside[SI] + at).unwrap());
        assert_eq!(info, [SIGSEGV.into(), 1, 0x10]);
        // Code, exception, address.
        let told = [192, 200, 216].map(|at| process.word(inside[DX] + at).unwrap());
        assert_eq!(told, [6, 14, 0x10]);
        let out = resumed(leave(process, &inside));
        assert_eq!(out, registers);
        let grows = Trap::Page {
            address: begin.stack - 4096,
            code: 6,
        };
        assert_eq!(process.trapped(0, grows, &registers), Turn::Same);
        let read_only = Trap::Page {
            address: CODE,
            code: 7,
        };
        let inside = resumed(process.trapped(0, read_only, &registers));
        assert_eq!(process.word(inside[SI] + 8), Ok(2));
        // It is blocked meanwhile: nobody can be told.
        let ended = process.trapped(0, page, &registers);
        assert_eq!(ended, Turn::End(139));
        assert!(process.machine.notes.contains("no access to 0x10"));
    });
    with(|process, _| {
        let registers = registers(1);
        handle(process, SIGFPE, SA_SIGINFO | SA_RESETHAND, 0);
        let inside = resumed(process.trapped(0, divides, &registers));
        let info = [0, 8, 16].map(|at| process.word(inside[SI] + at).unwrap());
        assert_eq!(info, [SIGFPE.into(), 1, CODE + 4]);
        resumed(leave(process, &inside));
        let ended = process.trapped(0, divides, &registers);
        assert_eq!(ended, Turn::End(136));
        assert!(process.machine.notes.contains("exception 0"));
    });
}

#[test]
fn a_wrong_frame_ends_the_program() {
    with(|process, _| {
        let mut registers = registers(nr::__NR_rt_sigreturn);
        registers[SP] = 0x40;
        let turn = process.called(0, nr::__NR_rt_sigreturn.into(), [0; 6], &registers);
        assert_eq!(turn, Turn::End(139));
    });
    for (place, word, told) in [(176, 0x346, "neither steps"), (184, 0x23, "neither steps")] {
        with(|process, _| {
            handle(process, SIGUSR1, 0, 0);
            let inside = resumed(kill(process, SIGUSR1));
            process.write_words(inside[DX] + place, &[word]).unwrap();
            assert_eq!(leave(process, &inside), Turn::End(139));
            assert!(process.machine.notes.contains(told));
        });
    }
    // A floating-point state that the processor cannot hold.
    with(|process, _| {
        handle(process, SIGUSR1, 0, 0);
        let inside = resumed(kill(process, SIGUSR1));
        let floats = process.word(inside[DX] + 224).unwrap();
        process.write_words(floats + 24, &[1 << 17]).unwrap();
        assert_eq!(leave(process, &inside), Turn::End(139));
    });
}

#[test]
fn a_timer_rings_while_all_wait_and_behind_calls() {
    with(|process, _| {
        handle(process, SIGALRM, 0, 0);
        assert_eq!(ask(process, nr::__NR_alarm, &[100]), Ok(0));
        assert_eq!(ask(process, nr::__NR_alarm, &[7]), Ok(100));
        let before = process.machine.now;
        let inside = resumed(call(process, 0, nr::__NR_pause, &[]));
        assert!(process.machine.now - before > 6_900_000_000);
        assert_eq!(resumed(leave(process, &inside))[AX], failed(EINTR));
        assert_eq!(ask(process, nr::__NR_alarm, &[0]), Ok(0));
        // Every second, the first time after two.
        process
            .write_words(PLACE, &[1, 0, 2, 5, 0, 0, 0, 0])
            .unwrap();
        let words = [nr::ITIMER_REAL.into(), PLACE, 0];
        assert_eq!(ask(process, nr::__NR_setitimer, &words), Ok(0));
        process.machine.now += 4_500_000_000;
        let inside = resumed(call(process, 0, nr::__NR_getppid, &[]));
        assert_eq!(inside[DI], SIGALRM.into());
        assert_eq!(resumed(leave(process, &inside))[AX], 1);
        let words = [nr::ITIMER_REAL.into(), PLACE + 32];
        assert_eq!(ask(process, nr::__NR_getitimer, &words), Ok(0));
        let told = [32, 40, 48].map(|at| process.word(PLACE + at).unwrap());
        assert_eq!(told, [1, 0, 0]);
        for kind in [nr::ITIMER_VIRTUAL, nr::ITIMER_PROF] {
            let words = [kind.into(), PLACE, 0];
            let refused = ask(process, nr::__NR_setitimer, &words);
            assert_eq!(refused, Err(Errno(ENOSYS)));
        }
        assert!(process.machine.notes.contains("setitimer"));
        process.write_words(PLACE, &[0, 0, 0, 1_000_000]).unwrap();
        let words = [nr::ITIMER_REAL.into(), PLACE, 0];
        let wrong = ask(process, nr::__NR_setitimer, &words);
        assert_eq!(wrong, Err(Errno(EINVAL)));
    });
}

#[test]
fn timers_that_a_program_makes_ring_once_until_their_signal_is_taken() {
    with(|process, _| {
        let queued = 40;
        handle(process, queued, SA_SIGINFO, 0);
        process.write_words(SET, &[bit(queued)]).unwrap();
        let words = [SIG_BLOCK.into(), SET, 0, 8];
        assert_eq!(ask(process, nr::__NR_rt_sigprocmask, &words), Ok(0));
        let event = [4711, u64::from(queued), 0];
        process.write_words(PLACE, &event).unwrap();
        let create = [nr::CLOCK_MONOTONIC.into(), PLACE, PLACE + 64];
        assert_eq!(ask(process, nr::__NR_timer_create, &create), Ok(0));
        let timer = process.word(PLACE + 64).unwrap() & 0xffff_ffff;
        // Every second, the first time after two.
        process.write_words(PLACE, &[1, 0, 2, 0]).unwrap();
        let words = [timer, 0, PLACE, PLACE + 32];
        assert_eq!(ask(process, nr::__NR_timer_settime, &words), Ok(0));
        assert_eq!(process.word(PLACE + 48), Ok(0));
        for _ in 0..3 {
            process.machine.now += 2_100_000_000;
            assert_eq!(ask(process, nr::__NR_getppid, &[]), Ok(1));
        }
        process.write_words(SET, &[bit(queued), 0, 0]).unwrap();
        let words = [SET, PLACE, SET + 8, 8];
        let taken = ask(process, nr::__NR_rt_sigtimedwait, &words);
        assert_eq!(taken, Ok(queued.into()));
        // At 2.1, 4.2 and 6.3 seconds it rang once, twice and twice.
        let told = [8, 16, 24].map(|at| process.word(PLACE + at).unwrap());
        assert_eq!(told, [0xffff_fffe, 4 << 32 | timer, 4711]);
        assert_eq!(ask(process, nr::__NR_timer_getoverrun, &[timer]), Ok(4));
        let none = ask(process, nr::__NR_rt_sigtimedwait, &words);
        assert_eq!(none, Err(Errno(EAGAIN)));
        assert_eq!(ask(process, nr::__NR_timer_gettime, &[timer, PLACE]), Ok(0));
        assert_eq!(process.word(PLACE), Ok(1));
        assert_eq!(ask(process, nr::__NR_timer_delete, &[timer]), Ok(0));
        let gone = ask(process, nr::__NR_timer_delete, &[timer]);
        assert_eq!(gone, Err(Errno(EINVAL)));
        let made = (0..17).map(|_| ask(process, nr::__NR_timer_create, &[1, 0, PLACE]));
        assert_eq!(made.last(), Some(Err(Errno(EAGAIN))));
        let create = [nr::CLOCK_PROCESS_CPUTIME_ID.into(), 0, PLACE];
        let refused = ask(process, nr::__NR_timer_create, &create);
        assert_eq!(refused, Err(Errno(ENOSYS)));
    });
}

/// What is asked for at random.
const CALLS: [u32; 16] = [
    nr::__NR_kill,
    nr::__NR_tkill,
    nr::__NR_tgkill,
    nr::__NR_rt_sigaction,
    nr::__NR_getpid,
    nr::__NR_rt_sigprocmask,
    nr::__NR_rt_sigpending,
    nr::__NR_rt_sigqueueinfo,
    nr::__NR_rt_tgsigqueueinfo,
    nr::__NR_rt_sigreturn,
    nr::__NR_sigaltstack,
    nr::__NR_alarm,
    nr::__NR_setitimer,
    nr::__NR_timer_create,
    nr::__NR_timer_settime,
    nr::__NR_timer_delete,
];

#[test]
fn whatever_is_asked_for_of_signals_a_program_goes_on_or_ends() {
    let mut seed = 815_u64;
    let mut next = move |most: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % most
    };
    let (mut handled, mut ended) = (0, 0);
    for _ in 0..400 {
        with(|process, _| {
            let content: [u64; 64] = core::array::from_fn(|_| match next(4) {
                0 => HANDLER,
                1 => next(66),
                2 => next(1 << 30) << next(40),
                _ => DATA + 8 * next(0x300),
            });
            process.write_words(DATA, &content).unwrap();
            for signal in (1..65).filter(|signal| ![9, 19].contains(signal)) {
                let flags = [SA_NODEFER, SA_ONSTACK, SA_SIGINFO, SA_RESETHAND];
                handle(process, signal, flags[usize::try_from(next(4)).unwrap()], 0);
            }
            let mut registers = registers(0);
            for _ in 0..200 {
                let number = CALLS[usize::try_from(next(16)).unwrap()];
                let words = core::array::from_fn(|_| match next(4) {
                    0 => SELF,
                    1 => 1 + next(64),
                    2 => 8,
                    _ => DATA + 8 * next(64),
                });
                let trap = Trap::Page {
                    address: words[0],
                    code: 4,
                };
                registers[AX] = number.into();
                let turn = if next(50) == 0 {
                    process.trapped(0, trap, &registers)
                } else {
                    process.called(0, number.into(), words, &registers)
                };
                match turn {
                    Turn::Answer(_) | Turn::Same => {}
                    Turn::Resume(after) => {
                        handled += 1;
                        registers = after;
                    }
                    Turn::End(status) => {
                        assert!(status > 128 && status <= 128 + 64, "{status}");
                        ended += 1;
                        return;
                    }
                    Turn::Other => panic!("there is no other thread"),
                }
            }
        });
    }
    assert!(handled > 100 && ended > 100, "{handled} {ended}");
}
