//! Programs of Linux in the system sphere that wait for several things: threads, pipes, timers, and
//! clients on the host.

use std::io::{Read as _, Write as _};
use std::thread;

use rcoe_tests::launch::{self, Ended, Outcome};
use rcoe_tests::linux::{GLIBC, MUSL, assert_alike};
use rcoe_tests::machine::{Reached, removed};
use rcoe_tests::network::{CARD, address, connect, exchange, welcomed};
use rcoe_tests::rcoe::{Scene, events_of, until};
use rcoe_tests::sample::{pairs, sampled};
use rcoe_tests::system::{is_aarch64, system, system_with};
use rustix::process::Signal;

/// Threads that wait for each other in all ways that libraries have, and tell what came of it.
const THREADS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 5, ROUNDS = 40 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t both = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_mutex_t robust;
static sem_t tokens;
static __thread int own = 7;
static int turn, sum, reads, last;

static void *work(void *argument)
{
    int me = (int)(long)argument;
    double share = me / 7.0;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&lock);
        while (turn % COUNT != me)
            pthread_cond_wait(&changed, &lock);
        turn++;
        sum += i * me;
        own += me;
        share *= 1.25;
        if (share > 1e9)
            share /= 1e9;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        if (i % 10 == 0)
            sched_yield();
        pthread_rwlock_rdlock(&both);
        reads++;
        pthread_rwlock_unlock(&both);
    }
    sem_post(&tokens);
    char *text = malloc(64);
    snprintf(text, 64, "%d %d %.9f", me, own, share);
    return text;
}

static void *detached(void *argument)
{
    usleep(1000);
    last = (int)(long)argument;
    sem_post(&tokens);
    return 0;
}

static void *leaves(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&robust);
    return 0;
}

int main(void)
{
    pthread_t threads[COUNT], other;
    pthread_barrier_init(&barrier, 0, COUNT);
    sem_init(&tokens, 0, 0);
    for (long i = 0; i < COUNT; i++)
        if (pthread_create(&threads[i], 0, work, (void *)i))
            return 3;
    for (int i = 0; i < COUNT; i++) {
        char *text;
        pthread_join(threads[i], (void **)&text);
        printf("%s\n", text);
        free(text);
    }
    for (int i = 0; i < COUNT; i++)
        sem_wait(&tokens);
    printf("turn %d, sum %d, reads %d, own %d\n", turn, sum, reads, own);
    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec += 20000000;
    soon.tv_sec += soon.tv_nsec / 1000000000;
    soon.tv_nsec %= 1000000000;
    pthread_mutex_lock(&lock);
    printf("timed %d\n", pthread_cond_timedwait(&changed, &lock, &soon) == ETIMEDOUT);
    printf("late %d\n", sem_timedwait(&tokens, &soon));
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (long i = 0; i < 30; i++) {
        if (pthread_create(&other, &attributes, detached, (void *)i))
            return 4;
        sem_wait(&tokens);
    }
    printf("last %d\n", last);
    pthread_mutexattr_t kept;
    pthread_mutexattr_init(&kept);
    pthread_mutexattr_setrobust(&kept, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &kept);
    pthread_create(&other, 0, leaves, 0);
    pthread_join(other, 0);
    printf("owner %d\n", pthread_mutex_lock(&robust) == EOWNERDEAD);
    fflush(stdout);
    return 5;
}
"#;

/// Pipes, counters and timers, waited for in all ways that there are.
const WAITS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static int ends[2], counter;

static void *feed(void *argument)
{
    static char block[100000];
    (void)argument;
    memset(block, 'x', sizeof block);
    printf("wrote %d\n", (int)write(ends[1], block, sizeof block));
    uint64_t more = 5;
    write(counter, &more, 8);
    close(ends[1]);
    return 0;
}

static long since(struct timespec *begin)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - begin->tv_sec) * 1000 + (now.tv_nsec - begin->tv_nsec) / 1000000;
}

static void pipes(void)
{
    char room[5000];
    pthread_t thread;
    struct stat status;
    pipe(ends);
    fstat(ends[0], &status);
    printf("pipe %d\n", S_ISFIFO(status.st_mode));
    struct pollfd one = {ends[0], POLLIN, 0};
    printf("nothing %d\n", poll(&one, 1, 0));
    counter = eventfd(0, 0);
    pthread_create(&thread, 0, feed, 0);
    long all = 0, count;
    while ((count = read(ends[0], room, sizeof room)) > 0)
        all += count;
    pthread_join(thread, 0);
    uint64_t value = 0;
    printf("read %ld, end %ld, counter %d", all, count, (int)read(counter, &value, 8));
    printf(" %d\n", (int)value);
    one.revents = 0;
    printf("hung up %d %d\n", poll(&one, 1, -1), one.revents);
    close(ends[0]);
    pipe2(ends, O_NONBLOCK);
    close(ends[0]);
    signal(SIGPIPE, SIG_IGN);
    int wrote = write(ends[1], room, 1), why = errno;
    printf("broken %d %d\n", wrote, why == EPIPE);
    dup2(counter, ends[1]);
    value = 9;
    printf("copied %d", (int)write(ends[1], &value, 8));
    read(counter, &value, 8);
    printf(" %d\n", (int)value);
}

static void timers(void)
{
    struct timespec begin, pause = {0, 30000000};
    clock_gettime(CLOCK_MONOTONIC, &begin);
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec when = {{0, 20000000}, {0, 10000000}};
    timerfd_settime(timer, 0, &when, 0);
    int watcher = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 77};
    epoll_ctl(watcher, EPOLL_CTL_ADD, timer, &event);
    event.data.u64 = 88;
    epoll_ctl(watcher, EPOLL_CTL_ADD, counter, &event);
    struct epoll_event got[4];
    int count = epoll_wait(watcher, got, 4, -1);
    printf("timer %d %d %d\n", count, (int)got[0].data.u64, since(&begin) >= 10);
    uint64_t times = 0;
    read(timer, &times, 8);
    read(timer, &times, 8);
    printf("again %d %d\n", times > 0, since(&begin) >= 30);
    memset(&when, 0, sizeof when);
    timerfd_settime(timer, 0, &when, 0);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    printf("late %d", epoll_wait(watcher, got, 4, 25));
    printf(" %d\n", since(&begin) >= 25);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(timer, &set);
    FD_SET(counter, &set);
    struct timeval limit = {0, 5000};
    printf("none %d", select(64, &set, 0, 0, &limit));
    printf(" %d\n", FD_ISSET(timer, &set));
    times = 1;
    write(counter, &times, 8);
    FD_SET(counter, &set);
    FD_SET(timer, &set);
    printf("one %d", select(64, &set, 0, 0, 0));
    printf(" %d %d\n", FD_ISSET(timer, &set) != 0, FD_ISSET(counter, &set) != 0);
    printf("polled %d\n", ppoll(0, 0, &pause, 0));
    int yes = 1;
    ioctl(timer, FIONBIO, &yes);
    int count_now = read(timer, &times, 8), why = errno;
    printf("at once %d %d\n", count_now, why == EAGAIN);
    printf("flags %d\n", (fcntl(timer, F_GETFL) & O_NONBLOCK) != 0);
    epoll_ctl(watcher, EPOLL_CTL_MOD, counter,
              &(struct epoll_event){.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 99});
    printf("once %d", epoll_wait(watcher, got, 4, 0));
    printf(" %d\n", epoll_wait(watcher, got, 4, 0));
    close(counter);
    printf("closed %d\n", epoll_wait(watcher, got, 4, 0));
}

int main(void)
{
    pipes();
    timers();
    fflush(stdout);
    return 0;
}
"#;

/// Sends back what comes.
const SERVER: &str = include_str!("system_linux_net/server.c");

fn compile(scene: &Scene, name: &str, compiler: &[&str], source: &str) {
    scene.compile_by(compiler, name, source, &["-O2", "-w", "-pthread"]);
}

#[test]
fn threads_and_waits_do_what_they_do_on_linux() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    for (library, compiler) in [("musl", MUSL), ("glibc", GLIBC)] {
        for (name, source) in [("threads", THREADS), ("waits", WAITS)] {
            let name = format!("{name}-{library}");
            compile(&scene, &name, compiler, source);
            let program = format!("./{name}");
            let native = scene.run(&[&program]);
            for (replicas, compare) in sampled(pairs(&["1", "2", "3"], &["io", "every"])) {
                let options = ["-n", replicas, "--compare", compare];
                let outcome = system(&scene, &options, &[&program]);
                assert_alike(&outcome, &native, &format!("{name} {replicas} {compare}"));
            }
        }
    }
}

#[test]
fn any_replica_of_a_program_with_threads_is_lost_and_comes_back() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    compile(&scene, "threads", GLIBC, THREADS);
    let native = scene.run(&["./threads"]);
    for (probe, victim) in sampled(pairs(&["astray", "sudden"], &[0, 1, 2])) {
        let kernel = format!("probe={probe} victim={victim}");
        let options = ["-n", "3", "--events", "e"];
        let outcome = system_with(&scene, &kernel, &options, &["./threads"]);
        assert_eq!(outcome.ended, native.ended, "{kernel}: {}", outcome.err());
        assert_eq!(outcome.out(), native.out(), "{kernel}");
        let events = events_of(&scene.path().join("e"));
        let back = events.iter().any(|event| event["stage"] == "done");
        assert!(back, "{kernel}: {events:?}");
    }
}

/// The host's port.
const PORT: u16 = 8017;
/// Megabytes of a replica of a server.
const MEGABYTES: usize = 64;

fn serve(scene: Scene, options: &[&str], command: &[&str]) -> Reached {
    Reached::start_sized(scene, MEGABYTES, options, command)
}

fn stop(reached: Reached) -> (Outcome, Vec<serde_json::Value>) {
    launch::signal(reached.running.pid(), Signal::TERM).unwrap();
    let (outcome, events) = reached.finish();
    assert_eq!(outcome.ended, Ended::Signal(15), "{}", outcome.err());
    (outcome, events)
}

#[test]
fn a_server_of_linux_serves_clients_of_the_host() {
    if is_aarch64() {
        return;
    }
    let ways = pairs(&[MUSL, GLIBC], &[&["watch"][..], &[]]);
    for ((compiler, how), replicas) in sampled(pairs(&ways, &["1", "2", "3"])) {
        let (scene, host) = (Scene::new(), address(PORT));
        compile(&scene, "server", compiler, SERVER);
        let published = format!("{host}:7");
        let options = ["-n", replicas, "--publish", &published];
        let reached = serve(scene, &options, &[&["./server"], how].concat());
        drop(connect(host));
        let clients = [0, 1, 20_000, 30_000].map(|count| (welcomed(host), count));
        thread::scope(|scope| {
            for (stream, count) in clients {
                scope.spawn(move || exchange(stream, count));
            }
        });
        exchange(welcomed(host), 100);
        let (outcome, _) = stop(reached);
        assert_eq!(outcome.out(), "listens at port 7\n");
        assert_eq!(outcome.err(), "", "{compiler:?} {how:?} {replicas}");
    }
}

#[test]
fn replicas_of_a_server_of_linux_are_lost_and_its_clients_see_nothing_of_it() {
    if is_aarch64() {
        return;
    }
    for how in sampled(vec![&["watch"][..], &[]]) {
        let (scene, host) = (Scene::new(), address(PORT));
        compile(&scene, "server", MUSL, SERVER);
        let published = format!("{host}:7");
        let options = ["-n", "3", "--publish", &published];
        let reached = serve(scene, &options, &[&["./server"], how].concat());
        let mut stream = connect(host);
        let mut count = 0_u64;
        let mut ask = || {
            let asked = count.to_le_bytes();
            stream.write_all(&asked).unwrap();
            let mut back = [0; 8];
            stream.read_exact(&mut back).unwrap();
            assert_eq!(back, asked);
            count += 1;
        };
        ask();
        let victims = [0, 1, 2, 0];
        for (index, victim) in victims.into_iter().enumerate() {
            reached.flip(victim, &CARD);
            until("the replica to be back", || {
                ask();
                (reached.brought_back() == index + 1).then_some(())
            });
        }
        exchange(welcomed(host), 5_000);
        let (_, events) = stop(reached);
        assert_eq!(removed(&events), [0, 1, 2, 0], "{how:?}");
    }
}

/// Listens at a port, and ends.
const LISTENS: &str = r#"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

int main(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(7) };
    int file = socket(AF_INET, SOCK_STREAM, 0);

    return bind(file, (void *)&address, sizeof address) || listen(file, 4);
}
"#;

#[test]
fn a_server_of_linux_without_a_network_says_so() {
    if is_aarch64() {
        return;
    }
    let scene = Scene::new();
    compile(&scene, "server", MUSL, LISTENS);
    let outcome = system(&scene, &["-n", "2"], &["./server"]);
    assert_eq!(outcome.ended, Ended::Exit(0), "{}", outcome.err());
    let err = outcome.err();
    assert!(err.contains("add --publish HOST:7"), "{err}");
}
