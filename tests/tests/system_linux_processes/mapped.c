/* Files that processes map to be shared: what is in memory is in the file. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, MANY = 60 };

static const char *const name = "mapped-file";
static char bytes[20000];
static sigjmp_buf before;
static volatile int code;
static void *volatile where;

static void check(int ok, const char *what)
{
	if (!ok) {
		printf("%s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static void tell(const char *what, long got)
{
	if (got < 0)
		printf("%s: %s\n", what, strerror(errno));
	else
		printf("%s: %ld\n", what, got);
}

static char *map(int file, int pages, int rights, int at)
{
	void *place = mmap(NULL, pages * PAGE, rights, MAP_SHARED, file, at * PAGE);

	check(place != MAP_FAILED, "mmap");
	return place;
}

static int fresh(int size)
{
	int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600), at;

	check(file >= 0, "open");
	for (at = 0; at < size; at++)
		bytes[at] = 'a' + at % 26;
	check(write(file, bytes, size) == size, "write");
	return file;
}

static void coherent(void)
{
	int file = fresh(3 * PAGE), other, at;
	char *first = map(file, 3, PROT_READ | PROT_WRITE, 0), *second, text[20];

	printf("%.5s %.5s\n", first, first + 2 * PAGE);
	memcpy(first + PAGE, "by memory", 9);
	check(pread(file, text, 9, PAGE) == 9, "pread");
	printf("%.9s\n", text);
	check(pwrite(file, "by writing", 10, 2 * PAGE - 5) == 10, "pwrite");
	printf("%.10s\n", first + 2 * PAGE - 5);
	/* Another one who opens it, from another page on, to read. */
	other = open(name, O_RDONLY);
	second = map(other, 2, PROT_READ, 1);
	close(other);
	printf("%.9s\n", second);
	first[PAGE] = 'B';
	printf("%.9s, memory differs %d\n", second, memcmp(first + PAGE, second, 2 * PAGE));
	for (at = 0; at < 2; at++) {
		if (!fork()) {
			file = open(name, O_RDWR);
			if (at)
				first = map(file, 3, PROT_READ | PROT_WRITE, 0);
			memcpy(first + 10, at ? "by itself" : "inherited", 9);
			_exit(0);
		}
		wait(NULL);
		check(pread(file, text, 9, 10) == 9, "pread");
		printf("%.9s %.9s\n", first + 10, text);
	}
	tell("msync", msync(first, 3 * PAGE, MS_SYNC));
	tell("both", msync(first, PAGE, MS_SYNC | MS_ASYNC));
	tell("misplaced", msync(first + 1, PAGE, MS_SYNC));
	/* A part of it is no more. */
	check(munmap(first + PAGE, PAGE) == 0, "munmap");
	tell("missing", msync(first, 3 * PAGE, MS_ASYNC));
	memcpy(first + 2 * PAGE, "rest", 4);
	memcpy(first, "begin", 5);
	check(pread(file, bytes, 3 * PAGE, 0) == 3 * PAGE, "pread");
	printf("%.5s %.4s %.4s\n", bytes, bytes + 2 * PAGE, second + PAGE);
	/* Without a name and without a descriptor it stays. */
	check(unlink(name) == 0, "unlink");
	close(file);
	printf("%.5s %.9s\n", first, second);
	munmap(first, PAGE);
	munmap(second, PAGE);
	printf("%.4s %.4s\n", first + 2 * PAGE, second + PAGE);
	munmap(first, 3 * PAGE);
	munmap(second, 2 * PAGE);
}

static void refused(void)
{
	int file = fresh(PAGE), reads = open(name, O_RDONLY), writes = open(name, O_WRONLY), both[2];
	int rights = PROT_READ | PROT_WRITE, folder = open(".", O_RDONLY);
	char *place = map(reads, 1, PROT_READ, 0), *zero;

	check(pipe(both) == 0, "pipe");
	tell("to read", mmap(NULL, PAGE, rights, MAP_SHARED, reads, 0) == MAP_FAILED ? -1 : 0);
	tell("to write", mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, writes, 0) == MAP_FAILED ? -1 : 0);
	tell("folder", mmap(NULL, PAGE, PROT_READ, MAP_SHARED, folder, 0) == MAP_FAILED ? -1 : 0);
	tell("pipe", mmap(NULL, PAGE, PROT_READ, MAP_SHARED, both[0], 0) == MAP_FAILED ? -1 : 0);
	tell("place", mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 5) == MAP_FAILED ? -1 : 0);
	tell("none", mmap(NULL, PAGE, PROT_READ, MAP_SHARED, 99, 0) == MAP_FAILED ? -1 : 0);
	tell("mprotect", mprotect(place, PAGE, rights));
	munmap(place, PAGE);
	place = map(file, 1, PROT_READ, 0);
	tell("mprotect", mprotect(place, PAGE, rights));
	*place = 'z';
	check(pread(reads, bytes, 3, 0) == 3, "pread");
	printf("%.3s\n", bytes);
	munmap(place, PAGE);
	zero = map(open("/dev/zero", O_RDWR), 1, rights, 0);
	if (!fork()) {
		*zero = 7;
		_exit(0);
	}
	wait(NULL);
	printf("zero %d\n", *zero);
	munmap(zero, PAGE);
	close(file);
	close(reads);
	close(writes);
	close(folder);
	close(both[0]);
	close(both[1]);
}

static void bus(int signal, siginfo_t *info, void *context)
{
	(void)context;
	code = signal * 100 + info->si_code;
	where = info->si_addr;
	siglongjmp(before, 1);
}

/* What is read at a place, or the signal. */
static void look(const char *what, volatile char *place)
{
	if (sigsetjmp(before, 1))
		printf("%s: signal %d, there %d\n", what, code, where == place);
	else
		printf("%s: %d\n", what, *place);
}

static void beyond(void)
{
	struct sigaction action = { .sa_sigaction = bus, .sa_flags = SA_SIGINFO };
	int file = fresh(5000), both[2];
	char *place = map(file, 4, PROT_READ | PROT_WRITE, 0);

	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGSEGV, &action, NULL);
	look("last", place + 4999);
	look("tail", place + 5000);
	look("behind", place + 2 * PAGE + 8);
	check(pipe(both) == 0, "pipe");
	tell("write", write(both[1], place + 2 * PAGE, 5));
	tell("read", pread(file, place + 3 * PAGE, 5, 0));
	check(ftruncate(file, 3 * PAGE) == 0, "ftruncate");
	look("longer", place + 2 * PAGE + 8);
	place[2 * PAGE + 8] = 5;
	look("not that", place + 3 * PAGE);
	check(pwrite(file, "more", 4, 4 * PAGE - 4) == 4, "pwrite");
	look("written", place + 4 * PAGE - 4);
	if (!fork()) {
		check(ftruncate(file, 100) == 0, "ftruncate");
		look("of the child", place + 2 * PAGE + 8);
		_exit(0);
	}
	wait(NULL);
	look("shorter", place + 99);
	look("cut", place + 100);
	look("gone", place + PAGE);
	check(ftruncate(file, 4 * PAGE) == 0, "ftruncate");
	look("zero", place + 2 * PAGE + 8);
	look("zero", place + 100);
	close(open(name, O_RDWR | O_TRUNC));
	look("emptied", place);
	tell("mprotect", mprotect(place, PAGE, PROT_READ));
	check(write(file, "anew", 4) == 4, "write");
	look("anew", place);
	if (sigsetjmp(before, 1))
		printf("signal %d\n", code);
	else
		place[0] = 1;
	munmap(place, 4 * PAGE);
	close(file);
	close(both[0]);
	close(both[1]);
}

struct both {
	sem_t there, back;
	pthread_mutex_t lock;
	long count;
};

/* Two that have nothing in common but the name of a file. */
static void strangers(void)
{
	int file = fresh(0), at;
	struct both *own;
	pthread_mutexattr_t shared;

	check(ftruncate(file, PAGE) == 0, "ftruncate");
	own = (void *)map(file, 1, PROT_READ | PROT_WRITE, 0);
	sem_init(&own->there, 1, 0);
	sem_init(&own->back, 1, 0);
	pthread_mutexattr_init(&shared);
	pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&own->lock, &shared);
	if (!fork()) {
		struct both *other;

		munmap(own, PAGE);
		close(file);
		file = open(name, O_RDWR);
		other = (void *)map(file, 1, PROT_READ | PROT_WRITE, 0);
		for (at = 0; at < 50; at++) {
			sem_wait(&other->there);
			pthread_mutex_lock(&other->lock);
			other->count += at;
			pthread_mutex_unlock(&other->lock);
			sem_post(&other->back);
		}
		_exit(0);
	}
	for (at = 0; at < 50; at++) {
		pthread_mutex_lock(&own->lock);
		own->count++;
		pthread_mutex_unlock(&own->lock);
		sem_post(&own->there);
		sem_wait(&own->back);
	}
	wait(NULL);
	printf("count %ld\n", own->count);
	munmap(own, PAGE);
	close(file);
}

/* Several write many pages of one file at once, of which it has none before. */
static void many(void)
{
	int file = fresh(0), at, page;
	uint64_t sum = 0, word;

	check(ftruncate(file, MANY * PAGE) == 0, "ftruncate");
	for (at = 0; at < 4; at++) {
		if (!fork()) {
			char *place = map(file, MANY, PROT_READ | PROT_WRITE, 0);

			for (page = at; page < MANY; page += 4) {
				word = page * 77 + at;
				memcpy(place + page * PAGE + 8 * at, &word, 8);
			}
			_exit(0);
		}
	}
	while (wait(NULL) > 0)
		;
	for (page = 0; page < MANY; page++) {
		check(pread(file, &word, 8, page * PAGE + 8 * (page % 4)) == 8, "pread");
		sum = sum * 31 + word;
	}
	printf("sum %llx\n", (unsigned long long)sum);
	close(file);
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	unlink(name);
	coherent();
	refused();
	beyond();
	strangers();
	many();
	unlink(name);
	return 0;
}
