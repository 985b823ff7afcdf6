/* Calls that wait, and a signal that comes meanwhile from another thread. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_t whom;
static atomic_int wanted, quiet, over, handled;
static int pipes[2], watcher;
static sem_t semaphore;

static void count(int signal)
{
    (void)signal;
    atomic_fetch_add(&handled, 1);
}

/* Signals the other thread for as long as it wants that. */
static void *disturb(void *nothing)
{
    while (!atomic_load(&over)) {
        if (atomic_load(&wanted))
            pthread_kill(whom, SIGUSR1);
        else
            atomic_store(&quiet, 1);
        sched_yield();
    }
    return nothing;
}

static void set(int flags)
{
    struct sigaction action = {.sa_handler = count, .sa_flags = flags};
    sigaction(SIGUSR1, &action, 0);
}

static void told(const char *what, int done)
{
    int why = errno;
    /* No signal is on its way behind this. */
    atomic_store(&wanted, 0);
    atomic_store(&quiet, 0);
    while (!atomic_load(&quiet))
        sched_yield();
    printf("%s: %d %s, handled %d\n", what, done, done < 0 ? strerror(why) : "",
           atomic_exchange(&handled, 0) > 0);
}

#define INTERRUPT(what, call) (atomic_store(&wanted, 1), told(what, call))

static void interrupted(void)
{
    char byte;
    fd_set none;
    struct pollfd asked = {.fd = pipes[0], .events = POLLIN};
    struct epoll_event event;
    struct timespec hour = {3600, 0}, left = {0, 0};
    sigset_t empty;
    sigemptyset(&empty);
    INTERRUPT("read", (int)read(pipes[0], &byte, 1));
    INTERRUPT("poll", poll(&asked, 1, -1));
    INTERRUPT("poll for an hour", poll(&asked, 1, 3600000));
    INTERRUPT("epoll", epoll_wait(watcher, &event, 1, -1));
    FD_ZERO(&none);
    FD_SET(pipes[0], &none);
    INTERRUPT("select", select(pipes[0] + 1, &none, 0, 0, 0));
    struct timeval rest = {3600, 0}, brief = {0, 20000};
    FD_SET(pipes[0], &none);
    INTERRUPT("select for an hour", select(pipes[0] + 1, &none, 0, 0, &rest));
    printf("left %d\n", rest.tv_sec > 3000 && rest.tv_sec <= 3600);
    INTERRUPT("select of nothing", select(0, 0, 0, 0, &rest));
    printf("left %d\n", rest.tv_sec > 3000 && rest.tv_sec <= 3600);
    told("select", select(pipes[0] + 1, &none, 0, 0, &brief));
    printf("left %d %d\n", (int)brief.tv_sec, (int)brief.tv_usec);
    INTERRUPT("semaphore", sem_wait(&semaphore));
    INTERRUPT("nanosleep", nanosleep(&hour, &left));
    printf("left %d\n", left.tv_sec > 3000 && left.tv_sec <= 3600);
    INTERRUPT("clock", -clock_nanosleep(CLOCK_MONOTONIC, 0, &hour, &left));
    INTERRUPT("pause", pause());
    INTERRUPT("suspend", sigsuspend(&empty));
    sigaddset(&empty, SIGUSR2);
    INTERRUPT("wait for another", sigtimedwait(&empty, 0, &hour));
}

/* Has it blocked but for the time of the call. */
static void masked(void)
{
    sigset_t blocked, empty;
    struct pollfd asked = {.fd = pipes[0], .events = POLLIN};
    struct epoll_event event;
    struct timespec hour = {3600, 0}, none = {0, 0};
    fd_set set;
    sigemptyset(&empty);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &blocked, 0);
    INTERRUPT("ppoll", ppoll(&asked, 1, &hour, &empty));
    INTERRUPT("epoll_pwait", epoll_pwait(watcher, &event, 1, -1, &empty));
    FD_ZERO(&set);
    FD_SET(pipes[0], &set);
    INTERRUPT("pselect", pselect(pipes[0] + 1, &set, 0, 0, 0, &empty));
    /* Something that is there comes first, and what waits goes on waiting. */
    raise(SIGUSR1);
    int wrote = (int)write(pipes[1], "x", 1);
    told("ready", ppoll(&asked, 1, &none, &empty) + wrote);
    raise(SIGUSR1);
    int taken = sigtimedwait(&blocked, 0, &none);
    told("taken", taken);
    pthread_sigmask(SIG_UNBLOCK, &blocked, 0);
    char byte;
    told("byte", (int)read(pipes[0], &byte, 1));
}

static void *answer(void *nothing)
{
    /* When some have come, what the other thread waits for does. */
    while (atomic_load(&handled) < 3)
        sched_yield();
    if (write(pipes[1], "y", 1) == 1)
        sem_post(&semaphore);
    return nothing;
}

static void again(void)
{
    pthread_t helper;
    char byte = 0;
    pthread_create(&helper, 0, answer, 0);
    INTERRUPT("read again", (int)read(pipes[0], &byte, 1));
    pthread_join(helper, 0);
    pthread_create(&helper, 0, answer, 0);
    int before = sem_wait(&semaphore);
    INTERRUPT("semaphore again", sem_wait(&semaphore) + before);
    pthread_join(helper, 0);
    printf("byte %c, ", byte);
    told("another", (int)read(pipes[0], &byte, 1));
}

int main(void)
{
    pthread_t other;
    whom = pthread_self();
    if (pipe(pipes) || sem_init(&semaphore, 0, 0))
        return 1;
    watcher = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(watcher, EPOLL_CTL_ADD, pipes[0], &event);
    set(0);
    pthread_create(&other, 0, disturb, 0);
    interrupted();
    masked();
    set(SA_RESTART);
    INTERRUPT("poll in any case", poll(0, 0, -1));
    again();
    atomic_store(&over, 1);
    pthread_join(other, 0);
    return 0;
}
