//! What is told of files, folders and the machine.

use linux_raw_sys::errno::{EISDIR, EOPNOTSUPP, ESPIPE, ESRCH};
use linux_raw_sys::general as nr;

use super::*;

/// Where answers go.
const TO: u64 = DATA + 0x400;
const HERE: u64 = (-100_i64).cast_unsigned();

fn words<const COUNT: usize>(process: &Process<'_, Mock>) -> [u64; COUNT] {
    core::array::from_fn(|at| process.word(TO + 8 * at as u64).unwrap())
}

#[test]
fn a_file_is_told_of_alike_in_either_way() {
    with(|process, _| {
        let path = text(process, "/etc/text");
        assert_eq!(ask(process, nr::__NR_stat, &[path, TO]), Ok(0));
        let [
            device,
            number,
            links,
            mode,
            _,
            _,
            size,
            block,
            blocks,
            seconds,
            ..,
        ] = words::<18>(process);
        let file = ask(process, nr::__NR_open, &[path, 0]).unwrap();
        let nothing = text(process, "");
        let empty = nr::AT_EMPTY_PATH.into();
        for (folder, path, flags) in [(file, nothing, empty), (HERE, path, 0)] {
            let path = if flags == 0 {
                text(process, "/etc/text")
            } else {
                path
            };
            let asked = [folder, path, flags, 0xfff, TO];
            assert_eq!(ask(process, nr::__NR_statx, &asked), Ok(0));
            let told = words::<32>(process);
            assert_eq!(told[0], 0x7ff | block << 32);
            assert_eq!((told[2], told[3]), (links, mode << 32));
            assert_eq!(told[4..7], [number, size, blocks]);
            assert_eq!([told[8], told[12], told[14]], [seconds; 3]);
            assert_eq!(told[17], device << 32);
        }
        let absent = text(process, "/absent");
        let asked = [HERE, absent, 0, 0, TO];
        assert_eq!(ask(process, nr::__NR_statx, &asked), Err(Errno(ENOENT)));
    });
}

#[test]
fn the_machine_and_what_holds_files_have_the_memory_of_a_replica() {
    let mut bytes = bundle();
    bytes[Word::Pages as usize * 8..][..8].copy_from_slice(&77_u64.to_le_bytes());
    with_bundle(&bytes, |process, _| {
        assert_eq!(ask(process, nr::__NR_sysinfo, &[TO]), Ok(0));
        let told = words::<14>(process);
        assert_eq!((told[4], told[10], told[13]), (77 * PAGE, 1, 1));
        let path = text(process, "/etc");
        assert_eq!(ask(process, nr::__NR_statfs, &[path, TO]), Ok(0));
        let told = words::<15>(process);
        assert_eq!(told[..3], [0x0102_1994, PAGE, 77]);
        assert_eq!(ask(process, nr::__NR_fstatfs, &[1, TO]), Ok(0));
        assert_eq!(words::<15>(process), told);
        let bad = Err(Errno(EBADF));
        assert_eq!(ask(process, nr::__NR_fstatfs, &[99, TO]), bad);
        let absent = text(process, "/absent");
        let none = Err(Errno(ENOENT));
        assert_eq!(ask(process, nr::__NR_statfs, &[absent, TO]), none);
    });
}

#[test]
fn paths_begin_from_a_folder_that_is_open() {
    with(|process, _| {
        let path = text(process, "/etc");
        let folder = ask(process, nr::__NR_open, &[path, 0]).unwrap();
        assert_eq!(ask(process, nr::__NR_fchdir, &[folder]), Ok(0));
        let path = text(process, "text");
        let file = ask(process, nr::__NR_open, &[path, 0]).unwrap();
        for (file, error) in [(file, ENOTDIR), (1, ENOTDIR), (99, EBADF)] {
            let refused = ask(process, nr::__NR_fchdir, &[file]);
            assert_eq!(refused, Err(Errno(error)));
        }
    });
}

#[test]
fn advice_attributes_and_pages_that_are_there() {
    with(|process, _| {
        let path = text(process, "/etc/text");
        let file = ask(process, nr::__NR_open, &[path, 0]).unwrap();
        assert_eq!(ask(process, nr::__NR_pipe, &[TO]), Ok(0));
        let pipe = process.word(TO).unwrap() & 0xffff_ffff;
        for (file, advice, answer) in [
            (file, 2, Ok(0)),
            (file, 6, Err(Errno(EINVAL))),
            (pipe, 2, Err(Errno(ESPIPE))),
            (99, 2, Err(Errno(EBADF))),
        ] {
            let asked = [file, 0, 0, advice];
            assert_eq!(ask(process, nr::__NR_fadvise64, &asked), answer);
        }
        let none = Err(Errno(EOPNOTSUPP));
        assert_eq!(ask(process, nr::__NR_lgetxattr, &[path, 0, 0, 0]), none);
        assert_eq!(ask(process, nr::__NR_flistxattr, &[file, 0, 0]), none);
        let pages = |process: &mut _, at, bytes| ask(process, nr::__NR_mincore, &[at, bytes, TO]);
        process.write(TO, &[0; 3]).unwrap();
        assert_eq!(pages(process, DATA, PAGE + 1), Ok(0));
        assert_eq!(process.word(TO).unwrap() & 0xff_ffff, 0x0101);
        for (at, bytes, error) in [
            (DATA + 1, 1, EINVAL),
            (DATA, 9 * PAGE, ENOMEM),
            (DATA, u64::MAX, ENOMEM),
            (PAGE.wrapping_neg(), 2 * PAGE, ENOMEM),
        ] {
            assert_eq!(pages(process, at, bytes), Err(Errno(error)));
        }
    });
}

#[test]
fn a_path_gives_a_file_another_size_and_there_is_one_core() {
    with(|process, _| {
        let path = text(process, "/etc/text");
        assert_eq!(ask(process, nr::__NR_truncate, &[path, 3]), Ok(0));
        assert_eq!(ask(process, nr::__NR_stat, &[path, TO]), Ok(0));
        assert_eq!(words::<7>(process)[6], 3);
        let too_much = Err(Errno(EINVAL));
        assert_eq!(ask(process, nr::__NR_truncate, &[path, u64::MAX]), too_much);
        let path = text(process, "/etc");
        let folder = Err(Errno(EISDIR));
        assert_eq!(ask(process, nr::__NR_truncate, &[path, 0]), folder);
        for (process_number, cores, answer) in [
            (0, 3, Ok(0)),
            (2, 1, Ok(0)),
            (0, 2, Err(Errno(EINVAL))),
            (99, 1, Err(Errno(ESRCH))),
        ] {
            process.write_words(TO, &[cores]).unwrap();
            let asked = [process_number, 8, TO];
            assert_eq!(ask(process, nr::__NR_sched_setaffinity, &asked), answer);
        }
        process.machine.now = 2_000_000_000;
        assert_eq!(ask(process, nr::__NR_times, &[TO]), Ok(200));
        assert_eq!(words::<4>(process), [0; 4]);
    });
}
