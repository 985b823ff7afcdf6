//! Room for files, files without names, ranges of descriptors, and pieces at a place.

use linux_raw_sys::errno::{EAGAIN, EBUSY, ENODEV, EOPNOTSUPP, ESPIPE};

use super::net::{HERE, Program};
use super::*;

const O_RDWR: u64 = 2;

fn size(process: Program<'_, '_>, file: u64) -> u64 {
    ask(process, nr::__NR_lseek, &[file, 0, 2]).unwrap()
}

fn memory(process: Program<'_, '_>, flags: u64) -> u64 {
    let name = text(process, "name");
    ask(process, nr::__NR_memfd_create, &[name, flags]).unwrap()
}

#[test]
fn room_that_a_file_is_given_reads_as_zeroes() {
    with(|process, _| {
        let path = text(process, "/etc/text");
        let file = ask(process, nr::__NR_open, &[path, O_RDWR]).unwrap();
        let give = |process: Program<'_, '_>, words: [u64; 3]| {
            ask(
                process,
                nr::__NR_fallocate,
                &[file, words[0], words[1], words[2]],
            )
        };
        assert_eq!(give(process, [1, 0, 100]), Ok(0));
        assert_eq!(size(process, file), 10);
        assert_eq!(give(process, [0, 5, 0x1000]), Ok(0));
        assert_eq!(size(process, file), 0x1005);
        // A hole, and what is as if it were one.
        assert_eq!(give(process, [3, 2, 2]), Ok(0));
        assert_eq!(give(process, [0x10, 6, 2]), Ok(0));
        assert_eq!(ask(process, nr::__NR_pread64, &[file, HERE, 12, 0]), Ok(12));
        let mut bytes = [1; 12];
        process.read(HERE, &mut bytes).unwrap();
        assert_eq!(&bytes, b"01\0\x0045\0\x0089\0\0");
        for words in [[2, 0, 4], [8, 0, 4], [0x13, 0, 4]] {
            assert_eq!(give(process, words), Err(Errno(EOPNOTSUPP)), "{words:?}");
        }
        assert_eq!(give(process, [0, 0, 0]), Err(Errno(EINVAL)));
        assert_eq!(give(process, [0, 1 << 63, 1]), Err(Errno(EINVAL)));
        let before = size(process, file);
        assert_eq!(give(process, [0, 0, 1 << 29]), Err(Errno(ENOSPC)));
        assert_eq!(size(process, file), before);
        let reads = ask(process, nr::__NR_open, &[path, 0]).unwrap();
        let wrong = ask(process, nr::__NR_fallocate, &[reads, 0, 0, 1]);
        assert_eq!(wrong, Err(Errno(EBADF)));
        assert_eq!(ask(process, nr::__NR_pipe, &[HERE]), Ok(0));
        let writer = process.word(HERE).unwrap() >> 32;
        let wrong = ask(process, nr::__NR_fallocate, &[writer, 0, 0, 1]);
        assert_eq!(wrong, Err(Errno(ESPIPE)));
    });
}

#[test]
fn a_file_without_a_name_is_there_until_it_is_closed() {
    with(|process, _| {
        let before = machine_uses(process);
        let file = memory(process, 1);
        let private = ask(process, nr::__NR_fcntl, &[file, nr::F_GETFD.into()]);
        assert_eq!(private, Ok(1));
        assert_eq!(ask(process, nr::__NR_write, &[file, CODE, 8]), Ok(8));
        assert_eq!(size(process, file), 8);
        let shared = [0, 0x1000, 3, 1, file, 0];
        let at = ask(process, nr::__NR_mmap, &shared).unwrap();
        process.write(at, b"by memory").unwrap();
        assert_eq!(ask(process, nr::__NR_pread64, &[file, HERE, 8, 0]), Ok(8));
        let mut bytes = [0; 8];
        process.read(HERE, &mut bytes).unwrap();
        assert_eq!(&bytes, b"by memor");
        assert_eq!(ask(process, nr::__NR_munmap, &[at, 0x1000]), Ok(0));
        assert_eq!(ask(process, nr::__NR_close, &[file]), Ok(0));
        assert_eq!(machine_uses(process), before);
        let name = text(process, "name");
        let wrong = ask(process, nr::__NR_memfd_create, &[name, 0x100]);
        assert_eq!(wrong, Err(Errno(EINVAL)));
        let wrong = ask(process, nr::__NR_memfd_create, &[8, 0]);
        assert_eq!(wrong, Err(Errno(EFAULT)));
    });
}

#[test]
fn a_range_of_descriptors_is_closed_or_will_be() {
    with(|process, _| {
        let files = [0; 3].map(|_| memory(process, 0));
        let range = |process: Program<'_, '_>, first: u64, last: u64, flags: u64| {
            ask(process, nr::__NR_close_range, &[first, last, flags])
        };
        assert_eq!(range(process, files[1], files[1], 4), Ok(0));
        let private = files.map(|it| ask(process, nr::__NR_fcntl, &[it, nr::F_GETFD.into()]));
        assert_eq!(private, [Ok(0), Ok(1), Ok(0)]);
        assert_eq!(range(process, files[1], u64::from(u32::MAX), 2), Ok(0));
        let open = files.map(|it| ask(process, nr::__NR_fcntl, &[it, nr::F_GETFD.into()]).is_ok());
        assert_eq!(open, [true, false, false]);
        assert_eq!(range(process, 5, 4, 0), Err(Errno(EINVAL)));
        assert_eq!(range(process, 4, 5, 8), Err(Errno(EINVAL)));
    });
}

#[test]
fn pieces_are_read_and_written_at_a_place() {
    with(|process, _| {
        let file = memory(process, 0);
        let table = DATA + 0x500;
        process.write(HERE, b"abcdef").unwrap();
        process.write_words(table, &[HERE, 2, HERE + 3, 3]).unwrap();
        let write = [file, table, 2, 1];
        assert_eq!(ask(process, nr::__NR_pwritev, &write), Ok(5));
        assert_eq!(size(process, file), 6);
        assert_eq!(ask(process, nr::__NR_lseek, &[file, 0, 0]), Ok(0));
        process.write_words(table, &[HERE, 1, HERE + 1, 9]).unwrap();
        assert_eq!(ask(process, nr::__NR_preadv, &[file, table, 2, 2]), Ok(4));
        let mut bytes = [0; 4];
        process.read(HERE, &mut bytes).unwrap();
        assert_eq!(&bytes, b"bdef");
        assert_eq!(ask(process, nr::__NR_lseek, &[file, 0, 1]), Ok(0));
        for call in [
            nr::__NR_preadv,
            nr::__NR_pwritev,
            nr::__NR_pread64,
            nr::__NR_pwrite64,
        ] {
            let words = [file, table, 2, u64::MAX];
            assert_eq!(ask(process, call, &words), Err(Errno(EINVAL)));
        }
        assert_eq!(ask(process, nr::__NR_pipe, &[HERE]), Ok(0));
        let reader = process.word(HERE).unwrap() & 0xffff_ffff;
        let wrong = ask(process, nr::__NR_preadv, &[reader, table, 2, 0]);
        assert_eq!(wrong, Err(Errno(ESPIPE)));
    });
}

#[test]
fn a_mapping_that_cannot_be_is_refused_as_linux_does() {
    with(|process, _| {
        let file = memory(process, 0);
        let path = text(process, "/etc/text");
        let writes = ask(process, nr::__NR_open, &[path, 1]).unwrap();
        let path = text(process, "/etc");
        let folder = ask(process, nr::__NR_open, &[path, 0]).unwrap();
        for (words, why) in [
            // Neither private nor shared; nothing; no file; none to be read; a folder.
            ([0, 0x1000, 1, 0x20, 0, 0], EINVAL),
            ([0, 0, 1, 2, file, 0], EINVAL),
            ([0, 0x1000, 1, 2, 99, 0], EBADF),
            ([0, 0x1000, 1, 2, writes, 0], EACCES),
            ([0, 0x1000, 1, 2, folder, 0], ENODEV),
            ([0, 0x1000, 1, 2, file, 1], EINVAL),
        ] {
            let answer = ask(process, nr::__NR_mmap, &words);
            assert_eq!(answer, Err(Errno(why)), "{words:?}");
        }
    });
}

#[test]
fn advice_is_of_memory_that_is_there() {
    with(|process, _| {
        let advise = |process: Program<'_, '_>, at: u64, advice: u32| {
            ask(process, nr::__NR_madvise, &[at, 0x1000, advice.into()])
        };
        for (at, advice, answer) in [
            (DATA, nr::MADV_NORMAL, Ok(0)),
            (DATA, nr::MADV_HUGEPAGE, Ok(0)),
            (DATA + 1, nr::MADV_NORMAL, Err(Errno(EINVAL))),
            (DATA, 99, Err(Errno(EINVAL))),
            (1 << 40, nr::MADV_WILLNEED, Err(Errno(ENOMEM))),
            // A program that is told so has another way; one that is not would share its secrets.
            (DATA, nr::MADV_WIPEONFORK, Err(Errno(EINVAL))),
            (DATA, nr::MADV_DONTFORK, Err(Errno(EINVAL))),
            (DATA, nr::MADV_FREE, Err(Errno(EINVAL))),
        ] {
            assert_eq!(advise(process, at, advice), answer, "{at:#x} {advice}");
        }
        for call in [nr::__NR_mlock, nr::__NR_munlock] {
            assert_eq!(ask(process, call, &[DATA + 1, 8]), Ok(0));
            assert_eq!(ask(process, call, &[1 << 40, 8]), Err(Errno(ENOMEM)));
        }
    });
}

#[test]
fn a_pipe_holds_what_is_asked_for_up_to_what_there_is() {
    with(|process, _| {
        assert_eq!(ask(process, nr::__NR_pipe, &[HERE]), Ok(0));
        let both = process.word(HERE).unwrap();
        let (get, set) = (u64::from(nr::F_GETPIPE_SZ), u64::from(nr::F_SETPIPE_SZ));
        for file in [both & 0xffff_ffff, both >> 32] {
            for (what, size, answer) in [
                (get, 0, Ok(65536)),
                (set, 65537, Err(Errno(EPERM))),
                (set, 1 << 31 | 1, Err(Errno(EINVAL))),
                (set, 4097, Ok(8192)),
                (get, 0, Ok(8192)),
                (set, 0, Ok(4096)),
                (set, 65536, Ok(65536)),
            ] {
                assert_eq!(ask(process, nr::__NR_fcntl, &[file, what, size]), answer);
            }
        }
        let (reader, writer) = (both & 0xffff_ffff, both >> 32);
        let write = |process: &mut Process<'_, Mock>, bytes: u64| {
            ask(process, nr::__NR_write, &[writer, CODE, bytes])
        };
        let nonblocking = [writer, nr::F_SETFL.into(), nr::O_NONBLOCK.into()];
        assert_eq!(ask(process, nr::__NR_fcntl, &nonblocking), Ok(0));
        assert_eq!(ask(process, nr::__NR_fcntl, &[writer, set, 4096]), Ok(4096));
        for bytes in [4000, 96] {
            let words = [writer, DATA, bytes];
            assert_eq!(ask(process, nr::__NR_write, &words), Ok(bytes));
        }
        assert_eq!(write(process, 1), Err(Errno(EAGAIN)));
        assert_eq!(ask(process, nr::__NR_fcntl, &[writer, set, 8192]), Ok(8192));
        assert_eq!(write(process, 1), Ok(1));
        let smaller = ask(process, nr::__NR_fcntl, &[reader, set, 4096]);
        assert_eq!(smaller, Err(Errno(EBUSY)));
        assert_eq!(
            ask(process, nr::__NR_fcntl, &[0, get, 0]),
            Err(Errno(EBADF))
        );
    });
}

#[test]
fn a_watcher_is_made_of_a_number_and_does_not_watch_itself() {
    with(|process, _| {
        for size in [0, u64::MAX] {
            let wrong = ask(process, nr::__NR_epoll_create, &[size]);
            assert_eq!(wrong, Err(Errno(EINVAL)));
        }
        let file = ask(process, nr::__NR_epoll_create, &[1]).unwrap();
        let own = [file, nr::EPOLL_CTL_ADD.into(), file, HERE];
        assert_eq!(ask(process, nr::__NR_epoll_ctl, &own), Err(Errno(EINVAL)));
        // What a processor is cannot be kept from a program.
        assert_eq!(ask(process, nr::__NR_arch_prctl, &[0x1011]), Ok(1));
        let wrong = ask(process, nr::__NR_arch_prctl, &[0x1012, 0]);
        assert_eq!(wrong, Err(Errno(ENODEV)));
    });
}

#[test]
fn what_cannot_be_asked_of_a_file_is_refused_as_linux_does() {
    with(|process, _| {
        let file = memory(process, 0);
        assert_eq!(
            ask(process, nr::__NR_fcntl, &[file, 999, 0]),
            Err(Errno(EINVAL))
        );
        assert!(process.machine.notes.contains("the command 999 of fcntl"));
        assert_eq!(
            ask(process, nr::__NR_fcntl, &[99, 999, 0]),
            Err(Errno(EBADF))
        );
        let path = text(process, "/etc/text");
        let here = (-100_i64).cast_unsigned();
        let wrong = ask(process, nr::__NR_faccessat2, &[here, path, 0, 2]);
        assert_eq!(wrong, Err(Errno(EINVAL)));
        assert_eq!(ask(process, nr::__NR_fsync, &[file]), Ok(0));
        // Standard input leads to what is nowhere.
        for call in [nr::__NR_fsync, nr::__NR_fdatasync] {
            assert_eq!(ask(process, call, &[0]), Err(Errno(EINVAL)));
        }
    });
}

#[test]
fn a_file_that_is_given_an_owner_gives_nobody_rights() {
    with(|process, _| {
        for (mode, kept) in [(0o6775, 0o775), (0o6765, 0o2765), (0o644, 0o644)] {
            let path = text(process, "/etc/text");
            assert_eq!(ask(process, nr::__NR_chmod, &[path, mode]), Ok(0));
            assert_eq!(ask(process, nr::__NR_chown, &[path, 0, u64::MAX]), Ok(0));
            assert_eq!(ask(process, nr::__NR_stat, &[path, HERE]), Ok(0));
            let found = process.word(HERE + 24).unwrap() & 0o7777;
            assert_eq!(found, kept, "{mode:o}");
        }
        let path = text(process, "/etc/text");
        let wrong = ask(process, nr::__NR_chown, &[path, 5, 5]);
        assert_eq!(wrong, Err(Errno(EPERM)));
    });
}

#[test]
fn calls_that_ask_for_what_there_is_not_are_refused_as_linux_does() {
    with(|process, _| {
        let file = memory(process, 0);
        let path = text(process, "/etc/text");
        let here = (-100_i64).cast_unsigned();
        let (socket, room) = (ask(process, nr::__NR_socket, &[2, 1]).unwrap(), HERE + 64);
        process.write_words(room, &[u64::from(u32::MAX)]).unwrap();
        for (call, words) in [
            (nr::__NR_getrandom, [HERE, 8, 8, 0, 0]),
            (nr::__NR_getrandom, [HERE, 8, 6, 0, 0]),
            (nr::__NR_getrusage, [2, HERE, 0, 0, 0]),
            (nr::__NR_newfstatat, [here, path, HERE, 0x2, 0]),
            (nr::__NR_statx, [here, path, 0x2, 0, HERE]),
            (nr::__NR_statx, [here, path, 0, 1 << 31, HERE]),
            (nr::__NR_getsockname, [socket, HERE, room, 0, 0]),
            (nr::__NR_ftruncate, [file, u64::MAX, 0, 0, 0]),
        ] {
            assert_eq!(
                ask(process, call, &words),
                Err(Errno(EINVAL)),
                "{call} {words:?}"
            );
        }
        assert_eq!(ask(process, nr::__NR_getrandom, &[HERE, 8, 3]), Ok(8));
        let wrong = ask(process, nr::__NR_gettimeofday, &[0, 8]);
        assert_eq!(wrong, Err(Errno(EFAULT)));
        process.write_words(HERE, &[7]).unwrap();
        assert_eq!(ask(process, nr::__NR_gettimeofday, &[0, HERE]), Ok(0));
        assert_eq!(process.word(HERE), Ok(0));
    });
}
