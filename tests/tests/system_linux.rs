//! The system sphere: unmodified static programs of Linux.

use rcoe_tests::launch::{Ended, Outcome};
use rcoe_tests::linux::{GLIBC, MUSL};
use rcoe_tests::rcoe::{Scene, events_of};
use rcoe_tests::sample::{pairs, sampled};
use rcoe_tests::system::{is_aarch64, system, system_with, words};

/// What libraries do at their start and when they are used: thread-local data, the heap, mappings,
/// faults of calls, time, random numbers, files, floating point.
const WORK: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static __thread int own = 41;

static uint64_t hash(uint64_t rounds)
{
    uint64_t digest = 1;
    for (uint64_t i = 0; i < rounds; i++) {
        digest = (digest ^ i) * 0x9e3779b97f4a7c15ull;
        digest ^= digest >> 29;
    }
    return digest;
}

static void memory(void)
{
    char *block = malloc(3 << 20);
    memset(block, 7, 3 << 20);
    block = realloc(block, 5 << 20);
    printf("own %d, heap %d %d\n", ++own, block[0], block[(3 << 20) - 1]);
    free(block);
    char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[5000] = 3;
    printf("pages %d %d, protect %d", page[0], page[5000], mprotect(page, 4096, PROT_READ));
    printf(", unmap %d\n", munmap(page, 8192));
    int written = write(1, page, 3), why = errno;
    printf("no memory %d %d\n", written, why == EFAULT);
}

static void input(void)
{
    struct timespec first, second;
    clock_gettime(CLOCK_MONOTONIC, &first);
    clock_gettime(CLOCK_MONOTONIC, &second);
    int later = second.tv_sec > first.tv_sec || second.tv_nsec >= first.tv_nsec;
    printf("time %d %d\n", later, time(0) > 1700000000);
    unsigned char drawn[32] = {0}, zeros[32] = {0};
    printf("random %d %d\n", (int)getrandom(drawn, 32, 0), memcmp(drawn, zeros, 32) != 0);
}

static void files(void)
{
    char back[16] = {0};
    struct stat status;
    int file = open("made", O_CREAT | O_RDWR | O_TRUNC, 0644);
    int wrote = write(file, "0123456789", 10);
    lseek(file, 4, SEEK_SET);
    int was = read(file, back, 15);
    fstat(file, &status);
    printf("file %d %d %s %d\n", wrote, was, back, (int)status.st_size);
    close(file);
    unlink("made");
    printf("gone %d\n", access("made", F_OK));
}

int main(int argc, char **argv)
{
    memory();
    input();
    files();
    for (int i = 1; i < argc; i++)
        printf("%d: '%s'\n", i, argv[i]);
    printf("%s %.6f\n", getenv("WORD"), argc / 7.0);
    for (int i = 0; i < 10; i++) {
        printf("%016llx\n", (unsigned long long)hash(strtoull(argv[1], 0, 10)));
        fflush(stdout);
    }
    return 33;
}
"#;

const ANYWHERE: &[&str] = &["gcc", "-static-pie", "-fPIE"];

fn compile(scene: &Scene, name: &str, compiler: &[&str], source: &str) {
    scene.compile_by(compiler, name, source, &["-O2"]);
}

/// Runs a program of Linux in a system of its own, with a word in its environment.
fn carried(scene: &Scene, kernel: &str, options: &[&str], command: &[&str]) -> Outcome {
    let mut words = vec!["env", "WORD=of the host"];
    let system = rcoe_tests::system::words(options, command);
    let kernel = format!("RCOE_SYSTEM_WORDS={kernel}");
    words.push(&kernel);
    words.extend(system.iter().map(String::as_str));
    scene.run(&words)
}

fn native(scene: &Scene, command: &[&str]) -> Outcome {
    let words = [&["env", "WORD=of the host"], command].concat();
    scene.run(&words)
}

/// The exit status of a carried program is its own, and so is every byte of its output.
fn assert_alike(carried: &Outcome, native: &Outcome, what: &str) {
    assert_eq!(carried.ended, native.ended, "{what}: {}", carried.err());
    assert_eq!(carried.out(), native.out(), "{what}");
}

#[test]
fn static_programs_of_either_library_do_what_they_do_on_linux() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    for (name, compiler) in [("musl", MUSL), ("glibc", GLIBC), ("anywhere", ANYWHERE)] {
        compile(&scene, name, compiler, WORK);
        let program = format!("./{name}");
        let command = [program.as_str(), "1000", "two words", ""];
        let native = native(&scene, &command);
        assert_eq!(native.ended, Ended::Exit(33));
        for (replicas, compare) in sampled(pairs(&["1", "2", "3"], &["io", "args", "every"])) {
            let options = ["-n", replicas, "--compare", compare];
            let outcome = carried(&scene, "", &options, &command);
            let what = format!("{name} {replicas} {compare}");
            assert_alike(&outcome, &native, &what);
            assert_eq!(outcome.err(), "", "{what}");
        }
    }
}

#[test]
fn the_loss_of_any_replica_is_masked_and_it_comes_back() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    compile(&scene, "glibc", GLIBC, WORK);
    let command = ["./glibc", "1000000"];
    let native = native(&scene, &command);
    for (probe, victim) in sampled(pairs(&["astray", "sudden"], &[0, 1, 2])) {
        let kernel = format!("probe={probe} victim={victim}");
        let options = ["-n", "3", "--events", "e"];
        let outcome = carried(&scene, &kernel, &options, &command);
        assert_alike(&outcome, &native, &kernel);
        let events = events_of(&scene.path().join("e"));
        let has = |kind: &str, stage: Option<&str>| {
            events.iter().any(|event| {
                event["type"] == kind
                    && event.get("removed").unwrap_or(&event["replica"]) == victim
                    && stage.is_none_or(|stage| event["stage"] == stage)
            })
        };
        assert!(has("downgrade", None), "{kernel}: {events:?}");
        assert!(has("reintegration", Some("done")), "{kernel}: {events:?}");
    }
}

/// Tells what the processor says of itself, where cores differ in that.
const PROCESSOR: &str = r#"
#include <cpuid.h>
#include <stdio.h>

int main(void)
{
    const unsigned leaves[] = {0, 1, 4, 7, 0xb, 0x80000001, 0x80000008, 0x8000001e};
    for (unsigned at = 0; at < sizeof leaves / sizeof *leaves; at++) {
        unsigned a, b, c, d;
        __cpuid_count(leaves[at], 0, a, b, c, d);
        printf("%x: %08x %08x %08x %08x\n", leaves[at], a, b, c, d);
    }
    return 0;
}
"#;

#[test]
fn the_processor_says_the_same_of_itself_in_all_replicas() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    compile(&scene, "processor", GLIBC, PROCESSOR);
    let lone = system(&scene, &["-n", "1"], &["./processor"]);
    assert_eq!(lone.ended, Ended::Exit(0), "{}", lone.err());
    assert_eq!(lone.out().lines().count(), 8);
    for replicas in sampled(vec!["2", "3", "4"]) {
        let outcome = system(&scene, &["-n", replicas], &["./processor"]);
        assert_alike(&outcome, &lone, replicas);
        assert_eq!(outcome.err(), "", "{replicas}");
    }
}

#[test]
fn two_replicas_stop_at_a_difference() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    compile(&scene, "musl", MUSL, WORK);
    let kernel = "probe=astray victim=1";
    let outcome = carried(&scene, kernel, &["-n", "2"], &["./musl", "1000000"]);
    assert_eq!(outcome.ended, Ended::Exit(86), "{}", outcome.err());
}

#[test]
fn busybox_works_on_files_of_the_host() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    let text: String = (0..4_000)
        .map(|line| format!("{} line\n", line * 7919 % 4001))
        .collect();
    let place = scene.write("text", &text);
    let place = place.to_str().unwrap();
    let applets: [&[&str]; 8] = [
        &["busybox", "echo", "one", "two"],
        &["busybox", "cat", place],
        &["busybox", "md5sum", place],
        &["busybox", "sha256sum", place],
        &["busybox", "sort", "-n", place],
        &[
            "busybox",
            "awk",
            "{ sum += $1 } END { print sum, NR }",
            place,
        ],
        &[
            "busybox",
            "sh",
            "-c",
            "i=0; while [ $i -lt 9 ]; do i=$((i + 1)); done; echo $i; exit 7",
        ],
        &["busybox", "test", "-e", "/no/such/file"],
    ];
    for command in applets {
        let options = ["-n", "3", "--file", place];
        let outcome = system(&scene, &options, command);
        assert_alike(&outcome, &scene.run(command), &format!("{command:?}"));
    }
    // By its name, from the folder that both are in.
    let outcome = system(
        &scene,
        &["-n", "1", "--file", "text"],
        &["busybox", "head", "-n", "2", "text"],
    );
    assert_alike(&outcome, &scene.run(&["head", "-n", "2", "text"]), "head");
    let input = format!("{place}:/dev/stdin");
    let outcome = system(
        &scene,
        &["-n", "2", "--file", &input],
        &["busybox", "wc", "-l"],
    );
    assert_eq!(outcome.out(), "4000\n", "{}", outcome.err());
    let outcome = system(&scene, &["-n", "2"], &["busybox", "wc", "-c"]);
    assert_eq!(outcome.out(), "0\n", "{}", outcome.err());
}

/// A file to which the standard input is redirected, from where it has been read; or what is named.
#[test]
fn a_program_reads_what_its_standard_input_is() {
    let scene = Scene::new();
    std::fs::write(scene.path().join("lines"), "one\ntwo\nthree\n").unwrap();
    let run = |options: &[&str], script: &str| {
        let all = [&["-n", "2"], options].concat();
        let command = words(&all, &["busybox", "cat"]).join(" ");
        let outcome = scene.run(&["sh", "-c", &script.replace("RUN", &command)]);
        assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
        (outcome.out().to_owned(), outcome.err().to_owned())
    };
    let (out, err) = run(&[], "{ read first; RUN; } <lines");
    assert_eq!(out, "two\nthree\n", "{err}");
    let (out, err) = run(&["--input", "lines"], "RUN <&-");
    assert_eq!(out, "one\ntwo\nthree\n", "{err}");
    let (out, err) = run(&["--input", "-"], "echo piped | RUN");
    assert_eq!(out, "piped\n", "{err}");
    let (out, err) = run(&[], "echo piped | RUN");
    assert_eq!(out, "piped\n", "{err}");
}

#[test]
fn an_input_that_cannot_be_is_refused_by_name() {
    let scene = Scene::new();
    for (options, program, told) in [
        (["--input", "none"], "busybox", "--input none: No such file"),
        (["--input", "."], "busybox", "--input .: "),
        (
            ["--input", "none"],
            "hello",
            "--input is for programs of Linux",
        ),
    ] {
        let outcome = system(&scene, &[&["-n", "1"], &options[..]].concat(), &[program]);
        assert_eq!(outcome.ended, Ended::Exit(125), "{told}: {}", outcome.err());
        assert!(outcome.err().contains(told), "{}", outcome.err());
    }
    let twice = ["-n", "1", "--input", "x", "--file", "x:/dev/stdin"];
    let outcome = system(&scene, &twice, &["busybox"]);
    assert!(outcome.err().contains("leave out one"), "{}", outcome.err());
}

/// Does what is not carried, or what no program may.
const WRONG: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int deep(int depth)
{
    volatile char here[4096];
    here[0] = here[4095] = depth;
    return depth == 0 ? here[0] : deep(depth - 1) + here[4095] % 2;
}

static unsigned long long stamp(void)
{
    unsigned low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (unsigned long long)high << 32 | low;
}

/* Takes all memory in pieces and gives it back; how many there were. */
static int fill(void)
{
    enum { MOST = 4096, BYTES = 1 << 16 };
    static char *pieces[MOST];
    int count = 0;
    for (; count < MOST; count++) {
        pieces[count] = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pieces[count] == MAP_FAILED)
            break;
        pieces[count][0] = pieces[count][BYTES - 1] = 1;
    }
    for (int at = 0; at < count; at++)
        munmap(pieces[at], BYTES);
    return count;
}

int main(int argc, char **argv)
{
    (void)argc;
    switch (argv[1][0]) {
    case 's': /* a call that is refused, twice */
        printf("%d", acct("/x"));
        printf("%d\n", acct("/x"));
        return 0;
    case 'n': /* nothing is there */
        printf("before\n");
        fflush(stdout);
        *(volatile int *)16 = 1;
        return 0;
    case 'c': /* code is not to be written */
        *(volatile char *)(long)main = 0;
        return 0;
    case 'u':
        __asm__ volatile("ud2");
        return 0;
    case 'a':
        abort();
    case 'w': /* memory that is written and executed */
        return mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                    0) == MAP_FAILED;
    case 'm': /* more memory than there is */
        return malloc(1ull << 31) == NULL;
    case 'f': { /* all memory, again and again */
        int first = fill(), same = 1;
        for (int round = 0; round < 3; round++)
            same &= fill() == first;
        return !(same && first > 100 && first < 4096);
    }
    case 'd': /* a deep stack */
        return deep(1000) == 0;
    case 't': {
        unsigned long long first = stamp();
        return stamp() > first ? 0 : 1;
    }
    }
    return 99;
}
"#;

#[test]
fn what_a_program_may_not_or_cannot_have_is_told() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    compile(&scene, "wrong", MUSL, WRONG);
    for (what, status, out, told) in [
        ("s", 0, "-1-1\n", "the system call "),
        ("n", 139, "before\n", "no access to 0x10"),
        ("c", 139, "", "no access to 0x4"),
        ("u", 132, "", "exception 6"),
        ("a", 134, "", ""),
        ("w", 1, "", "code that a program makes"),
        ("m", 1, "", ""),
        ("f", 0, "", ""),
        ("d", 0, "", ""),
        ("t", 0, "", ""),
    ] {
        let outcome = system(&scene, &["-n", "3"], &["./wrong", what]);
        let err = outcome.err();
        assert_eq!(outcome.ended, Ended::Exit(status), "{what}: {err}");
        assert_eq!(outcome.out(), out, "{what}");
        assert!(
            err.contains(told) && err.lines().count() <= 1,
            "{what}: {err}"
        );
        assert_eq!(err.is_empty(), told.is_empty(), "{what}: {err}");
    }
}

#[test]
fn what_cannot_be_carried_is_refused_by_name_before_a_machine_starts() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    compile(
        &scene,
        "static",
        MUSL,
        "static volatile char big[200 << 20]; int main(void) { return big[7]; }",
    );
    let newer = &["gcc", "-static", "-Wl,-z,x86-64-v3"];
    compile(&scene, "newer", newer, "int main(void) { return 0; }");
    let stack = &["gcc", "-static", "-Wl,-z,execstack"];
    compile(&scene, "stack", stack, "int main(void) { return 0; }");
    scene.write("text", "no program");
    for (options, program, status, why) in [
        (&["-n", "1"][..], "./newer", 126, "x86-64-v3"),
        (&["-n", "1"], "./stack", 126, "-z noexecstack"),
        (&["-n", "1"], "./text", 126, "not a 64-bit ELF program"),
        (&["-n", "1"], "./absent", 127, "nor a file"),
        (
            &["-n", "1", "--memory", "63M"],
            "./static",
            125,
            "--memory 63M",
        ),
        (
            &["-n", "1", "--arch", "aarch64"],
            "./static",
            126,
            "use --arch x86_64",
        ),
        (&["-n", "1", "--file", "absent"], "./static", 125, "absent"),
        (&["-n", "1", "--file", "text"], "hello", 125, "--file"),
    ] {
        let outcome = system(&scene, options, &[program]);
        let err = outcome.err();
        assert_eq!(outcome.ended, Ended::Exit(status), "{program}: {err}");
        assert!(err.contains(why), "{program}: {err}");
        assert_eq!(outcome.out(), "");
    }
}

#[test]
fn a_system_that_stands_still_at_a_bad_store_goes_on_without_that_replica() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    compile(&scene, "musl", MUSL, WORK);
    let words = "probe=sibling victim=2";
    let outcome = system_with(&scene, words, &["-n", "3"], &["./musl", "300000"]);
    assert_eq!(outcome.ended, Ended::Exit(33), "{}", outcome.err());
    assert!(
        outcome.err().contains("replica 2 is faulty"),
        "{}",
        outcome.err()
    );
}

/// The event timer's counter in device memory (x86-64), and its width.
const COUNTER: u64 = 272 * 4096 + 0xf0;

/// One reading of the clock is all replicas', and wrong: it shows that time went far back.
#[test]
fn a_wrong_reading_of_the_primary_moves_no_time() {
    if is_aarch64() {
        return;
    }
    let script = "a=$(date +%s); for i in 1 2 3 4 5 6 7 8; do sleep 0.02; done; b=$(date +%s)
        [ $((b - a)) -ge 0 ] && [ $((b - a)) -lt 1000 ] && echo right";
    for after in sampled(vec![2, 9, 30]) {
        let scene = Scene::new();
        let kernel = format!("misreads-register={COUNTER} width=8 victim=0 after={after}");
        let outcome = system_with(
            &scene,
            &kernel,
            &["-n", "2"],
            &["busybox", "sh", "-c", script],
        );
        assert_eq!(outcome.out(), "right\n", "{after}: {}", outcome.err());
    }
}
