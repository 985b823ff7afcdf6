//! Processes that go on with another program.

use linux_raw_sys::errno::{E2BIG, EACCES, EFAULT, ELOOP, ENOENT, ENOEXEC, ENOMEM};
use linux_raw_sys::general as nr;
use std::string::String;
use std::vec::Vec;

use super::threads::{Program, call, failed, last};
use super::{CODE, DATA, Errno, Turn, ask, with};

/// Where the test puts words that a program is given, and where lists of them are.
const WORDS: u64 = DATA + 0x1000;
const ARGUMENTS: u64 = DATA + 0x1400;
const ENVIRONMENT: u64 = DATA + 0x1600;

const IP: usize = 15;
const SP: usize = 17;

/// Puts strings, and a list of them.
fn list(process: Program<'_, '_>, at: u64, words: &[&str]) {
    let mut place = WORDS + (at - ARGUMENTS);
    let mut pointers = Vec::new();
    for word in words {
        process.write(place, word.as_bytes()).unwrap();
        process.write(place + word.len() as u64, &[0]).unwrap();
        pointers.push(place);
        place += word.len() as u64 + 1;
    }
    pointers.push(0);
    process.write_words(at, &pointers).unwrap();
}

/// The thread at a place executes a program with words and variables: how it goes on.
fn execute(process: Program<'_, '_>, place: usize, path: &str) -> Turn {
    let path = super::text(process, path);
    call(
        process,
        place,
        nr::__NR_execve,
        &[path, ARGUMENTS, ENVIRONMENT],
    )
}

/// Words and variables of a program that begins with these registers.
fn given(process: Program<'_, '_>, registers: &[u64]) -> (Vec<String>, Vec<String>) {
    let mut at = registers[SP];
    let count = process.word(at).unwrap();
    let mut next = |process: Program<'_, '_>| {
        at += 8;
        let place = process.word(at).unwrap();
        (place != 0).then(|| {
            let bytes = (place..).map(|at| {
                let mut byte = [0];
                process.read(at, &mut byte).unwrap();
                byte[0]
            });
            let bytes: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
            String::from_utf8(bytes).unwrap()
        })
    };
    let words: Vec<String> = core::iter::from_fn(|| next(process)).collect();
    assert_eq!(words.len() as u64, count);
    (words, core::iter::from_fn(|| next(process)).collect())
}

/// It goes on as another program: its registers.
fn begun(turn: Turn) -> Vec<u64> {
    match turn {
        Turn::Resume(registers) => registers.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Writes a file that can be executed.
fn write_file(process: Program<'_, '_>, path: &str, content: &[u8]) {
    let path = super::text(process, path);
    let file = ask(process, nr::__NR_creat, &[path, 0o755]).unwrap();
    process.write(WORDS, content).unwrap();
    let len = content.len() as u64;
    assert_eq!(ask(process, nr::__NR_write, &[file, WORDS, len]), Ok(len));
    assert_eq!(ask(process, nr::__NR_close, &[file]), Ok(0));
}

#[test]
fn a_program_begins_with_what_it_is_given_and_nothing_else() {
    with(|process, begin| {
        list(process, ARGUMENTS, &["its name", "", "b"]);
        list(process, ENVIRONMENT, &["C=d"]);
        let open = |process: Program<'_, '_>, flags: u32| {
            let path = super::text(process, "/etc/text");
            ask(process, nr::__NR_open, &[path, flags.into()]).unwrap()
        };
        let files = [open(process, 0), open(process, nr::O_CLOEXEC)];
        process.write(DATA, &[9]).unwrap();
        ask(process, nr::__NR_arch_prctl, &[0x1002, DATA]).unwrap();
        let registers = begun(execute(process, 0, "/bin/../bin/name"));
        assert_eq!(registers[IP], begin.entry);
        assert_eq!(registers[..IP], [0; IP]);
        let (words, variables) = given(process, &registers);
        assert_eq!((words.len(), words[0].as_str()), (3, "its name"));
        assert_eq!((words[1].as_str(), variables[0].as_str()), ("", "C=d"));
        // Its data is as it was at first.
        let mut byte = [0];
        process.read(DATA, &mut byte).unwrap();
        assert_eq!(byte, [0x0f]);
        let closed = files.map(|file| ask(process, nr::__NR_lseek, &[file, 0, 1]).is_err());
        assert_eq!(closed, [false, true]);
        assert_eq!(process.machine.pointers[&0], [0; 2]);
        assert_eq!(process.machine.floats[&0][0], 0x37f);
        assert_eq!(process.machine.notes, "");
    });
}

#[test]
fn handlers_are_forgotten_and_blocked_signals_stay_blocked() {
    with(|process, _| {
        list(process, ARGUMENTS, &["a"]);
        list(process, ENVIRONMENT, &[]);
        for (signal, handler) in [(nr::SIGUSR1, CODE), (nr::SIGUSR2, 1)] {
            process.write_words(WORDS, &[handler, 0, 0, 0]).unwrap();
            let action = [signal.into(), WORDS, 0, 8];
            assert_eq!(ask(process, nr::__NR_rt_sigaction, &action), Ok(0));
        }
        process.write_words(WORDS, &[1 << 4]).unwrap();
        assert_eq!(
            ask(process, nr::__NR_rt_sigprocmask, &[0, WORDS, 0, 8]),
            Ok(0)
        );
        list(process, ARGUMENTS, &["a"]);
        begun(execute(process, 0, "/bin/name"));
        for (signal, handler) in [(nr::SIGUSR1, 0), (nr::SIGUSR2, 1)] {
            let action = [signal.into(), 0, WORDS, 8];
            assert_eq!(ask(process, nr::__NR_rt_sigaction, &action), Ok(0));
            assert_eq!(process.word(WORDS), Ok(handler));
        }
        assert_eq!(
            ask(process, nr::__NR_rt_sigprocmask, &[0, 0, WORDS, 8]),
            Ok(0)
        );
        assert_eq!(process.word(WORDS), Ok(1 << 4));
    });
}

#[test]
fn what_a_program_had_is_given_back() {
    with(|process, _| {
        list(process, ARGUMENTS, &["a"]);
        list(process, ENVIRONMENT, &[]);
        begun(execute(process, 0, "/bin/name"));
        let before = process.machine.mapped.len();
        for _ in 0..100 {
            list(process, ARGUMENTS, &["a"]);
            list(process, ENVIRONMENT, &[]);
            begun(execute(process, 0, "/proc/self/exe"));
            assert_eq!(process.machine.mapped.len(), before);
        }
    });
}

#[test]
fn the_maker_of_a_child_by_vfork_goes_on_once_it_has_a_program() {
    with(|process, _| {
        list(process, ARGUMENTS, &["a"]);
        list(process, ENVIRONMENT, &[]);
        let group = |process: Program<'_, '_>| ask(process, nr::__NR_setpgid, &[3, 3]);
        process.write(DATA, &[9]).unwrap();
        assert_eq!(call(process, 0, nr::__NR_vfork, &[]), Turn::Other);
        assert_eq!(last(process), (1, 0));
        begun(execute(process, 1, "/bin/name"));
        let yields = call(process, 1, nr::__NR_sched_yield, &[]);
        assert_eq!((yields, last(process)), (Turn::Other, (0, 3)));
        // The maker has its memory as it was, and the child is its own by now.
        assert_eq!(ask(process, nr::__NR_getpid, &[]), Ok(2));
        let mut byte = [0];
        process.read(DATA, &mut byte).unwrap();
        assert_eq!(byte, [9]);
        assert_eq!(group(process), Err(Errno(EACCES)));
    });
}

#[test]
fn threads_other_than_the_one_that_executes_end() {
    with(|process, _| {
        list(process, ARGUMENTS, &["a"]);
        list(process, ENVIRONMENT, &[]);
        let flags =
            nr::CLONE_VM | nr::CLONE_FS | nr::CLONE_FILES | nr::CLONE_SIGHAND | nr::CLONE_THREAD;
        let words = [flags.into(), DATA + 0x700];
        assert_eq!(ask(process, nr::__NR_clone, &words), Ok(3));
        assert_eq!(call(process, 0, nr::__NR_pause, &[]), Turn::Other);
        begun(execute(process, 1, "/bin/name"));
        // It is the process's first thread from here on.
        for asked in [nr::__NR_gettid, nr::__NR_getpid] {
            assert_eq!(call(process, 1, asked, &[]), Turn::Answer(2));
        }
        let ended = call(process, 1, nr::__NR_exit, &[4]);
        assert_eq!(ended, Turn::End(4));
    });
}

#[test]
fn a_script_is_given_to_its_interpreter() {
    with(|process, _| {
        write_file(process, "/etc/script", b"#! /bin/name -x y\n");
        write_file(process, "/etc/other", b"#!/etc/script\n");
        list(process, ARGUMENTS, &["lost", "kept"]);
        list(process, ENVIRONMENT, &["C=d"]);
        let registers = begun(execute(process, 0, "/etc/other"));
        let (words, variables) = given(process, &registers);
        let wanted = ["/bin/name", "-x y", "/etc/script", "/etc/other", "kept"];
        assert_eq!(
            (words, variables.len()),
            (wanted.map(String::from).to_vec(), 1)
        );
        let path = super::text(process, "/proc/self/exe");
        let len = ask(process, nr::__NR_readlink, &[path, WORDS, 64]);
        assert_eq!(len, Ok("/bin/name".len() as u64));
    });
}

#[test]
fn what_cannot_be_executed_is_an_error_and_the_program_goes_on() {
    with(|process, _| {
        write_file(process, "/etc/plain", b"echo\n");
        write_file(process, "/etc/loop", b"#!/etc/loop\n");
        write_file(process, "/etc/lost", b"#!/bin/lost\n");
        write_file(process, "/etc/elf", b"\x7fELF");
        list(process, ARGUMENTS, &["a"]);
        list(process, ENVIRONMENT, &[]);
        for (path, error) in [
            ("/bin/lost", ENOENT),
            ("/bin", EACCES),
            ("/dev/null", EACCES),
            ("/etc/text", EACCES),
            ("/etc/plain", ENOEXEC),
            ("/etc/loop", ELOOP),
            ("/etc/lost", ENOENT),
            ("/etc/elf", ENOEXEC),
        ] {
            let turn = execute(process, 0, path);
            assert_eq!(turn, Turn::Answer(failed(error)), "{path}");
        }
        let told = "/etc/elf cannot be executed";
        assert!(process.machine.notes.contains(told) && process.machine.notes.lines().count() == 1);
        let before = process.machine.mapped.len();
        for (arguments, error) in [(1, EFAULT), (DATA + 0x1ff9, EFAULT)] {
            let path = super::text(process, "/bin/name");
            let turn = call(process, 0, nr::__NR_execve, &[path, arguments, 0]);
            assert_eq!(turn, Turn::Answer(failed(error)), "{arguments:#x}");
        }
        assert_eq!(process.machine.mapped.len(), before);
        assert_eq!(ask(process, nr::__NR_getpid, &[]), Ok(2));
    });
}

#[test]
fn too_many_words_are_refused() {
    with(|process, _| {
        let bytes = 16 << 10;
        let anonymous = u64::from(nr::MAP_PRIVATE | nr::MAP_ANONYMOUS);
        let words = [0, bytes, 3, anonymous];
        let at = ask(process, nr::__NR_mmap, &words).unwrap();
        for index in 0..1500 {
            process
                .write_words(at + 8 * index, &[at + bytes - 8])
                .unwrap();
        }
        let path = super::text(process, "/bin/name");
        let turn = call(process, 0, nr::__NR_execve, &[path, at, 0]);
        assert_eq!(turn, Turn::Answer(failed(E2BIG)));
        // Without any, it has one.
        let path = super::text(process, "/bin/name");
        let registers = begun(call(process, 0, nr::__NR_execve, &[path, 0, 0]));
        assert_eq!(
            given(process, &registers),
            (Vec::from([String::new()]), Vec::new())
        );
    });
}

#[test]
fn without_memory_for_another_program_the_old_one_goes_on() {
    with(|process, _| {
        list(process, ARGUMENTS, &["a"]);
        list(process, ENVIRONMENT, &[]);
        while super::map(process, 4096, super::BOTH).is_ok() {}
        let before = process.machine.mapped.len();
        let turn = execute(process, 0, "/bin/name");
        assert_eq!(turn, Turn::Answer(failed(ENOMEM)));
        assert_eq!(process.machine.mapped.len(), before);
        assert_eq!(ask(process, nr::__NR_getpid, &[]), Ok(2));
    });
}
