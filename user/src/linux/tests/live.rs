//! Input that comes while the machine runs.

use linux_raw_sys::errno::{EAGAIN, EBADF, ENOTTY, ESPIPE};
use linux_raw_sys::general::{F_SETFL, O_NONBLOCK, POLLHUP, POLLIN};
use linux_raw_sys::ioctl::TCGETS;

use super::*;

/// A process with such an input, of which nothing has come.
fn with_input(test: impl FnOnce(&mut Process<'_, Mock>)) {
    with(|process, _| {
        process.connect_input().unwrap();
        process.machine.may_come = true;
        test(process);
    });
}

fn came(process: &mut Process<'_, Mock>, bytes: &[u8]) {
    process.machine.input.push_back(bytes.to_vec());
}

fn read(process: &mut Process<'_, Mock>, bytes: u64) -> Next {
    let words = [0, DATA, bytes, 0, 0, 0];
    process.call(u64::from(nr::__NR_read), words)
}

/// What is told of the first descriptor, at once.
fn polled(process: &mut Process<'_, Mock>) -> u64 {
    process.ready = None;
    let asked = u64::from(POLLIN) << 32;
    process.write_words(DATA, &[asked]).unwrap();
    ask(process, nr::__NR_poll, &[DATA, 1, 0]).unwrap();
    process.word(DATA).unwrap() >> 48
}

#[test]
fn a_line_is_read_when_it_comes() {
    with_input(|process| {
        assert_eq!(read(process, 100), Next::Wait);
        came(process, b"hello\n");
        assert_eq!(read(process, 100), Next::Answer(Ok(6)));
        let mut line = [0; 6];
        process.read(DATA, &mut line).unwrap();
        assert_eq!(&line, b"hello\n");
        assert_eq!(read(process, 100), Next::Wait);
    });
}

#[test]
fn what_came_at_once_is_read_at_once_and_the_rest_stays() {
    with_input(|process| {
        came(process, &[7; 350]);
        came(process, b"next");
        assert_eq!(read(process, 300), Next::Answer(Ok(300)));
        assert_eq!(
            process.machine.input.len(),
            1,
            "no more than was given at once"
        );
        assert_eq!(read(process, 300), Next::Answer(Ok(50)));
        assert_eq!(read(process, 300), Next::Answer(Ok(4)));
    });
}

#[test]
fn nothing_is_fetched_before_it_is_wanted() {
    with_input(|process| {
        came(process, b"x");
        ask(process, nr::__NR_getpid, &[]).unwrap();
        assert_eq!(process.machine.input.len(), 1);
        assert_eq!(polled(process), u64::from(POLLIN));
        assert!(process.machine.input.is_empty());
    });
}

#[test]
fn the_end_is_told_once_all_was_read() {
    with_input(|process| {
        assert_eq!(polled(process), 0);
        came(process, b"x");
        process.machine.may_come = false;
        assert_eq!(read(process, 9), Next::Answer(Ok(1)));
        assert_eq!(polled(process), u64::from(POLLHUP));
        assert_eq!(read(process, 9), Next::Answer(Ok(0)));
        assert_eq!(read(process, 9), Next::Answer(Ok(0)));
    });
}

#[test]
fn it_is_a_pipe_and_no_terminal() {
    with_input(|process| {
        let set = [0, u64::from(F_SETFL), u64::from(O_NONBLOCK)];
        assert_eq!(ask(process, nr::__NR_fcntl, &set), Ok(0));
        assert_eq!(
            ask(process, nr::__NR_read, &[0, DATA, 9]),
            Err(Errno(EAGAIN))
        );
        let terminal = [0, u64::from(TCGETS), DATA];
        assert_eq!(ask(process, nr::__NR_ioctl, &terminal), Err(Errno(ENOTTY)));
        assert_eq!(ask(process, nr::__NR_lseek, &[0, 0, 1]), Err(Errno(ESPIPE)));
        assert_eq!(
            ask(process, nr::__NR_write, &[0, DATA, 1]),
            Err(Errno(EBADF))
        );
    });
}

#[test]
fn nothing_is_taken_for_which_there_is_no_memory() {
    with_input(|process| {
        came(process, b"kept");
        let mut taken = Vec::new();
        while let Some(frame) = process.machine.take() {
            taken.push(frame);
        }
        assert_eq!(read(process, 9), Next::Wait);
        process.machine.give_back(taken.pop().unwrap());
        assert_eq!(read(process, 9), Next::Answer(Ok(4)));
    });
}

#[test]
fn who_closed_it_is_given_nothing() {
    with_input(|process| {
        came(process, b"x");
        ask(process, nr::__NR_close, &[0]).unwrap();
        assert_eq!(
            ask(process, nr::__NR_read, &[0, DATA, 9]),
            Err(Errno(EBADF))
        );
        assert_eq!(process.machine.input.len(), 1);
    });
}
