//! Code: of a loader, and of files that are mapped.

use linux_raw_sys::auxvec::{AT_BASE, AT_ENTRY, AT_NULL};
use linux_raw_sys::errno::{EACCES, EINVAL};
use linux_raw_sys::general as nr;
use rcoe_abi::Rights;
use rcoe_abi::bundle::PROGRAM_WORDS;

use super::*;

const READ: u32 = nr::PROT_READ;
const CODE_RIGHTS: u32 = nr::PROT_READ | nr::PROT_EXEC;
const PRIVATE: u32 = nr::MAP_PRIVATE;
/// What there is of the program's code, with an instruction replaced.
const REPLACED: [u8; 5] = [0x06, 0xa2, 0x0f, 0x31, 0xc3];

/// Maps a page of a file.
fn map_file(process: &mut Process<'_, Mock>, file: u64, how: [u32; 2], offset: u64) -> Answer {
    let [protection, flags] = how.map(u64::from);
    ask(
        process,
        nr::__NR_mmap,
        &[0, PAGE, protection, flags, file, offset],
    )
}

fn open(process: &mut Process<'_, Mock>, path: &str) -> u64 {
    let path = text(process, path);
    ask(process, nr::__NR_open, &[path, 0]).unwrap()
}

/// Is `cpuid` answered at this address?
fn is_answered(process: &mut Process<'_, Mock>, address: u64) -> bool {
    let mut registers = [0; CALL_WORDS];
    registers[15] = address;
    let after = process.exception((6, 0), &registers);
    after.is_some_and(|after| after[15] == address + 2)
}

#[test]
fn code_of_a_file_is_mapped_with_its_instructions_replaced() {
    with(|process, _| {
        let file = open(process, "/bin/name");
        let place = map_file(process, file, [CODE_RIGHTS, PRIVATE], 0).unwrap();
        let mut code = [0; 5];
        process.read(place, &mut code).unwrap();
        assert_eq!(code, REPLACED);
        // What is no code of the file's reads as zeroes.
        assert_eq!(process.word(place + 8), Ok(0));
        let mut rights = process.machine.mapped.values();
        let right = Rights::READ.or(Rights::EXECUTE);
        assert!(rights.any(|it| (it.1, it.2) == (place, right)));
        assert_eq!(process.write(place, &[0]), Err(Errno(EFAULT)));
        assert!(is_answered(process, place) && !is_answered(process, place + 2));
        // Read alone a file is what it is, and it does not become code.
        let data = map_file(process, file, [READ, PRIVATE], 0).unwrap();
        process.read(data, &mut code).unwrap();
        assert_eq!(code[..2], [0x0f, 0xa2]);
        let words = [data, PAGE, CODE_RIGHTS.into()];
        assert_eq!(ask(process, nr::__NR_mprotect, &words), Err(Errno(EACCES)));
        // Whole pages are mapped.
        let words = [0, 1, CODE_RIGHTS.into(), PRIVATE.into(), file, 0];
        let short = ask(process, nr::__NR_mmap, &words).unwrap();
        process.read(short, &mut code).unwrap();
        assert_eq!(code, REPLACED);
        // Once it is taken out nothing is left of it.
        ask(process, nr::__NR_munmap, &[place, PAGE]).unwrap();
        assert!(!is_answered(process, place));
        let words = [
            place,
            PAGE,
            READ.into(),
            (PRIVATE | nr::MAP_FIXED).into(),
            file,
            0,
        ];
        assert_eq!(ask(process, nr::__NR_mmap, &words), Ok(place));
        assert!(!is_answered(process, place));
    });
}

#[test]
fn code_that_a_child_inherits_is_answered_for() {
    with(|process, _| {
        let file = open(process, "/bin/name");
        let place = map_file(process, file, [CODE_RIGHTS, PRIVATE], 0).unwrap();
        ask(process, nr::__NR_fork, &[]).unwrap();
        ask(process, nr::__NR_munmap, &[place, PAGE]).unwrap();
        assert!(!is_answered(process, place));
        process.enter(1);
        assert!(is_answered(process, place) && is_answered(process, CODE));
    });
}

#[test]
fn no_other_code_is_mapped() {
    with(|process, _| {
        let file = open(process, "/bin/name");
        let other = open(process, "/etc/text");
        let private = [CODE_RIGHTS, PRIVATE];
        for (file, how, offset, error) in [
            (other, private, 0, EACCES),
            (file, [CODE_RIGHTS | nr::PROT_WRITE, PRIVATE], 0, EACCES),
            (file, [CODE_RIGHTS, nr::MAP_SHARED], 0, EACCES),
            (file, [CODE_RIGHTS, PRIVATE | nr::MAP_ANONYMOUS], 0, EACCES),
            (file, private, PAGE, EACCES),
            (file, private, 1, EINVAL),
            (99, private, 0, EBADF),
            (1, private, 0, EACCES),
        ] {
            assert_eq!(map_file(process, file, how, offset), Err(Errno(error)));
        }
        for (bytes, error) in [(0, EINVAL), (u64::MAX, ENOMEM), (u64::MAX - 4095, ENOMEM)] {
            let words = [0, bytes, CODE_RIGHTS.into(), PRIVATE.into(), file, 0];
            let refused = ask(process, nr::__NR_mmap, &words);
            assert_eq!(refused, Err(Errno(error)));
        }
        let told = process.machine.notes.lines().count();
        assert_eq!(told, 1, "{}", process.machine.notes);
        // A file that was written is another one.
        let path = text(process, "/bin/name");
        let flags = u64::from(nr::O_RDWR);
        let file = ask(process, nr::__NR_open, &[path, flags]).unwrap();
        assert_eq!(ask(process, nr::__NR_ftruncate, &[file, 6]), Ok(0));
        assert_eq!(map_file(process, file, private, 0), Err(Errno(EACCES)));
    });
}

#[test]
fn a_program_with_a_loader_begins_there() {
    let mut bytes = bundle();
    let at = |word: usize| word * 8..word * 8 + 8;
    let word = |bytes: &[u8], place: usize| {
        let bytes = bytes[at(place)].try_into().unwrap();
        usize::try_from(u64::from_le_bytes(bytes)).unwrap()
    };
    // The program is its own loader.
    let record = word(&bytes, Word::Programs as usize) / 8;
    bytes[at(record + PROGRAM_WORDS - 1)].copy_from_slice(&1_u64.to_le_bytes());
    with_bundle(&bytes, |process, begin| {
        let pairs: BTreeMap<u64, u64> = (6..50)
            .step_by(2)
            .map_while(|at| {
                let word = |at: u64| process.word(begin.stack + 8 * at).ok();
                Some((word(at)?, word(at + 1)?))
            })
            .take_while(|it| it.0 != u64::from(AT_NULL))
            .collect();
        let base = pairs[&AT_BASE.into()];
        assert_eq!(pairs[&AT_ENTRY.into()], CODE + 4);
        assert_eq!(begin.entry, base + 4);
        for place in [CODE, base] {
            let mut code = [0; 5];
            process.read(place, &mut code).unwrap();
            assert_eq!(code, REPLACED);
            assert!(is_answered(process, place));
        }
        process.write(base + (DATA - CODE), &[7]).unwrap();
        assert_eq!(process.word(DATA).unwrap() & 0xff, 0x0f);
    });
}
