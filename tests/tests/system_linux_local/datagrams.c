/* Datagrams of one machine: whole messages, from whoever knows the name or is connected. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char bytes[70000];

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

static socklen_t name(struct sockaddr_un *at, const char *text, int file)
{
	memset(at, 0, sizeof *at);
	at->sun_family = AF_UNIX;
	strcpy(at->sun_path + !file, text);
	return offsetof(struct sockaddr_un, sun_path) + 1 + strlen(text);
}

/* A log, as daemons have it: clients that come and go, and whose messages stay whole. */
static void log_of_clients(void)
{
	struct sockaddr_un server, from;
	socklen_t len = name(&server, "log-socket", 1), room;
	int log = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), at, file;
	struct stat told;

	unlink("log-socket");
	check(bind(log, (void *)&server, len) == 0, "bind");
	check(stat("log-socket", &told) == 0, "stat");
	printf("socket %d\n", S_ISSOCK(told.st_mode));
	for (at = 0; at < 4; at++) {
		if (!fork()) {
			struct sockaddr_un own;
			char text[40], number[20];
			int part;

			file = socket(AF_UNIX, SOCK_DGRAM, 0);
			sprintf(number, "rcoe-client-%d", at);
			if (at % 2)
				check(bind(file, (void *)&own, name(&own, number, 0)) == 0, "bind");
			for (part = 0; part < 3; part++) {
				int size = sprintf(text, "client %d says %d", at, part);

				if (part == 2)
					size = 0;
				if (at < 2)
					size = sendto(file, text, size, 0, (void *)&server, len);
				else if (!part)
					size = connect(file, (void *)&server, len);
				else
					size = write(file, text, size);
				check(size >= 0, "send");
			}
			_exit(0);
		}
		wait(NULL);
		for (file = at < 2 ? 0 : 1; file < 3; file++) {
			ssize_t got;

			room = sizeof from;
			got = recvfrom(log, bytes, sizeof bytes, 0, (void *)&from, &room);
			printf("%d: %.*s, from %.*s (%d)\n", (int)got, (int)got, bytes,
			       room > 3 ? (int)room - 3 : 0, from.sun_path + 1, (int)room);
		}
	}
	tell("no more", recv(log, bytes, 10, MSG_DONTWAIT));
	file = socket(AF_UNIX, SOCK_DGRAM, 0);
	check(connect(file, (void *)&server, len) == 0, "connect");
	close(log);
	tell("gone", send(file, "x", 1, 0));
	tell("then", send(file, "x", 1, 0));
	tell("to", sendto(file, "x", 1, 0, (void *)&server, len));
	unlink("log-socket");
	tell("to", sendto(file, "x", 1, 0, (void *)&server, len));
	at = socket(AF_UNIX, SOCK_STREAM, 0);
	len = name(&server, "rcoe-stream", 0);
	check(bind(at, (void *)&server, len) == 0 && listen(at, 1) == 0, "stream");
	tell("stream", connect(file, (void *)&server, len));
	tell("listen", listen(file, 1));
	close(at);
	close(file);
}

static void events_of(int file, const char *what)
{
	struct pollfd asked = { file, POLLIN | POLLOUT, 0 };

	poll(&asked, 1, 0);
	printf("%s %x\n", what, asked.revents);
}

static void by_pair(void)
{
	struct iovec pieces[2] = { { "ab", 2 }, { "cde", 3 } };
	struct msghdr message = { .msg_iov = pieces, .msg_iovlen = 2 };
	char first[2], second[2];
	int pair[2], type, at;
	socklen_t len = sizeof type;

	check(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair) == 0, "socketpair");
	getsockopt(pair[0], SOL_SOCKET, SO_TYPE, &type, &len);
	printf("type %d\n", type);
	events_of(pair[1], "empty");
	tell("sendmsg", sendmsg(pair[0], &message, 0));
	tell("writev", writev(pair[0], pieces, 2));
	tell("write", write(pair[0], "", 0));
	events_of(pair[1], "full");
	pieces[0].iov_base = first;
	pieces[1].iov_base = second;
	pieces[1].iov_len = 2;
	tell("recvmsg", recvmsg(pair[1], &message, MSG_PEEK));
	printf("%.2s %.2s, flags %x\n", first, second, message.msg_flags);
	tell("cut", recv(pair[1], bytes, 3, MSG_TRUNC));
	tell("readv", readv(pair[1], pieces, 2));
	tell("nothing", recv(pair[1], bytes, 3, 0));
	tell("empty", recv(pair[1], bytes, 3, 0));
	tell("too long", send(pair[0], bytes, 60000, 0) == 60000 ? 0 : -1);
	tell("whole", recv(pair[1], bytes, sizeof bytes, 0));
	for (at = 0; send(pair[0], bytes, 8000, 0) == 8000; at++)
		;
	printf("fills %d: %s\n", at > 2, strerror(errno));
	events_of(pair[0], "filled");
	while (recv(pair[1], bytes, 8000, 0) == 8000)
		;
	events_of(pair[0], "emptied");
	tell("shutdown", shutdown(pair[0], SHUT_WR));
	tell("mute", send(pair[0], "x", 1, 0));
	tell("back", send(pair[1], "x", 1, 0));
	tell("read", read(pair[0], bytes, 9));
	close(pair[0]);
	tell("left", send(pair[1], "x", 1, 0));
	close(pair[1]);
}

/* Many in turn, where both wait for each other again and again; the last one is told by epoll. */
static void in_turn(void)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET }, found;
	int pair[2], at, poller = epoll_create1(0);
	unsigned sum = 0;

	check(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0, "socketpair");
	if (!fork()) {
		close(pair[0]);
		for (at = 0; at < 300; at++) {
			memset(bytes, at, 3000 + at);
			check(write(pair[1], bytes, 3000 + at) == 3000 + at, "write");
		}
		_exit(0);
	}
	for (at = 0; at < 299; at++) {
		int got = read(pair[0], bytes, sizeof bytes);

		check(got == 3000 + at && bytes[got - 1] == (char)at, "read");
		sum = sum * 31 + bytes[got / 2];
	}
	wait(NULL);
	epoll_ctl(poller, EPOLL_CTL_ADD, pair[0], &event);
	check(epoll_wait(poller, &found, 1, -1) == 1, "epoll");
	tell("last", read(pair[0], bytes, sizeof bytes));
	printf("in turn %x, events %x\n", sum, found.events);
	close(poller);
	close(pair[0]);
	close(pair[1]);
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_DFL);
	log_of_clients();
	by_pair();
	in_turn();
	return 0;
}
