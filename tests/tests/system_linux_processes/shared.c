/* Processes that share memory: locks, conditions and counters in it, and who has it how long. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 16, CHILDREN = 4, ROUNDS = 200, SLOTS = 8 };

struct shared {
	pthread_mutex_t lock, robust;
	pthread_cond_t filled, drained;
	sem_t turn;
	int slots[SLOTS], first, count;
	long sum, rounds;
	char text[PAGE];
};

static void check(int ok, const char *what)
{
	if (!ok) {
		printf("%s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static void *share(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	check(at != MAP_FAILED, "mmap");
	return at;
}

static struct shared *make(void)
{
	struct shared *all = share(sizeof *all);
	pthread_mutexattr_t lock;
	pthread_condattr_t cond;

	pthread_mutexattr_init(&lock);
	pthread_mutexattr_setpshared(&lock, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&all->lock, &lock);
	pthread_mutexattr_setrobust(&lock, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&all->robust, &lock);
	pthread_condattr_init(&cond);
	pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&all->filled, &cond);
	pthread_cond_init(&all->drained, &cond);
	sem_init(&all->turn, 1, 0);
	return all;
}

static void put(struct shared *all, int value)
{
	pthread_mutex_lock(&all->lock);
	while (all->count == SLOTS)
		pthread_cond_wait(&all->drained, &all->lock);
	all->slots[(all->first + all->count++) % SLOTS] = value;
	pthread_cond_signal(&all->filled);
	pthread_mutex_unlock(&all->lock);
}

static int take(struct shared *all)
{
	int value;

	pthread_mutex_lock(&all->lock);
	while (!all->count)
		pthread_cond_wait(&all->filled, &all->lock);
	value = all->slots[all->first];
	all->first = (all->first + 1) % SLOTS;
	all->count--;
	pthread_cond_signal(&all->drained);
	pthread_mutex_unlock(&all->lock);
	return value;
}

/* Producers and one consumer, with a queue that is full and empty all the time. */
static void queue(struct shared *all)
{
	int at, child, status;
	long sum = 0;

	for (child = 0; child < CHILDREN; child++)
		if (!fork()) {
			for (at = 0; at < ROUNDS; at++)
				put(all, child * ROUNDS + at);
			_exit(0);
		}
	for (at = 0; at < CHILDREN * ROUNDS; at++)
		sum += take(all);
	while (wait(&status) > 0)
		check(!status, "producer");
	printf("queue %ld\n", sum);
}

static void counter(struct shared *all)
{
	int at, child;

	for (child = 0; child < CHILDREN; child++)
		if (!fork()) {
			for (at = 0; at < ROUNDS; at++) {
				long seen;

				pthread_mutex_lock(&all->lock);
				seen = all->rounds;
				if (at % 16 == 0)
					sched_yield();
				all->rounds = seen + 1;
				pthread_mutex_unlock(&all->lock);
			}
			sem_post(&all->turn);
			_exit(0);
		}
	for (child = 0; child < CHILDREN; child++)
		sem_wait(&all->turn);
	while (wait(NULL) > 0)
		;
	printf("counter %ld\n", all->rounds);
}

/* A lock whose owner ends, by itself or by a signal, while another one waits for it. */
static void robust(struct shared *all, int killed)
{
	pid_t child = fork();
	int got;

	if (!child) {
		pthread_mutex_lock(&all->robust);
		sem_post(&all->turn);
		if (killed)
			for (;;)
				pause();
		sched_yield();
		_exit(0);
	}
	sem_wait(&all->turn);
	if (killed)
		kill(child, SIGKILL);
	got = pthread_mutex_lock(&all->robust);
	printf("robust %s", got == EOWNERDEAD ? "owner died" : strerror(got));
	printf(", %d", pthread_mutex_consistent(&all->robust));
	printf(", %d\n", pthread_mutex_unlock(&all->robust));
	waitpid(child, NULL, 0);
}

static void late(struct shared *all)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 20000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	check(sem_timedwait(&all->turn, &until) < 0, "sem_timedwait");
	printf("late: %s\n", strerror(errno));
}

static void refused(int number)
{
	_exit(number);
}

/* Who maps, protects, gives up and takes away what is shared. */
static void pages(void)
{
	char *shared = share(PAGES * PAGE), *own;
	int status, at;

	own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	strcpy(shared, "of the parent");
	strcpy(own, "own");
	if (!fork()) {
		check(munmap(shared + PAGE, PAGE) == 0, "munmap");
		check(mprotect(shared + 2 * PAGE, PAGE, PROT_READ) == 0, "mprotect");
		check(madvise(shared, PAGE, MADV_DONTNEED) == 0, "madvise");
		printf("child: %s\n", shared);
		strcpy(shared, "of the child");
		strcpy(own, "child's own");
		if (!fork()) {
			signal(SIGSEGV, refused);
			strcpy(shared + 3 * PAGE, "of the grandchild");
			sched_yield();
			shared[2 * PAGE] = 1;
			_exit(0);
		}
		wait(&status);
		printf("grandchild: %d\n", WEXITSTATUS(status));
		fflush(stdout);
		_exit(0);
	}
	wait(&status);
	printf("parent: %s, %s, %s\n", shared, shared + 3 * PAGE, own);
	shared[PAGE] = shared[2 * PAGE] = 'x';
	check(madvise(shared + 3 * PAGE, PAGE, MADV_REMOVE) == 0, "remove");
	printf("removed %d, kept %c\n", shared[3 * PAGE], shared[PAGE]);
	check(mremap(shared, PAGES * PAGE, PAGE, 0) == shared, "mremap");
	check(munmap(shared, PAGE) == 0, "munmap");
	/* More than there would be if any were lost. */
	for (at = 0; at < 100; at++) {
		shared = share(512 * PAGE);
		memset(shared + at * PAGE, at, PAGE);
		if (!fork())
			_exit(shared[at * PAGE] != (char)at);
		wait(&status);
		check(!status, "again");
		munmap(shared, 512 * PAGE);
	}
	printf("again %d\n", at);
}

/* What is shared is gone in a program that the process begins, and stays for its parent. */
static void begins_anew(struct shared *all, char **words)
{
	int status;

	strcpy(all->text, "kept");
	if (!fork()) {
		char number[30];

		sprintf(number, "%d", (int)sizeof *all);
		execl(words[0], words[0], number, (char *)NULL);
		_exit(9);
	}
	wait(&status);
	printf("began anew: %d, %s\n", WEXITSTATUS(status), all->text);
}

int main(int count, char **words)
{
	struct shared *all;

	if (count > 1)
		return 7;
	setvbuf(stdout, NULL, _IOLBF, 0);
	all = make();
	queue(all);
	counter(all);
	robust(all, 0);
	robust(all, 1);
	late(all);
	pages();
	begins_anew(all, words);
	return 0;
}
