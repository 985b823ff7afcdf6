//! Pipes with names.

use linux_raw_sys::errno::{EAGAIN, ENXIO};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{
    O_NONBLOCK, O_RDONLY, O_RDWR, O_WRONLY, POLLIN, POLLOUT, S_IFIFO, SIGKILL,
};

use super::local::{close, events};
use super::net::HERE;
use super::threads::{Program, begin, call, last};
use super::{Answer, Errno, Turn, ask, machine_uses, text, with};

const NAME: &str = "/etc/named";

fn make(process: Program<'_, '_>) {
    let name = text(process, NAME);
    let words = [name, u64::from(S_IFIFO | 0o600), 0];
    assert_eq!(ask(process, nr::__NR_mknod, &words), Ok(0));
}

fn open(process: Program<'_, '_>, flags: u32) -> Answer {
    let name = text(process, NAME);
    ask(process, nr::__NR_open, &[name, flags.into(), 0])
}

fn nodes(process: Program<'_, '_>) -> usize {
    let all = 0..super::super::files::NODES;
    let is_used = |&node: &usize| process.files.node(node).kind != super::super::files::Kind::Free;
    all.filter(is_used).count()
}

#[test]
fn what_nobody_has_open_any_more_is_given_back() {
    with(|process, _| {
        let before = (machine_uses(process), nodes(process));
        for round in 0..70 {
            make(process);
            let both = open(process, O_RDWR).unwrap();
            assert_eq!(ask(process, nr::__NR_write, &[both, HERE, 9]), Ok(9));
            let unlink = |process: Program<'_, '_>| {
                let name = text(process, NAME);
                assert_eq!(ask(process, nr::__NR_unlink, &[name]), Ok(0));
            };
            if round % 2 == 0 {
                unlink(process);
            }
            let copy = ask(process, nr::__NR_dup, &[both]).unwrap();
            close(process, both);
            let all = (POLLIN | POLLOUT).into();
            assert_eq!(events(process, copy), all);
            close(process, copy);
            if round % 2 != 0 {
                unlink(process);
            }
            assert_eq!((machine_uses(process), nodes(process)), before);
        }
    });
}

#[test]
fn who_opens_waits_for_the_other_end_be_it_gone_again() {
    with(|process, _| {
        make(process);
        begin(process, 0);
        let name = text(process, NAME);
        let words = [name, u64::from(O_RDONLY), 0];
        assert_eq!(call(process, 0, nr::__NR_open, &words), Turn::Other);
        let words = [name, u64::from(O_WRONLY | O_NONBLOCK), 0];
        let Turn::Answer(writer) = call(process, 1, nr::__NR_open, &words) else {
            panic!("somebody waits to read");
        };
        let words = [writer, HERE, 4];
        assert_eq!(call(process, 1, nr::__NR_write, &words), Turn::Answer(4));
        assert_eq!(call(process, 1, nr::__NR_close, &[writer]), Turn::Answer(0));
        assert_eq!(call(process, 1, nr::__NR_exit, &[0]), Turn::Other);
        let (thread, reader) = last(process);
        assert_eq!(thread, 0);
        assert_eq!(ask(process, nr::__NR_read, &[reader, HERE, 9]), Ok(4));
        assert_eq!(ask(process, nr::__NR_read, &[reader, HERE, 9]), Ok(0));
        close(process, reader);
    });
}

#[test]
fn who_waited_and_is_no_more_is_no_other_end() {
    with(|process, _| {
        make(process);
        let before = machine_uses(process);
        let child = ask(process, nr::__NR_fork, &[]).unwrap();
        assert_eq!(call(process, 0, nr::__NR_sched_yield, &[]), Turn::Other);
        let name = text(process, NAME);
        let words = [name, u64::from(O_RDONLY), 0];
        assert_eq!(call(process, 1, nr::__NR_open, &words), Turn::Other);
        assert_eq!(last(process).0, 0);
        let killed = ask(process, nr::__NR_kill, &[child, SIGKILL.into()]);
        assert_eq!(killed, Ok(0));
        assert_eq!(open(process, O_WRONLY | O_NONBLOCK), Err(Errno(ENXIO)));
        assert_eq!(ask(process, nr::__NR_wait4, &[child, 0, 0, 0]), Ok(child));
        let reader = open(process, O_RDONLY | O_NONBLOCK).unwrap();
        let writer = open(process, O_WRONLY).unwrap();
        let read = ask(process, nr::__NR_read, &[reader, HERE, 9]);
        assert_eq!(read, Err(Errno(EAGAIN)));
        close(process, reader);
        close(process, writer);
        assert_eq!(machine_uses(process), before);
    });
}
