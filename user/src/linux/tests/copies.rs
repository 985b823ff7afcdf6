//! Calls that copy, append, exchange and move, and what is wrong with them, as LTP looks at it.

use linux_raw_sys::errno::{
    EAFNOSUPPORT, EBUSY, EINVAL, EISDIR, ELOOP, ENXIO, EOPNOTSUPP, EPROTONOSUPPORT, ESRCH, EXDEV,
};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{EPOLL_CTL_ADD, O_APPEND, O_CREAT, O_RDONLY, O_RDWR, O_WRONLY};
use std::borrow::ToOwned as _;

use super::*;

const TO: u64 = DATA + 0x200;
const SECOND: u64 = DATA + 0xa00;

type Program<'a, 'b> = &'a mut Process<'b, Mock>;

fn open(process: Program<'_, '_>, name: &str, flags: u32) -> u64 {
    let name = text(process, name);
    ask(process, nr::__NR_open, &[name, flags.into(), 0o600]).unwrap()
}

/// What is in a file, up to a few bytes.
fn content(process: Program<'_, '_>, name: &str) -> Vec<u8> {
    let file = open(process, name, O_RDONLY);
    let len = ask(process, nr::__NR_pread64, &[file, TO, 64, 0]).unwrap();
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    process.read(TO, &mut bytes).unwrap();
    assert_eq!(ask(process, nr::__NR_close, &[file]), Ok(0));
    bytes
}

#[test]
fn a_file_is_sent_to_files_and_pipes() {
    with(|process, _| {
        let from = open(process, "/etc/text", O_RDONLY);
        let to = open(process, "/to", O_RDWR | O_CREAT);
        let send =
            |process: Program<'_, '_>, words: [u64; 4]| ask(process, nr::__NR_sendfile, &words);
        assert_eq!(send(process, [to, from, 0, 4]), Ok(4));
        assert_eq!(send(process, [to, from, 0, 99]), Ok(6));
        assert_eq!(content(process, "/to"), b"0123456789");
        process.write_words(TO, &[7]).unwrap();
        assert_eq!(send(process, [to, from, TO, 99]), Ok(3));
        assert_eq!(process.word(TO), Ok(10));
        assert_eq!(content(process, "/to"), b"0123456789789");
        assert_eq!(ask(process, nr::__NR_pipe, &[TO]), Ok(0));
        let ends = process.word(TO).unwrap();
        let (reader, writer) = (ends & 0xffff, ends >> 32);
        process.write_words(TO, &[8]).unwrap();
        assert_eq!(send(process, [writer, from, TO, 9]), Ok(2));
        assert_eq!(ask(process, nr::__NR_read, &[reader, TO, 9]), Ok(2));
        assert_eq!(process.word(TO).unwrap().to_le_bytes()[..2], *b"89");
        let negative = (-1_i64).cast_unsigned();
        process.write_words(TO, &[negative]).unwrap();
        let appends = open(process, "/to", O_WRONLY | O_APPEND);
        for (words, error) in [
            ([99, from, 0, 1], EBADF),
            ([to, 99, 0, 1], EBADF),
            ([from, from, 0, 1], EBADF),
            ([to, appends, 0, 1], EBADF),
            ([to, from, 8, 1], EFAULT),
            ([to, from, TO, 1], EINVAL),
            ([to, from, 0, negative], EINVAL),
            ([appends, from, 0, 1], EINVAL),
            ([to, reader, 0, 1], EINVAL),
        ] {
            assert_eq!(send(process, words), Err(Errno(error)), "{words:?}");
        }
    });
}

#[test]
fn ranges_of_files_are_copied() {
    with(|process, _| {
        let from = open(process, "/etc/text", O_RDONLY);
        let to = open(process, "/to", O_RDWR | O_CREAT);
        let copy = |process: Program<'_, '_>, words: [u64; 6]| {
            ask(process, nr::__NR_copy_file_range, &words)
        };
        process.write_words(TO, &[5, 2]).unwrap();
        assert_eq!(copy(process, [from, TO, to, TO + 8, 3, 0]), Ok(3));
        let words = [TO, TO + 8].map(|at| process.word(at).unwrap());
        assert_eq!(words, [8, 5]);
        assert_eq!(content(process, "/to"), b"\0\x00567");
        assert_eq!(copy(process, [from, 0, to, 0, 2, 0]), Ok(2));
        assert_eq!(content(process, "/to"), b"01567");
        process.write_words(TO, &[10, 0, 1]).unwrap();
        assert_eq!(copy(process, [from, TO, to, 0, 2, 0]), Ok(0));
        let folder = open(process, "/etc", O_RDONLY);
        let told = open(process, "/proc/stat", O_RDONLY);
        let appends = open(process, "/to", O_WRONLY | O_APPEND);
        for (words, error) in [
            ([99, 0, to, 0, 1, 0], EBADF),
            ([from, 0, from, 0, 1, 0], EBADF),
            ([from, 0, appends, 0, 1, 0], EBADF),
            ([from, 0, to, 0, 1, 1], EINVAL),
            ([folder, 0, to, 0, 1, 0], EISDIR),
            ([0, 0, to, 0, 1, 0], EINVAL),
            ([told, 0, to, 0, 1, 0], EXDEV),
            ([to, TO + 8, to, TO + 16, 2, 0], EINVAL),
            ([from, 8, to, 0, 1, 0], EFAULT),
        ] {
            assert_eq!(copy(process, words), Err(Errno(error)), "{words:?}");
        }
    });
}

#[test]
fn what_is_appended_goes_to_the_end_wherever_it_is_wanted() {
    with(|process, _| {
        let file = open(process, "/etc/text", O_RDWR | O_APPEND);
        process.write(TO, b"ab").unwrap();
        assert_eq!(ask(process, nr::__NR_pwrite64, &[file, TO, 2, 3]), Ok(2));
        assert_eq!(ask(process, nr::__NR_lseek, &[file, 0, 1]), Ok(0));
        assert_eq!(content(process, "/etc/text"), b"0123456789ab");
    });
}

#[test]
fn tables_of_pieces_are_looked_at_as_a_whole() {
    with(|process, _| {
        let file = open(process, "/to", O_RDWR | O_CREAT);
        let negative = u64::MAX;
        process.write_words(TO, &[DATA, 4, DATA, negative]).unwrap();
        for call in [nr::__NR_writev, nr::__NR_readv, nr::__NR_pwritev] {
            let asked = ask(process, call, &[file, TO, 2, 0]);
            assert_eq!(asked, Err(Errno(EINVAL)), "{call}");
            let asked = ask(process, call, &[file, TO, 1025, 0]);
            assert_eq!(asked, Err(Errno(EINVAL)), "{call}");
        }
        assert_eq!(content(process, "/to"), b"");
        process.write_words(TO, &[DATA, 4, negative, 1]).unwrap();
        let asked = ask(process, nr::__NR_writev, &[1, TO, 2]);
        assert_eq!(asked, Err(Errno(EFAULT)));
    });
}

#[test]
fn two_names_are_exchanged_with_all_that_is_in_them() {
    with(|process, _| {
        let folder = text(process, "/folder");
        assert_eq!(ask(process, nr::__NR_mkdir, &[folder, 0o700]), Ok(0));
        let inside = open(process, "/folder/inside", O_RDWR | O_CREAT);
        process.write(TO, b"in").unwrap();
        assert_eq!(ask(process, nr::__NR_write, &[inside, TO, 2]), Ok(2));
        let here = (-100_i64).cast_unsigned();
        let exchange = |process: Program<'_, '_>, one: &str, two: &str, flags: u32| {
            process.write(SECOND, two.as_bytes()).unwrap();
            process.write(SECOND + two.len() as u64, &[0]).unwrap();
            let one = text(process, one);
            let words = [here, one, here, SECOND, flags.into()];
            ask(process, nr::__NR_renameat2, &words)
        };
        let both = nr::RENAME_EXCHANGE;
        assert_eq!(exchange(process, "/folder", "/etc/text", both), Ok(0));
        assert_eq!(content(process, "/folder"), b"0123456789");
        assert_eq!(content(process, "/etc/text/inside"), b"in");
        for (one, two, flags, error) in [
            ("/folder", "/none", both, ENOENT),
            ("/none", "/folder", both, ENOENT),
            ("/etc", "/etc/text", both, EINVAL),
            ("/etc/text", "/etc", both, EINVAL),
            ("/folder", "/etc", both | nr::RENAME_NOREPLACE, EINVAL),
            ("/folder", "/etc", 8, EINVAL),
        ] {
            let exchanged = exchange(process, one, two, flags);
            assert_eq!(exchanged, Err(Errno(error)), "{one} {two}");
        }
    });
}

#[test]
fn pollers_watch_one_another_up_to_a_depth_and_never_in_a_circle() {
    with(|process, _| {
        assert_eq!(ask(process, nr::__NR_pipe, &[TO]), Ok(0));
        let ends = process.word(TO).unwrap();
        let (reader, writer) = (ends & 0xffff, ends >> 32);
        let make = |process: Program<'_, '_>| ask(process, nr::__NR_epoll_create1, &[0]).unwrap();
        let add = |process: Program<'_, '_>, poller: u64, file: u64| {
            let mut event = [0; 12];
            (event[0], event[4]) = (1, u8::try_from(file).unwrap());
            process.write(TO, &event).unwrap();
            ask(
                process,
                nr::__NR_epoll_ctl,
                &[poller, EPOLL_CTL_ADD.into(), file, TO],
            )
        };
        let mut row = vec![reader];
        for _ in 0..5 {
            let poller = make(process);
            assert_eq!(add(process, poller, row[row.len() - 1]), Ok(0));
            row.push(poller);
        }
        let further = make(process);
        assert_eq!(add(process, further, row[5]), Err(Errno(ELOOP)));
        assert_eq!(add(process, row[1], row[5]), Err(Errno(ELOOP)));
        assert_eq!(add(process, row[1], row[1]), Err(Errno(EINVAL)));
        let wait = |process: Program<'_, '_>, poller: u64| {
            ask(process, nr::__NR_epoll_wait, &[poller, TO, 1, 0])
        };
        assert_eq!(wait(process, row[5]), Ok(0));
        assert_eq!(ask(process, nr::__NR_write, &[writer, CODE, 1]), Ok(1));
        for at in (1..=5).rev() {
            assert_eq!(wait(process, row[at]), Ok(1));
            assert_eq!(process.word(TO).unwrap() >> 32, row[at - 1]);
        }
    });
}

#[test]
fn a_mapping_is_moved_to_where_the_program_wants_it() {
    with(|process, _| {
        let fixed = u64::from(nr::MREMAP_FIXED | nr::MREMAP_MAYMOVE);
        let before = machine_uses(process);
        let old = map(process, 2 * PAGE, BOTH).unwrap();
        let new = map(process, 4 * PAGE, BOTH).unwrap();
        process.write_words(old + PAGE, &[7]).unwrap();
        process.write_words(new, &[8]).unwrap();
        let remap =
            |process: Program<'_, '_>, words: [u64; 5]| ask(process, nr::__NR_mremap, &words);
        for (words, error) in [
            ([old, PAGE, PAGE, nr::MREMAP_FIXED.into(), new], EINVAL),
            ([old, PAGE, PAGE, fixed, new + 1], EINVAL),
            ([old, 2 * PAGE, PAGE, fixed, old], EINVAL),
            ([old, 2 * PAGE, PAGE, fixed, old + PAGE], EINVAL),
            ([new + 4 * PAGE, PAGE, PAGE, fixed, old], EFAULT),
            ([CODE, PAGE, PAGE, fixed, new], EINVAL),
        ] {
            assert_eq!(remap(process, words), Err(Errno(error)), "{words:?}");
        }
        let read = nr::PROT_READ.into();
        assert_eq!(
            ask(process, nr::__NR_mprotect, &[old + PAGE, PAGE, read]),
            Ok(0)
        );
        let words = [old, 2 * PAGE, 3 * PAGE, fixed, new];
        assert_eq!(remap(process, words), Ok(new));
        let words = [PAGE, 2 * PAGE].map(|at| process.word(new + at));
        assert_eq!(words, [Ok(7), Ok(0)]);
        assert_eq!(process.word(old), Err(Errno(EFAULT)));
        // Rights go with it.
        assert_eq!(process.write(new, &[1]), Ok(()));
        assert_eq!(process.write(new + PAGE, &[1]), Err(Errno(EFAULT)));
        assert_eq!(ask(process, nr::__NR_munmap, &[new, 4 * PAGE]), Ok(0));
        assert_eq!(machine_uses(process), before);
    });
}

#[test]
fn pages_of_a_file_are_moved_with_their_file() {
    with(|process, _| {
        let fixed = u64::from(nr::MREMAP_FIXED | nr::MREMAP_MAYMOVE);
        let file = open(process, "/to", O_RDWR | O_CREAT);
        assert_eq!(ask(process, nr::__NR_ftruncate, &[file, 3 * PAGE]), Ok(0));
        let words = [0, 3 * PAGE, BOTH.into(), nr::MAP_SHARED.into(), file, 0];
        let old = ask(process, nr::__NR_mmap, &words).unwrap();
        let new = old + 16 * PAGE;
        let words = [old + PAGE, PAGE, PAGE, fixed, new];
        assert_eq!(ask(process, nr::__NR_mremap, &words), Ok(new));
        process.write_words(new, &[9]).unwrap();
        let words = [file, TO, 8, PAGE];
        assert_eq!(ask(process, nr::__NR_pread64, &words), Ok(8));
        assert_eq!(process.word(TO), Ok(9));
        assert_eq!(ask(process, nr::__NR_ftruncate, &[file, PAGE]), Ok(0));
        assert_eq!(process.word(new), Err(Errno(EFAULT)));
        assert_eq!(ask(process, nr::__NR_munmap, &[old, 32 * PAGE]), Ok(0));
    });
}

#[test]
fn holes_of_files_are_found() {
    with(|process, _| {
        let file = open(process, "/to", O_RDWR | O_CREAT);
        assert_eq!(
            ask(process, nr::__NR_pwrite64, &[file, DATA, 4, PAGE + 7]),
            Ok(4)
        );
        assert_eq!(ask(process, nr::__NR_ftruncate, &[file, 3 * PAGE]), Ok(0));
        let packed = open(process, "/etc/text", O_RDONLY);
        let folder = open(process, "/etc", O_RDONLY);
        let (data, hole) = (nr::SEEK_DATA.into(), nr::SEEK_HOLE.into());
        for (words, found) in [
            ([file, 0, data], Ok(PAGE)),
            ([file, PAGE + 9, data], Ok(PAGE + 9)),
            ([file, 0, hole], Ok(0)),
            ([file, PAGE + 1, hole], Ok(2 * PAGE)),
            ([file, 2 * PAGE, data], Err(Errno(ENXIO))),
            ([file, 3 * PAGE, hole], Err(Errno(ENXIO))),
            ([file, u64::MAX, hole], Err(Errno(ENXIO))),
            ([packed, 3, data], Ok(3)),
            ([packed, 3, hole], Ok(10)),
            ([folder, 0, data], Err(Errno(EINVAL))),
        ] {
            assert_eq!(ask(process, nr::__NR_lseek, &words), found, "{words:?}");
        }
    });
}

#[test]
fn what_is_wrong_with_a_call_is_told_as_on_linux() {
    with(|process, _| {
        let file = open(process, "/to", O_RDWR | O_CREAT);
        let here = (-100_i64).cast_unsigned();
        let (told, name) = ("/proc/cpuinfo", text(process, "/etc/new"));
        process.write(SECOND, told.as_bytes()).unwrap();
        let link = [here, SECOND, here, name, 0];
        assert_eq!(ask(process, nr::__NR_linkat, &link), Err(Errno(EXDEV)));
        for (mode, error) in [(0o170_000, EINVAL), (0o040_000, EPERM), (0o020_000, ENOSYS)] {
            let node = [name, mode, 0];
            assert_eq!(ask(process, nr::__NR_mknod, &node), Err(Errno(error)));
        }
        let wrong = [here, name, 9999];
        assert_eq!(ask(process, nr::__NR_unlinkat, &wrong), Err(Errno(EINVAL)));
        let read = nr::PROT_READ.into();
        let validated = u64::from(nr::MAP_SHARED_VALIDATE);
        let private = nr::MAP_PRIVATE.into();
        for (words, error) in [
            ([0, PAGE, read, validated | 1 << 31, file, 0], EOPNOTSUPP),
            ([0, PAGE, read, validated | 0x20, 0, 0], EINVAL),
            ([0, 0, read, private, 99, 0], EBADF),
            ([0, 0, read, private, file, 0], EINVAL),
        ] {
            assert_eq!(ask(process, nr::__NR_mmap, &words), Err(Errno(error)));
        }
        let none = [0, PAGE, read];
        assert_eq!(ask(process, nr::__NR_mprotect, &none), Err(Errno(ENOMEM)));
        for (words, answer) in [
            ([0, 128, TO], Ok(8)),
            ([1, 8, TO], Ok(8)),
            ([0, 0, TO], Err(Errno(EINVAL))),
            ([0, 12, TO], Err(Errno(EINVAL))),
            ([999, 8, TO], Err(Errno(ESRCH))),
            ([0, 8, 8], Err(Errno(EFAULT))),
        ] {
            assert_eq!(ask(process, nr::__NR_sched_getaffinity, &words), answer);
        }
        process.write_words(TO, &[0, 1]).unwrap();
        for clock in [nr::CLOCK_MONOTONIC_RAW, nr::CLOCK_THREAD_CPUTIME_ID] {
            let slept = ask(process, nr::__NR_clock_nanosleep, &[clock.into(), 0, TO]);
            assert_eq!(slept, Err(Errno(EOPNOTSUPP)));
        }
    });
}

#[test]
fn a_file_that_is_mapped_can_be_mapped_longer() {
    with(|process, _| {
        let file = open(process, "/to", O_RDWR | O_CREAT);
        assert_eq!(ask(process, nr::__NR_ftruncate, &[file, 2 * PAGE]), Ok(0));
        let words = [0, PAGE, BOTH.into(), nr::MAP_SHARED.into(), file, 0];
        let old = ask(process, nr::__NR_mmap, &words).unwrap();
        process.write_words(old, &[7]).unwrap();
        let words = [old, PAGE, 3 * PAGE, nr::MREMAP_MAYMOVE.into()];
        let new = ask(process, nr::__NR_mremap, &words).unwrap();
        assert_eq!(process.word(new), Ok(7));
        process.write_words(new + PAGE, &[8]).unwrap();
        assert_eq!(ask(process, nr::__NR_pread64, &[file, TO, 8, PAGE]), Ok(8));
        assert_eq!(process.word(TO), Ok(8));
        assert_eq!(process.word(new + 2 * PAGE), Err(Errno(EFAULT)));
        assert_eq!(ask(process, nr::__NR_munmap, &[new, 3 * PAGE]), Ok(0));
    });
}

#[test]
fn a_word_that_is_not_there_wakes_nobody() {
    with(|process, _| {
        let none = 1 << 40;
        let (wake, requeue) = (nr::FUTEX_WAKE.into(), nr::FUTEX_CMP_REQUEUE.into());
        let private = u64::from(nr::FUTEX_WAKE | nr::FUTEX_PRIVATE_FLAG);
        let negative = u64::from(u32::MAX);
        for (words, answer) in [
            ([none, wake, 1, 0, 0, 0], Err(Errno(EFAULT))),
            ([none, private, 1, 0, 0, 0], Ok(0)),
            ([DATA, requeue, 1, 1, none, 0], Err(Errno(EFAULT))),
            (
                [DATA, requeue, negative, 1, DATA + 4, 0],
                Err(Errno(EINVAL)),
            ),
            (
                [DATA, requeue, 1, negative, DATA + 4, 0],
                Err(Errno(EINVAL)),
            ),
        ] {
            assert_eq!(ask(process, nr::__NR_futex, &words), answer, "{words:?}");
        }
    });
}

/// How many KiB of the program's memory are to stay there.
fn locked(process: Program<'_, '_>) -> String {
    let file = open(process, "/proc/self/status", O_RDONLY);
    let len = ask(process, nr::__NR_read, &[file, SECOND, 0x600]).unwrap();
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    process.read(SECOND, &mut bytes).unwrap();
    assert_eq!(ask(process, nr::__NR_close, &[file]), Ok(0));
    let text = String::from_utf8(bytes).unwrap();
    let line = text.lines().find_map(|it| it.strip_prefix("VmLck:"));
    line.unwrap().trim().to_owned()
}

#[test]
fn what_is_to_stay_in_memory_is_told() {
    with(|process, _| {
        assert_eq!(locked(process), "0 kB");
        let start = map(process, 4 * PAGE, BOTH).unwrap();
        let lock = [start + 7, PAGE];
        assert_eq!(ask(process, nr::__NR_mlock, &lock), Ok(0));
        assert_eq!(ask(process, nr::__NR_mlock, &lock), Ok(0));
        assert_eq!(locked(process), "8 kB");
        let flags = u64::from(nr::MS_INVALIDATE);
        let busy = ask(process, nr::__NR_msync, &[start, PAGE, flags]);
        assert_eq!(busy, Err(Errno(EBUSY)));
        assert_eq!(ask(process, nr::__NR_munlock, &[start, PAGE]), Ok(0));
        assert_eq!(ask(process, nr::__NR_msync, &[start, PAGE, flags]), Ok(0));
        assert_eq!(locked(process), "4 kB");
        // A page that is moved, or gets other rights, stays what it is.
        let read = nr::PROT_READ.into();
        let protect = [start + PAGE, PAGE, read];
        assert_eq!(ask(process, nr::__NR_mprotect, &protect), Ok(0));
        assert_eq!(locked(process), "4 kB");
        assert_eq!(ask(process, nr::__NR_munmap, &[start, 4 * PAGE]), Ok(0));
        assert_eq!(locked(process), "0 kB");
        let flags = nr::MAP_PRIVATE | nr::MAP_ANONYMOUS | nr::MAP_LOCKED;
        let words = [0, 2 * PAGE, BOTH.into(), flags.into()];
        assert!(ask(process, nr::__NR_mmap, &words).is_ok());
        assert_eq!(locked(process), "8 kB");
        let later = nr::MCL_FUTURE.into();
        assert_eq!(ask(process, nr::__NR_mlockall, &[later]), Ok(0));
        map(process, PAGE, BOTH).unwrap();
        assert_eq!(locked(process), "12 kB");
        assert_eq!(ask(process, nr::__NR_munlockall, &[]), Ok(0));
        map(process, PAGE, BOTH).unwrap();
        assert_eq!(locked(process), "0 kB");
    });
}

#[test]
fn kinds_of_sockets_and_times_that_cannot_be_are_told_apart() {
    with(|process, _| {
        for (words, error) in [
            ([2, 75, 0], EINVAL),
            ([2, 11, 0], EINVAL),
            ([2, 5, 0], EPROTONOSUPPORT),
            ([0, 1, 0], EAFNOSUPPORT),
        ] {
            assert_eq!(ask(process, nr::__NR_socket, &words), Err(Errno(error)));
        }
        process.write_words(TO, &[1 << 62, 1 << 62]).unwrap();
        let none = text(process, "/none");
        assert_eq!(
            ask(process, nr::__NR_utime, &[none, TO]),
            Err(Errno(ENOENT))
        );
        assert_eq!(ask(process, nr::__NR_utime, &[none, 8]), Err(Errno(EFAULT)));
        let there = text(process, "/etc/text");
        assert_eq!(
            ask(process, nr::__NR_utime, &[there, TO]),
            Err(Errno(EINVAL))
        );
        assert_eq!(content(process, "/proc/sys/kernel/domainname"), b"(none)\n");
    });
}
