//! Files that tell of processes and the machine.

use std::string::String;
use std::vec;

use linux_raw_sys::errno::{EACCES, ENOENT, ENOTDIR, EPERM};
use linux_raw_sys::general as nr;
use linux_raw_sys::general::{O_DIRECTORY, O_RDONLY, O_RDWR};

use super::local::close;
use super::net::Program;
use super::threads::call;
use super::{Answer, BOTH, DATA, Errno, Turn, ask, machine_uses, map, text, with};

fn open(process: Program<'_, '_>, path: &str, flags: u32) -> Answer {
    let path = text(process, path);
    ask(process, nr::__NR_open, &[path, flags.into(), 0])
}

fn content(process: Program<'_, '_>, path: &str) -> String {
    let file = open(process, path, O_RDONLY).unwrap();
    let room = map(process, 8192, BOTH).unwrap();
    let len = ask(process, nr::__NR_read, &[file, room, 8192]).unwrap();
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    process.read(room, &mut bytes).unwrap();
    close(process, file);
    assert_eq!(ask(process, nr::__NR_munmap, &[room, 8192]), Ok(0));
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_process_is_told_of_by_its_number_and_to_itself() {
    with(|process, _| {
        let before = machine_uses(process);
        for folder in ["self", "2", "../proc/2", "2/../self"] {
            let told = |process: Program<'_, '_>, name: &str| {
                content(process, &std::format!("/proc/{folder}/{name}"))
            };
            assert_eq!(told(process, "comm"), "name\n");
            assert_eq!(told(process, "cmdline"), "name\0one\0");
            let stat = told(process, "stat");
            assert!(stat.starts_with("2 (name) R 1 2 2 0 -1 "), "{stat}");
            assert_eq!(stat.split_whitespace().count(), 52);
            let maps = told(process, "maps");
            assert!(maps.starts_with("00400000-00401000 r-xp 00000000 00:00 0 \n"));
            let last = maps.lines().last().unwrap();
            assert_eq!(
                (&last[..3], last.find("[stack]")),
                ("7fe", Some(73)),
                "{last}"
            );
            assert!(told(process, "status").contains("\nUid:\t0\t0\t0\t0\n"));
        }
        // All but the page that the table of pages may need.
        assert_eq!(machine_uses(process), before);
        let memory = content(process, "/proc/meminfo");
        assert!(
            memory.starts_with("MemTotal:              0 kB\n"),
            "{memory}"
        );
        assert!(content(process, "/proc/cpuinfo").contains("\nmodel\t\t: "));
        assert_eq!(content(process, "/proc/sys/kernel/ostype"), "Linux\n");
        for (path, text) in [
            ("/proc/sys/kernel/tainted", "0\n"),
            ("/proc/sys/fs/nr_open", "1024\n"),
            (
                "/proc/mounts",
                "tmpfs / tmpfs rw 0 0\nproc /proc proc ro 0 0\n",
            ),
        ] {
            assert_eq!(content(process, path), text);
        }
        assert_eq!(content(process, "/proc/loadavg"), "0.00 0.00 0.00 1/1 2\n");
    });
}

#[test]
fn of_each_region_it_is_told_how_much_of_it_has_memory_and_is_locked() {
    with(|process, _| {
        let room = map(process, 3 * 4096, BOTH).unwrap();
        // Another right keeps the page apart from those around it.
        let middle = room + 4096;
        let protect = [middle, 4096, nr::PROT_READ.into()];
        assert_eq!(ask(process, nr::__NR_mprotect, &protect), Ok(0));
        assert_eq!(ask(process, nr::__NR_mlock, &[middle, 4096]), Ok(0));
        let told = content(process, "/proc/self/smaps");
        let head = std::format!("{middle:08x}-{:08x} r--p ", middle + 4096);
        let (_, of_middle) = told.split_once(&head).expect("the region stands there");
        let mut lines = of_middle.lines().skip(1);
        for line in [
            "Size:                  4 kB",
            "KernelPageSize:        4 kB",
            "MMUPageSize:           4 kB",
            "Rss:                   4 kB",
            "Shared_Clean:          0 kB",
            "Shared_Dirty:          0 kB",
            "Private_Clean:         0 kB",
            "Private_Dirty:         4 kB",
            "Referenced:            4 kB",
            "Anonymous:             4 kB",
            "Swap:                  0 kB",
            "Locked:                4 kB",
        ] {
            assert_eq!(lines.next(), Some(line));
        }
        let heads = told.lines().filter(|it| it.contains(" 00000000 00:00 0 "));
        assert!(heads.eq(content(process, "/proc/self/maps").lines()));
    });
}

#[test]
fn what_is_told_cannot_be_changed() {
    with(|process, _| {
        for path in ["/proc/self/stat", "/proc/2/stat", "/proc/meminfo"] {
            assert_eq!(open(process, path, O_RDWR), Err(Errno(EACCES)));
            let folder = open(process, path, O_RDONLY | O_DIRECTORY);
            assert_eq!(folder, Err(Errno(ENOTDIR)));
            let name = text(process, path);
            let unlink = ask(process, nr::__NR_unlink, &[name]);
            assert_eq!(unlink, Err(Errno(EPERM)));
            assert_eq!(
                ask(process, nr::__NR_chmod, &[name, 0o777]),
                Err(Errno(EPERM))
            );
        }
        assert_eq!(open(process, "/proc/3/stat", O_RDONLY), Err(Errno(ENOENT)));
        assert_eq!(open(process, "/proc/02/stat", O_RDONLY), Err(Errno(ENOENT)));
    });
}

#[test]
fn of_another_process_there_are_files_alone() {
    with(|process, _| {
        let child = ask(process, nr::__NR_fork, &[]).unwrap();
        assert_eq!(child, 3);
        assert_eq!(content(process, "/proc/3/cmdline"), "name\0one\0");
        assert!(content(process, "/proc/3/stat").starts_with("3 (name) R 2 2 2 "));
        assert_eq!(open(process, "/proc/3", O_RDONLY), Err(Errno(EACCES)));
        assert!(process.machine.notes.contains("folders of other processes"));
        assert_eq!(open(process, "/proc/3/fd/0", O_RDONLY), Err(Errno(ENOENT)));
        let file = open(process, "/proc/3/comm", O_RDONLY).unwrap();
        assert_eq!(call(process, 0, nr::__NR_sched_yield, &[]), Turn::Other);
        let ended = call(process, 1, nr::__NR_exit_group, &[0]);
        assert_eq!(ended, Turn::Other);
        assert!(content(process, "/proc/3/stat").starts_with("3 (name) Z 2 2 2 "));
        assert_eq!(content(process, "/proc/3/maps"), "");
        assert_eq!(ask(process, nr::__NR_wait4, &[3, 0, 0, 0]), Ok(3));
        assert_eq!(open(process, "/proc/3/stat", O_RDONLY), Err(Errno(ENOENT)));
        let read = ask(process, nr::__NR_read, &[file, DATA, 9]);
        assert_eq!(read, Err(Errno(linux_raw_sys::errno::ESRCH)));
    });
}
