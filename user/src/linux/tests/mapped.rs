//! Files that are mapped to be shared.

use linux_raw_sys::errno::{EFAULT, ENODEV, ENOMEM};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{O_CREAT, O_RDONLY, O_RDWR, O_TRUNC};

use super::local::close;
use super::net::{HERE, Program, bytes};
use super::threads::{call, last};
use super::{Answer, BOTH, Errno, Turn, ask, machine_uses, text, with};
use crate::linux::machine::PAGE;
use crate::linux::signals::Trap;

const NAME: &str = "/etc/mapped";

fn open(process: Program<'_, '_>, flags: u32) -> u64 {
    let name = text(process, NAME);
    ask(process, nr::__NR_open, &[name, flags.into(), 0o600]).unwrap()
}

fn map(process: Program<'_, '_>, file: u64, pages: u64, at: u64) -> Answer {
    let shared = nr::MAP_SHARED.into();
    let words = [0, pages * PAGE, BOTH.into(), shared, file, at * PAGE];
    ask(process, nr::__NR_mmap, &words)
}

fn resize(process: Program<'_, '_>, file: u64, bytes: u64) {
    assert_eq!(ask(process, nr::__NR_ftruncate, &[file, bytes]), Ok(0));
}

fn unmap(process: Program<'_, '_>, at: u64, pages: u64) {
    assert_eq!(ask(process, nr::__NR_munmap, &[at, pages * PAGE]), Ok(0));
}

fn unlink(process: Program<'_, '_>) {
    let name = text(process, NAME);
    assert_eq!(ask(process, nr::__NR_unlink, &[name]), Ok(0));
}

#[test]
fn memory_and_file_are_one_until_both_have_given_it_up() {
    for order in 0..4 {
        with(|process, _| {
            let before = machine_uses(process);
            let file = open(process, O_RDWR | O_CREAT);
            resize(process, file, 2 * PAGE + 5);
            let one = map(process, file, 4, 0).unwrap();
            let two = map(process, file, 1, 1).unwrap();
            process.write(one + PAGE, b"memory").unwrap();
            assert_eq!(process.word(one + PAGE), process.word(two));
            let words = [file, HERE, 6, PAGE];
            assert_eq!(ask(process, nr::__NR_pread64, &words), Ok(6));
            assert_eq!(bytes(process, 6), b"memory");
            process.write(HERE, b"file").unwrap();
            let words = [file, HERE, 4, PAGE];
            assert_eq!(ask(process, nr::__NR_pwrite64, &words), Ok(4));
            assert_eq!(process.word(one + PAGE), process.word(two));
            assert_eq!(process.word(one + 3 * PAGE), Err(Errno(EFAULT)));
            match order {
                0 => {
                    resize(process, file, 1);
                    unmap(process, one, 4);
                    unmap(process, two, 1);
                }
                1 => {
                    unmap(process, one + PAGE, 2);
                    unmap(process, two, 1);
                    unmap(process, one, 4);
                }
                2 => {
                    close(process, file);
                    unlink(process);
                    unmap(process, one, 4);
                    assert_ne!(process.word(two), Ok(0));
                    unmap(process, two, 1);
                }
                _ => {
                    close(process, file);
                    let emptied = open(process, O_RDWR | O_TRUNC);
                    assert_eq!(process.word(two), Err(Errno(EFAULT)));
                    resize(process, emptied, 3 * PAGE);
                    assert_eq!(process.word(two), Ok(0));
                    unmap(process, one, 2);
                    unmap(process, two, 1);
                    unmap(process, one, 4);
                    close(process, emptied);
                }
            }
            if order < 2 {
                close(process, file);
            }
            if order != 2 {
                unlink(process);
            }
            assert_eq!(machine_uses(process), before);
        });
    }
}

#[test]
fn children_have_the_same_mappings_and_their_ends_leave_those_of_others() {
    with(|process, _| {
        let before = machine_uses(process);
        let file = open(process, O_RDWR | O_CREAT);
        resize(process, file, PAGE);
        let place = map(process, file, 2, 0).unwrap();
        assert_eq!(ask(process, nr::__NR_fork, &[]), Ok(3));
        assert_eq!(call(process, 0, nr::__NR_sched_yield, &[]), Turn::Other);
        assert_eq!(last(process), (1, 0));
        let words = [file, 2 * PAGE];
        let longer = call(process, 1, nr::__NR_ftruncate, &words);
        assert_eq!(longer, Turn::Answer(0));
        process.write_words(place + PAGE, &[7]).unwrap();
        assert_eq!(call(process, 1, nr::__NR_exit_group, &[0]), Turn::Other);
        assert_eq!(process.word(place + PAGE), Ok(7));
        assert_eq!(ask(process, nr::__NR_wait4, &[3, 0, 0, 0]), Ok(3));
        unmap(process, place, 2);
        close(process, file);
        unlink(process);
        assert_eq!(machine_uses(process), before);
    });
}

#[test]
fn a_page_that_the_file_does_not_have_is_told_by_a_signal() {
    with(|process, _| {
        let file = open(process, O_RDWR | O_CREAT);
        let place = map(process, file, 1, 0).unwrap();
        let trap = Trap::Page {
            address: place,
            code: 4,
        };
        assert_eq!(process.trapped(0, trap, &[0; 18]), Turn::End(128 + 7));
    });
}

#[test]
fn what_cannot_be_shared_is_refused_by_name() {
    with(|process, _| {
        let name = text(process, "/bin/name");
        let file = ask(process, nr::__NR_open, &[name, O_RDONLY.into(), 0]).unwrap();
        let words = [
            0,
            PAGE,
            nr::PROT_READ.into(),
            nr::MAP_SHARED.into(),
            file,
            0,
        ];
        let program = ask(process, nr::__NR_mmap, &words);
        assert_eq!(program, Err(Errno(ENODEV)));
        assert!(process.machine.notes.contains("a file that is a program"));
        let file = open(process, O_RDWR | O_CREAT);
        resize(process, file, 100 * PAGE);
        let before = machine_uses(process);
        assert_eq!(map(process, file, 100, 0), Err(Errno(ENOMEM)));
        assert!(
            process
                .machine
                .notes
                .contains("no more memory that processes can share")
        );
        resize(process, file, 0);
        assert!(machine_uses(process) <= before);
        let folder = text(process, "/etc");
        let folder = ask(process, nr::__NR_open, &[folder, 0, 0]).unwrap();
        assert_eq!(
            map(process, folder, 1, 0),
            Err(Errno(linux_raw_sys::errno::EACCES))
        );
        let words = [
            0,
            PAGE,
            nr::PROT_READ.into(),
            nr::MAP_SHARED.into(),
            folder,
            0,
        ];
        assert_eq!(ask(process, nr::__NR_mmap, &words), Err(Errno(ENODEV)));
        for _ in 0..128 {
            assert!(map(process, file, 1, 0).is_ok());
        }
        assert_eq!(map(process, file, 1, 0), Err(Errno(ENOMEM)));
    });
}
