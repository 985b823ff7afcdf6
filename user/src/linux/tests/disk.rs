//! The journal of the disk, on a disk that may be lost at any write.

use std::format;

use linux_raw_sys::errno::{EBUSY, EINVAL, EIO, ENOENT, ENOSPC, EXDEV};
use linux_raw_sys::general::{O_CREAT, O_DSYNC, O_RDONLY, O_RDWR, O_TRUNC};

use super::*;
use crate::disk::{Block, DiskError};
use crate::linux::Disk;

/// Blocks of the disk: as few as there may be.
const BLOCKS: usize = 256;

/// A disk, what was written since it was last told to make all last, and how many writes it does
/// before the machine is lost.
#[derive(Debug, Default, Clone)]
pub(super) struct Platter {
    blocks: Vec<Vec<u8>>,
    pending: BTreeMap<usize, Vec<u8>>,
    left: Option<usize>,
    writes: usize,
}

impl Platter {
    fn new() -> Self {
        Self {
            blocks: vec![vec![0; 4096]; BLOCKS],
            ..Self::default()
        }
    }

    fn begin(&mut self) -> Result<(), DiskError> {
        self.writes += 1;
        match &mut self.left {
            Some(0) => Err(DiskError::Broken),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The machine is lost: of what was not made to last these are there all the same.
    fn after_a_loss(mut self, kept: impl Fn(usize) -> bool) -> Self {
        for (block, bytes) in core::mem::take(&mut self.pending) {
            if kept(block) {
                self.blocks[block] = bytes;
            }
        }
        Self {
            left: None,
            writes: 0,
            ..self
        }
    }
}

impl Disk for Mock {
    fn blocks(&self) -> u64 {
        self.disk.blocks.len() as u64
    }

    fn read_block(&mut self, block: u64, into: &mut Block) -> Result<(), DiskError> {
        let block = usize::try_from(block).unwrap();
        let written = self.disk.pending.get(&block);
        into.copy_from_slice(written.unwrap_or(&self.disk.blocks[block]));
        Ok(())
    }

    fn write_block(&mut self, block: u64, from: &Block) -> Result<(), DiskError> {
        self.disk.begin()?;
        let block = usize::try_from(block).unwrap();
        assert!(block < BLOCKS);
        self.disk.pending.insert(block, from.to_vec());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        self.disk.begin()?;
        for (block, bytes) in core::mem::take(&mut self.disk.pending) {
            self.disk.blocks[block] = bytes;
        }
        Ok(())
    }
}

/// The bundle of the others, with the folder of a disk.
fn bundle_with_disk() -> Vec<u8> {
    let mut bytes = bundle();
    let folder = b"/disk";
    let mut set = |word: usize, value: u64| {
        bytes[8 * word..8 * word + 8].copy_from_slice(&value.to_le_bytes());
    };
    let end = u64::from_le_bytes(bundle()[8..16].try_into().unwrap());
    set(Word::Disk as usize, end);
    set(Word::Disk as usize + 1, folder.len() as u64);
    set(Word::Bytes as usize, end + folder.len() as u64);
    bytes.extend(folder);
    bytes
}

/// Runs a machine with this disk; the disk afterwards.
fn run(disk: Platter, act: impl FnOnce(&mut Process<'_, Mock>)) -> Result<Platter, &'static str> {
    let bytes = bundle_with_disk();
    let bundle = Bundle::new(&bytes).unwrap();
    let mut table = vec![0; Sparse::table_words(CHUNKS)];
    let mut pool = vec![0; Sparse::pool_words(CHUNKS)];
    let store = Sparse::new(&mut table, &mut pool);
    let mut nodes = Nodes::new();
    let mock = Mock {
        disk,
        ..Mock::default()
    };
    let (mut process, _) = Process::load(mock, store, &mut nodes, bundle)?;
    act(&mut process);
    Ok(process.machine.disk.clone())
}

fn open(process: &mut Process<'_, Mock>, path: &str, flags: u32) -> Answer {
    let path = text(process, path);
    ask(process, nr::__NR_open, &[path, flags.into(), 0o640])
}

/// Writes a file from a place on.
fn write(process: &mut Process<'_, Mock>, path: &str, at: u64, bytes: &[u8]) {
    let file = open(process, path, O_RDWR | O_CREAT).unwrap();
    for (part, at) in bytes.chunks(512).zip((at..).step_by(512)) {
        process.write(DATA + 0xc00, part).unwrap();
        let words = [file, DATA + 0xc00, part.len() as u64, at];
        assert_eq!(
            ask(process, nr::__NR_pwrite64, &words),
            Ok(part.len() as u64)
        );
    }
    ask(process, nr::__NR_close, &[file]).unwrap();
}

/// What is in a file.
fn content(process: &mut Process<'_, Mock>, path: &str) -> Result<Vec<u8>, Errno> {
    let file = open(process, path, O_RDONLY)?;
    let mut all = Vec::new();
    loop {
        let words = [file, DATA + 0xc00, 512];
        let count = ask(process, nr::__NR_read, &words)?;
        let mut part = vec![0; usize::try_from(count).unwrap()];
        process.read(DATA + 0xc00, &mut part).unwrap();
        all.extend(&part);
        if count == 0 {
            ask(process, nr::__NR_close, &[file])?;
            return Ok(all);
        }
    }
}

fn sync(process: &mut Process<'_, Mock>) -> Answer {
    let file = open(process, "/disk", O_RDONLY).unwrap();
    let answer = ask(process, nr::__NR_fsync, &[file]);
    ask(process, nr::__NR_close, &[file]).unwrap();
    answer
}

fn call_of(process: &mut Process<'_, Mock>, call: u32, path: &str, word: u64) -> Answer {
    let path = text(process, path);
    ask(process, call, &[path, word])
}

fn rename(process: &mut Process<'_, Mock>, from: &str, to: &str) -> Answer {
    two_names(process, nr::__NR_rename, from, to)
}

fn two_names(process: &mut Process<'_, Mock>, call: u32, from: &str, to: &str) -> Answer {
    let from = text(process, from);
    process.write(DATA + 0xa00, to.as_bytes()).unwrap();
    process.write(DATA + 0xa00 + to.len() as u64, &[0]).unwrap();
    ask(process, call, &[from, DATA + 0xa00])
}

#[test]
fn what_was_synced_is_there_in_the_next_machine_and_the_rest_is_not() {
    let long: Vec<u8> = (0..10_000_u32).map(|it| it.to_le_bytes()[0]).collect();
    let disk = run(Platter::new(), |process| {
        write(process, "/disk/a", 0, &long);
        call_of(process, nr::__NR_mkdir, "/disk/folder", 0o700).unwrap();
        write(process, "/disk/folder/b", 8192, b"behind a hole");
        assert_eq!(sync(process), Ok(0));
        write(process, "/disk/a", 0, b"later");
        write(process, "/disk/c", 0, b"later");
        write(process, "/else", 0, b"of this machine only");
    });
    let disk = disk.unwrap().after_a_loss(|_| false);
    let disk = run(disk, |process| {
        assert!(content(process, "/disk/a").unwrap() == long);
        let b = content(process, "/disk/folder/b").unwrap();
        assert_eq!((b.len(), &b[..8192]), (8205, &[0; 8192][..]));
        assert_eq!(&b[8192..], b"behind a hole");
        assert_eq!(content(process, "/disk/c"), Err(Errno(ENOENT)));
        assert_eq!(content(process, "/else"), Err(Errno(ENOENT)));
        let words = [text(process, "/disk/folder"), DATA + 0xc00];
        ask(process, nr::__NR_stat, &words).unwrap();
        let mode = process.word(DATA + 0xc00 + 24).unwrap() & 0xffff;
        assert_eq!(mode & 0o777, 0o700);
        rename(process, "/disk/a", "/disk/folder/b").unwrap();
        write(process, "/disk/a", 0, b"another one");
        process.unmount();
    });
    run(disk.unwrap().after_a_loss(|_| false), |process| {
        assert!(content(process, "/disk/folder/b").unwrap() == long);
        assert_eq!(content(process, "/disk/a").unwrap(), b"another one");
    })
    .unwrap();
}

#[test]
fn what_was_written_in_memory_is_there_once_it_is_asked_for_or_given_up() {
    let map = |process: &mut Process<'_, Mock>, path: &str| {
        let file = open(process, path, O_RDWR).unwrap();
        let rights = (nr::PROT_READ | nr::PROT_WRITE).into();
        let words = [0, 8192, rights, nr::MAP_SHARED.into(), file, 0];
        ask(process, nr::__NR_mmap, &words).unwrap()
    };
    let disk = run(Platter::new(), |process| {
        for path in ["/disk/a", "/disk/b", "/disk/c"] {
            write(process, path, 0, &[7; 8192]);
        }
        sync(process).unwrap();
        let [a, b, c] = ["/disk/a", "/disk/b", "/disk/c"].map(|path| map(process, path));
        process.write(b + 4096, b"given up").unwrap();
        assert_eq!(ask(process, nr::__NR_munmap, &[b, 8192]), Ok(0));
        process.write(a + 4096, b"asked for").unwrap();
        let words = [a, 8192, nr::MS_SYNC.into()];
        assert_eq!(ask(process, nr::__NR_msync, &words), Ok(0));
        process.write(c, b"later").unwrap();
    });
    let disk = disk.unwrap().after_a_loss(|_| false);
    let disk = run(disk, |process| {
        let all = |process: &mut Process<'_, Mock>, path: &str| content(process, path).unwrap();
        assert_eq!(
            &all(process, "/disk/a")[4090..4107],
            b"\x07\x07\x07\x07\x07\x07asked for\x07\x07"
        );
        assert_eq!(&all(process, "/disk/b")[4096..4104], b"given up");
        assert_eq!(all(process, "/disk/c"), [7; 8192]);
        let c = map(process, "/disk/c");
        process.write(c, b"at the end").unwrap();
        process.unmount();
    });
    run(disk.unwrap().after_a_loss(|_| false), |process| {
        let c = content(process, "/disk/c").unwrap();
        assert_eq!((&c[..10], c.len()), (&b"at the end"[..], 8192));
    })
    .unwrap();
}

#[test]
fn a_file_that_got_smaller_and_larger_has_no_bytes_of_before() {
    let disk = run(Platter::new(), |process| {
        write(process, "/disk/a", 0, &[7; 9000]);
        sync(process).unwrap();
        call_of(process, nr::__NR_truncate, "/disk/a", 10).unwrap();
        call_of(process, nr::__NR_truncate, "/disk/a", 9000).unwrap();
        sync(process).unwrap();
    });
    run(disk.unwrap().after_a_loss(|_| false), |process| {
        let a = content(process, "/disk/a").unwrap();
        assert_eq!((&a[..10], a.len()), (&[7; 10][..], 9000));
        assert!(a[10..].iter().all(|&byte| byte == 0));
    })
    .unwrap();
}

/// The steps of a program that keeps its state in two files, which have to go together.
fn step(process: &mut Process<'_, Mock>, number: u64) -> Answer {
    let body = vec![u8::try_from(number).unwrap(); 300 + usize::try_from(number).unwrap() * 700];
    write(process, "/disk/new", 0, &body);
    rename(process, "/disk/new", "/disk/state").unwrap();
    write(process, "/disk/count", 0, &number.to_le_bytes());
    if number.is_multiple_of(3) {
        write(process, &format!("/disk/{number}"), 0, &[3; 5000]);
    } else if number.is_multiple_of(4) {
        let _ = call_of(
            process,
            nr::__NR_unlink,
            &format!("/disk/{}", number - 1),
            0,
        );
    }
    sync(process)
}

/// What the two files say.
fn state(process: &mut Process<'_, Mock>) -> u64 {
    let Ok(count) = content(process, "/disk/count") else {
        assert_eq!(content(process, "/disk/state"), Err(Errno(ENOENT)));
        return 0;
    };
    let count = u64::from_le_bytes(count.try_into().unwrap());
    let state = content(process, "/disk/state").unwrap();
    let expected = vec![u8::try_from(count).unwrap(); 300 + usize::try_from(count).unwrap() * 700];
    assert_eq!(state, expected);
    let third = content(process, &format!("/disk/{count}"));
    assert_eq!(third.is_ok(), count.is_multiple_of(3), "{count}");
    count
}

#[test]
fn a_machine_that_is_lost_at_any_write_leaves_one_moment() {
    const STEPS: u64 = 9;
    let whole = run(Platter::new(), |process| {
        (1..=STEPS).for_each(|number| assert_eq!(step(process, number), Ok(0)));
    });
    let writes = whole.unwrap().writes;
    assert!(writes > 3 * 9);
    for left in 2..writes {
        let disk = Platter {
            left: Some(left),
            ..Platter::new()
        };
        let mut done = 0;
        let disk = run(disk, |process| {
            while done < STEPS && step(process, done + 1) == Ok(0) {
                done += 1;
            }
        });
        let disk = disk.unwrap();
        // Of what was on its way none, all, or every other block is there.
        for kept in [|_| false, |_| true, |it| it % 2 == 0, |it| it % 2 == 1] {
            let found = run(disk.clone().after_a_loss(kept), |process| {
                let count = state(process);
                assert!(
                    count == done || count == done + 1,
                    "{left}: {count} of {done}"
                );
                for number in count + 1..=STEPS {
                    assert_eq!(step(process, number), Ok(0));
                }
                assert_eq!(state(process), STEPS);
            });
            found.unwrap();
        }
    }
}

#[test]
fn a_half_that_is_full_is_left_for_the_other_one() {
    let disk = run(Platter::new(), |process| {
        for number in 1..=400_u64 {
            write(process, "/disk/count", 0, &number.to_le_bytes());
            assert_eq!(sync(process), Ok(0));
        }
    });
    let disk = disk.unwrap();
    let roots =
        [0, 1].map(|root| u64::from_le_bytes(disk.blocks[root][16..24].try_into().unwrap()));
    assert!(roots.iter().all(|&generation| generation > 3), "{roots:?}");
    run(disk.after_a_loss(|_| false), |process| {
        assert_eq!(
            content(process, "/disk/count").unwrap(),
            400_u64.to_le_bytes()
        );
    })
    .unwrap();
}

#[test]
fn damage_anywhere_but_behind_the_end_is_found() {
    let disk = run(Platter::new(), |process| {
        write(process, "/disk/a", 0, &[1; 5000]);
        sync(process).unwrap();
        write(process, "/disk/b", 0, &[2; 5000]);
        sync(process).unwrap();
    });
    let disk = disk.unwrap();
    let is_used = |block: &Vec<u8>| block.iter().any(|&byte| byte != 0);
    let used: Vec<usize> = (0..BLOCKS)
        .filter(|&it| is_used(&disk.blocks[it]))
        .collect();
    let last = run(disk.clone(), |process| {
        assert_eq!(content(process, "/disk/b").unwrap(), [2; 5000]);
    });
    last.unwrap();
    // The last transaction without its header was never made, as far as can be known.
    let mut all = used.iter().rev();
    let is_header = |it: &&usize| disk.blocks[**it].starts_with(b"rcoetran");
    let header = *all.find(is_header).unwrap();
    for &block in &used {
        for byte in [0, 8, 20, 63, 64, 100, 2048, 4095] {
            let mut hit = disk.clone();
            hit.blocks[block][byte] ^= 0x10;
            let found = run(hit, |process| {
                let b = content(process, "/disk/b");
                // What fills up a block means nothing.
                assert!(b.is_err() || b.unwrap() == [2; 5000], "{block} {byte}");
                assert_eq!(content(process, "/disk/a").unwrap(), [1; 5000]);
            });
            let is_text = |why: &&str| why.contains("damaged");
            assert!(found.is_ok() || found.as_ref().err().is_some_and(is_text));
            let may_pass = block == header && byte < 24 || disk.blocks[block][byte] == 0;
            assert!(found.is_err() || may_pass, "{block} {byte}");
        }
    }
}

#[test]
fn what_the_disk_has_no_room_for_is_refused_and_all_else_is_kept() {
    let disk = run(Platter::new(), |process| {
        let words = [text(process, "/disk"), DATA + 0xc00];
        ask(process, nr::__NR_statfs, &words).unwrap();
        let pages = process.word(DATA + 0xc00 + 16).unwrap();
        assert!((50..127).contains(&pages), "{pages}");
        // More than the memory of this machine has.
        let file = open(process, "/disk/a", O_RDWR | O_CREAT).unwrap();
        let mut at = 0;
        let refused = loop {
            let words = [file, DATA, 512, at];
            match ask(process, nr::__NR_pwrite64, &words) {
                Ok(count) => at += 4096 - 512 + count,
                Err(error) => break error,
            }
        };
        assert_eq!(refused, Errno(ENOSPC));
        assert_eq!(sync(process), Ok(0));
    });
    assert!(disk.is_ok());
}

#[test]
fn a_disk_that_fails_is_told_of_and_asked_again() {
    let disk = Platter {
        left: Some(2),
        ..Platter::new()
    };
    let disk = run(disk, |process| {
        write(process, "/disk/a", 0, b"text");
        assert_eq!(sync(process), Err(Errno(EIO)));
        assert_eq!(sync(process), Err(Errno(EIO)));
        process.unmount();
        let note = "the disk could not keep what changed last (error 5)";
        assert!(process.machine.notes.contains(note));
        process.machine.disk.left = None;
        assert_eq!(sync(process), Ok(0));
    });
    run(disk.unwrap().after_a_loss(|_| false), |process| {
        assert_eq!(content(process, "/disk/a").unwrap(), b"text");
    })
    .unwrap();
}

#[test]
fn disks_of_others_are_refused_and_left_alone() {
    let mut foreign = Platter::new();
    foreign.blocks[0][510] = 0x55;
    let refused = run(foreign, |_| {}).unwrap_err();
    assert!(refused.contains("what rcoe did not write"), "{refused}");
    let refused = run(Platter::default(), |_| {}).unwrap_err();
    assert!(refused.contains("there is no disk"), "{refused}");
    let small = Platter {
        blocks: vec![vec![0; 4096]; 255],
        ..Platter::default()
    };
    let refused = run(small, |_| {}).unwrap_err();
    assert!(refused.contains("too small"), "{refused}");
    let mut shrunk = run(Platter::new(), |_| {}).unwrap();
    let root = shrunk.blocks[1].clone();
    assert!(root.iter().any(|&byte| byte != 0));
    // As if it had been written on a larger one.
    let mut larger = Platter {
        blocks: vec![vec![0; 4096]; 300],
        ..Platter::default()
    };
    larger = run(larger, |_| {}).unwrap();
    shrunk.blocks[1] = larger.blocks[1].clone();
    let refused = run(shrunk, |_| {}).unwrap_err();
    assert!(refused.contains("smaller than it was"), "{refused}");
}

#[test]
fn files_do_not_move_between_disk_and_memory_and_writes_may_last_at_once() {
    let disk = run(Platter::new(), |process| {
        write(process, "/disk/a", 0, b"text");
        assert_eq!(rename(process, "/disk/a", "/a"), Err(Errno(EXDEV)));
        let file = open(process, "/disk/b", O_RDWR | O_CREAT | O_TRUNC | O_DSYNC).unwrap();
        process.write(DATA + 0xc00, b"lasts").unwrap();
        ask(process, nr::__NR_write, &[file, DATA + 0xc00, 5]).unwrap();
        let pipe = DATA + 0xd00;
        ask(process, nr::__NR_pipe2, &[pipe, 0]).unwrap();
        let reader = process.word(pipe).unwrap() & 0xffff_ffff;
        assert_eq!(ask(process, nr::__NR_fsync, &[reader]), Err(Errno(EINVAL)));
    });
    run(disk.unwrap().after_a_loss(|_| false), |process| {
        assert_eq!(content(process, "/disk/b").unwrap(), b"lasts");
    })
    .unwrap();
}

#[test]
fn what_is_open_lives_on_without_its_name_but_not_on_the_disk() {
    let disk = run(Platter::new(), |process| {
        write(process, "/disk/a", 0, &[5; 6000]);
        sync(process).unwrap();
        let left = process.machine.left();
        let file = open(process, "/disk/a", O_RDWR).unwrap();
        call_of(process, nr::__NR_unlink, "/disk/a", 0).unwrap();
        assert_eq!(content(process, "/disk/a"), Err(Errno(ENOENT)));
        write(process, "/disk/a", 0, b"new");
        sync(process).unwrap();
        assert_eq!(
            ask(process, nr::__NR_read, &[file, DATA + 0xc00, 512]),
            Ok(512)
        );
        assert_eq!(process.word(DATA + 0xc00), Ok(0x0505_0505_0505_0505));
        assert_eq!(ask(process, nr::__NR_fstat, &[file, DATA + 0xc00]), Ok(0));
        assert_eq!(process.word(DATA + 0xc00 + 16), Ok(0), "links");
        ask(process, nr::__NR_close, &[file]).unwrap();
        assert_eq!(process.machine.left(), left + 1, "two pages less, one more");
    });
    run(disk.unwrap().after_a_loss(|_| false), |process| {
        assert_eq!(content(process, "/disk/a").unwrap(), b"new");
    })
    .unwrap();
}

/// Words of what is told of a file itself.
fn told(process: &mut Process<'_, Mock>, path: &str) -> [u64; 18] {
    call_of(process, nr::__NR_lstat, path, DATA + 0xc00).unwrap();
    core::array::from_fn(|word| process.word(DATA + 0xc00 + 8 * word as u64).unwrap())
}

#[test]
fn links_further_names_times_and_folders_that_moved_are_kept() {
    let disk = run(Platter::new(), |process| {
        call_of(process, nr::__NR_mkdir, "/disk/one", 0o755).unwrap();
        write(process, "/disk/one/a", 0, b"text");
        two_names(process, nr::__NR_link, "/disk/one/a", "/disk/further").unwrap();
        two_names(process, nr::__NR_symlink, "one/a", "/disk/link").unwrap();
        assert_eq!(
            two_names(process, nr::__NR_link, "/disk/link", "/x"),
            Err(Errno(EXDEV))
        );
        sync(process).unwrap();
        rename(process, "/disk/one", "/disk/two").unwrap();
        process.write(DATA + 0xd00, &[0; 16]).unwrap();
        process
            .write(DATA + 0xd00 + 8, &77_u64.to_le_bytes())
            .unwrap();
        call_of(process, nr::__NR_utime, "/disk/two/a", DATA + 0xd00).unwrap();
        sync(process).unwrap();
        assert_eq!(
            call_of(process, nr::__NR_rmdir, "/disk", 0),
            Err(Errno(EBUSY))
        );
        assert_eq!(rename(process, "/disk", "/else"), Err(Errno(EBUSY)));
    });
    let disk = run(disk.unwrap().after_a_loss(|_| false), |process| {
        let [further, first] = ["/disk/further", "/disk/two/a"].map(|path| told(process, path));
        assert_eq!(further, first);
        assert_eq!((first[2], first[8 + 3], first[6]), (2, 77, 4));
        assert_eq!(content(process, "/disk/link"), Err(Errno(ENOENT)));
        rename(process, "/disk/two", "/disk/one").unwrap();
        assert_eq!(content(process, "/disk/link").unwrap(), b"text");
        // The first name goes, and the file is at the further one.
        call_of(process, nr::__NR_unlink, "/disk/one/a", 0).unwrap();
        call_of(process, nr::__NR_rmdir, "/disk/one", 0).unwrap();
        sync(process).unwrap();
    });
    run(disk.unwrap().after_a_loss(|_| false), |process| {
        assert_eq!(content(process, "/disk/further").unwrap(), b"text");
        assert_eq!(told(process, "/disk/further")[2], 1);
        assert_eq!(content(process, "/disk/one/a"), Err(Errno(ENOENT)));
        call_of(process, nr::__NR_unlink, "/disk/link", 0).unwrap();
        call_of(process, nr::__NR_unlink, "/disk/further", 0).unwrap();
        assert_eq!(process.files.kept_pages().1, 0);
    })
    .unwrap();
}

#[test]
fn all_numbers_may_be_used_up_between_two_moments() {
    let disk = run(Platter::new(), |process| {
        for round in 0..3 {
            for number in 0..900 {
                let path = format!("/disk/{round}-{number}");
                call_of(process, nr::__NR_mkdir, &path, 0o755).unwrap();
            }
            sync(process).unwrap();
            for number in 0..900 {
                let path = format!("/disk/{round}-{number}");
                call_of(process, nr::__NR_rmdir, &path, 0).unwrap();
            }
        }
        write(process, "/disk/last", 0, b"text");
        sync(process).unwrap();
    });
    run(disk.unwrap().after_a_loss(|_| false), |process| {
        assert_eq!(content(process, "/disk/last").unwrap(), b"text");
        let gone = call_of(process, nr::__NR_rmdir, "/disk/2-5", 0);
        assert_eq!(gone, Err(Errno(ENOENT)));
    })
    .unwrap();
}
