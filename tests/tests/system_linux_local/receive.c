/* Receiving the whole of what is asked for, looking at it, and how long that may take. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MUCH = 200000 };

static char block[MUCH];

static void check(int ok, const char *what)
{
	if (!ok) {
		printf("%s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static void tell(const char *what, ssize_t got)
{
	if (got < 0)
		printf("%s: %s\n", what, strerror(errno));
	else
		printf("%s: %d\n", what, (int)got);
}

static void set(int file, int option, long seconds, long micros)
{
	struct timeval time = { seconds, micros };

	check(setsockopt(file, SOL_SOCKET, option, &time, sizeof time) == 0, "setsockopt");
}

/* Two sockets that are connected, by a name in the machine or by the loopback. */
static void connect_two(int family, int *pair)
{
	struct sockaddr_in port = { .sin_family = AF_INET };
	socklen_t len = sizeof port;
	int listener;

	if (family == AF_UNIX) {
		check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
		return;
	}
	listener = socket(AF_INET, SOCK_STREAM, 0);
	port.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(bind(listener, (void *)&port, len) == 0 && listen(listener, 1) == 0, "listen");
	getsockname(listener, (void *)&port, &len);
	pair[0] = socket(AF_INET, SOCK_STREAM, 0);
	check(connect(pair[0], (void *)&port, len) == 0, "connect");
	pair[1] = accept(listener, NULL, NULL);
	check(pair[1] >= 0, "accept");
	close(listener);
}

static void whole(int *pair)
{
	unsigned sum = 0;
	ssize_t got;
	int at;

	if (!fork()) {
		for (at = 0; at < MUCH; at++)
			block[at] = at * 13 + at / 255;
		for (at = 0; at < MUCH;) {
			int part = at % 3000 + 100;

			if (part > MUCH - at)
				part = MUCH - at;
			got = send(pair[0], block + at, part, 0);
			check(got > 0, "send");
			at += got;
		}
		_exit(0);
	}
	got = recv(pair[1], block, MUCH - 10, MSG_WAITALL);
	for (at = 0; at < MUCH - 10; at++)
		sum = sum * 31 + (unsigned char)block[at];
	printf("whole: %d, %x\n", (int)got, sum);
	tell("look", recv(pair[1], block, 4, MSG_PEEK | MSG_WAITALL));
	wait(NULL);
	tell("look", recv(pair[1], block, 100, MSG_PEEK));
	tell("rest", recv(pair[1], block, 100, MSG_WAITALL | MSG_DONTWAIT));
	tell("none", recv(pair[1], block, 100, MSG_PEEK | MSG_DONTWAIT));
}

static void on_alarm(int number)
{
	(void)number;
}

/* Waits end by themselves, by an alarm, and not when something comes before. */
static void limits(int *pair)
{
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	/* Again and again: the first one may come before the call waits. */
	struct itimerval again = { { 0, 20000 }, { 0, 20000 } }, none = { { 0 } };
	struct timespec begin, end;
	struct timeval time;
	socklen_t len = sizeof time;
	int sent = 0, got;

	set(pair[1], SO_RCVTIMEO, 0, 40000);
	getsockopt(pair[1], SOL_SOCKET, SO_RCVTIMEO, &time, &len);
	printf("limit %d s, %d us, %d bytes\n", (int)time.tv_sec, (int)time.tv_usec, (int)len);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	tell("late", recv(pair[1], block, 10, 0));
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("waited %d\n", (end.tv_sec - begin.tv_sec) * 1000 +
	       (end.tv_nsec - begin.tv_nsec) / 1000000 >= 39);
	check(send(pair[0], "abc", 3, 0) == 3, "send");
	tell("some", recv(pair[1], block, 10, MSG_WAITALL));
	set(pair[1], SO_RCVTIMEO, 3600, 0);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &again, NULL);
	got = recv(pair[1], block, 10, 0);
	int why = errno;
	setitimer(ITIMER_REAL, &none, NULL);
	errno = why;
	tell("interrupted", got);
	set(pair[0], SO_SNDTIMEO, 0, 30000);
	memset(block, 1, MUCH);
	while ((got = send(pair[0], block, 4096, MSG_NOSIGNAL)) > 0)
		sent += got;
	tell("full", got);
	printf("much %d\n", sent > 30000);
	set(pair[1], SO_RCVTIMEO, 0, 0);
	while (sent > 0)
		sent -= recv(pair[1], block, MUCH, 0);
	printf("left %d\n", sent);
	close(pair[0]);
	tell("end", recv(pair[1], block, 10, MSG_WAITALL));
	close(pair[1]);
}

/* Nobody comes, and nobody is taken in. */
static void accepting(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "\0rcoe-limit" };
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), files[40], at;

	check(bind(listener, (void *)&name, 13) == 0 && listen(listener, 0) == 0, "listen");
	set(listener, SO_RCVTIMEO, 0, 20000);
	tell("accept", accept(listener, NULL, NULL));
	for (at = 0; at < 2; at++) {
		files[at] = socket(AF_UNIX, SOCK_STREAM, 0);
		set(files[at], SO_SNDTIMEO, 0, 20000);
		tell("connect", connect(files[at], (void *)&name, 13));
	}
	for (at = 0; at < 2; at++)
		close(files[at]);
	close(listener);
}

int main(void)
{
	static const int families[] = { AF_UNIX, AF_INET };
	int at, pair[2];

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (at = 0; at < 2; at++) {
		connect_two(families[at], pair);
		whole(pair);
		limits(pair);
	}
	accepting();
	return 0;
}
