/* Connections of whole messages (SOCK_SEQPACKET), by pairs and by names. */
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

static void events_of(int file, const char *what)
{
	struct pollfd asked = { file, POLLIN | POLLOUT | POLLRDHUP, 0 };

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

	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) == 0, "socketpair");
	getsockopt(pair[0], SOL_SOCKET, SO_TYPE, &type, &len);
	printf("type %d\n", type);
	events_of(pair[1], "empty");
	tell("nothing", recv(pair[1], bytes, 3, 0));
	tell("sendmsg", sendmsg(pair[0], &message, 0));
	tell("writev", writev(pair[0], pieces, 2));
	tell("end of record", send(pair[0], "", 0, MSG_EOR));
	tell("write", write(pair[0], "last", 4));
	events_of(pair[1], "full");
	pieces[0].iov_base = first;
	pieces[1].iov_base = second;
	pieces[1].iov_len = 2;
	tell("recvmsg", recvmsg(pair[1], &message, MSG_PEEK));
	printf("%.2s %.2s, flags %x\n", first, second, message.msg_flags);
	tell("cut", recv(pair[1], bytes, 3, MSG_TRUNC));
	tell("readv", readv(pair[1], pieces, 2));
	tell("zero", recv(pair[1], bytes, 3, 0));
	tell("all", recv(pair[1], bytes, 9, MSG_WAITALL));
	for (at = 0; send(pair[0], bytes, 8000, 0) == 8000; at++)
		;
	printf("fills %d: %s\n", at > 2, strerror(errno));
	events_of(pair[0], "filled");
	while (recv(pair[1], bytes, 8000, 0) == 8000)
		;
	events_of(pair[0], "emptied");
	tell("left", send(pair[0], "left", 4, 0));
	tell("shutdown", shutdown(pair[0], SHUT_WR));
	tell("mute", send(pair[0], "x", 1, 0));
	events_of(pair[1], "half");
	tell("read", read(pair[1], bytes, 9));
	tell("end", read(pair[1], bytes, 9));
	tell("back", send(pair[1], "x", 1, 0));
	tell("read", read(pair[0], bytes, 9));
	close(pair[0]);
	events_of(pair[1], "gone");
	tell("lost", send(pair[1], "x", 1, 0));
	tell("end", recv(pair[1], bytes, 9, 0));
	close(pair[1]);
}

static void serve(int listener, int clients)
{
	struct sockaddr_un from;
	socklen_t room;
	int at, file, got;

	for (at = 0; at < clients; at++) {
		file = accept(listener, NULL, NULL);
		check(file >= 0, "accept");
		do {
			room = sizeof from;
			got = recvfrom(file, bytes, sizeof bytes, 0, (void *)&from, &room);
			check(got >= 0, "recvfrom");
			printf("%d: %.*s, from %.*s (%d)\n", got, got, bytes,
			       room > 3 ? (int)room - 3 : 0, from.sun_path + 1, (int)room);
			if (got)
				check(send(file, bytes, got, 0) == got, "send");
		} while (got);
		close(file);
		wait(NULL);
	}
}

/* A server of files' and of its own names; what it answers comes as it was sent. */
static void by_name(const char *text, int file)
{
	struct sockaddr_un server, own;
	socklen_t len = name(&server, text, file);
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), at, part, got;

	unlink(text);
	tell("early", listen(listener, 4));
	check(bind(listener, (void *)&server, len) == 0, "bind");
	at = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	tell("deaf", connect(at, (void *)&server, len));
	tell("unconnected", send(at, "x", 1, 0));
	tell("unconnected", recv(at, bytes, 1, 0));
	tell("accept", accept(listener, NULL, NULL));
	close(at);
	check(listen(listener, 4) == 0, "listen");
	for (at = 0; at < 3; at++) {
		if (!fork()) {
			int it = socket(AF_UNIX, SOCK_SEQPACKET, 0);

			if (at == 1)
				check(bind(it, (void *)&own, name(&own, "rcoe-client", 0)) == 0,
				      "bind");
			check(connect(it, (void *)&server, len) == 0, "connect");
			for (part = 0; part < 3; part++) {
				char line[40];
				int size = sprintf(line, "client %d says %.*s", at, part, "abc");

				/* An address does not matter here. */
				got = sendto(it, line, size, 0, part ? (void *)&server : NULL,
					     part ? len : 0);
				check(got == size, "sendto");
				check(recv(it, bytes, sizeof bytes, 0) == size, "recv");
			}
			_exit(0);
		}
		serve(listener, 1);
	}
	at = socket(AF_UNIX, SOCK_STREAM, 0);
	tell("stream", connect(at, (void *)&server, len));
	close(at);
	at = socket(AF_UNIX, SOCK_DGRAM, 0);
	tell("datagrams", connect(at, (void *)&server, len));
	close(at);
	close(listener);
	at = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	tell("gone", connect(at, (void *)&server, len));
	close(at);
	unlink(text);
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	len = name(&server, text, file);
	check(bind(listener, (void *)&server, len) == 0 && listen(listener, 1) == 0, "stream");
	at = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	tell("other", connect(at, (void *)&server, len));
	close(at);
	close(listener);
	unlink(text);
}

/* Many in turn, where both wait for each other again and again; the last one is told by epoll. */
static void in_turn(void)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET }, found;
	int pair[2], at, poller = epoll_create1(0);
	unsigned sum = 0;

	check(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "socketpair");
	if (!fork()) {
		close(pair[0]);
		for (at = 0; at < 300; at++) {
			memset(bytes, at, 3000 + at);
			check(write(pair[1], bytes, 3000 + at) == 3000 + at, "write");
		}
		_exit(0);
	}
	close(pair[1]);
	for (at = 0; at < 299; at++) {
		int got = read(pair[0], bytes, sizeof bytes);

		check(got == 3000 + at && bytes[got - 1] == (char)at, "read");
		sum = sum * 31 + bytes[got / 2];
	}
	wait(NULL);
	epoll_ctl(poller, EPOLL_CTL_ADD, pair[0], &event);
	check(epoll_wait(poller, &found, 1, -1) == 1, "epoll");
	tell("last", read(pair[0], bytes, sizeof bytes));
	tell("end", read(pair[0], bytes, sizeof bytes));
	printf("in turn %x, events %x\n", sum, found.events);
	close(poller);
	close(pair[0]);
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_DFL);
	by_pair();
	by_name("packet-socket", 1);
	by_name("rcoe-packets", 0);
	in_turn();
	return 0;
}
