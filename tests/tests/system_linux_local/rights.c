/* Descriptors that are sent beside the bytes of messages, to other processes and to itself. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROOM = 64 };

static void check(int ok, const char *what)
{
	if (!ok) {
		printf("%s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static int give(int to, const char *text, const int *files, int count)
{
	struct iovec piece = { (void *)text, strlen(text) };
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(ROOM * sizeof(int))];
	} beside = { .bytes = { 0 } };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };

	if (count) {
		message.msg_control = &beside;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		beside.head.cmsg_len = CMSG_LEN(count * sizeof(int));
		beside.head.cmsg_level = SOL_SOCKET;
		beside.head.cmsg_type = SCM_RIGHTS;
		memcpy(CMSG_DATA(&beside.head), files, count * sizeof(int));
	}
	return sendmsg(to, &message, MSG_NOSIGNAL);
}

/* Tells what came, and has the descriptors; how many there are. */
static int take(int from, int most, int space, int flags, int *files)
{
	char bytes[200];
	struct iovec piece = { bytes, most };
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(ROOM * sizeof(int))];
	} beside;
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
	struct cmsghdr *head;
	int len, count = 0;

	message.msg_control = &beside;
	message.msg_controllen = space;
	len = recvmsg(from, &message, flags);
	check(len >= 0, "recvmsg");
	head = CMSG_FIRSTHDR(&message);
	if (head) {
		check(head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS, "kind");
		count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(files, CMSG_DATA(head), count * sizeof(int));
	}
	printf("  %.*s (%d) with %d in %d, flags %x\n", len, bytes, len, count,
	       (int)message.msg_controllen, message.msg_flags);
	return count;
}

static void tell_flags(int file)
{
	printf("  closes %d\n", fcntl(file, F_GETFD));
}

/* A server opens files for its client, and tells it who it is. */
static void by_server(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), files[ROOM], status, file;
	struct ucred peer = { 0 };
	socklen_t len = sizeof peer;
	char bytes[20] = "";
	pid_t child;

	strcpy(name.sun_path, "rights-socket");
	check(bind(listener, (void *)&name, sizeof name) == 0 && listen(listener, 4) == 0, "bind");
	child = fork();
	if (!child) {
		file = socket(AF_UNIX, SOCK_STREAM, 0);
		check(connect(file, (void *)&name, sizeof name) == 0, "connect");
		getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer, &len);
		check(take(file, 100, CMSG_SPACE(3 * sizeof(int)), MSG_CMSG_CLOEXEC, files) == 3,
		      "three");
		printf("server's %d, user %d\n", peer.pid == getppid(), peer.uid == getuid());
		tell_flags(files[0]);
		check(pread(files[0], bytes, 10, 2) == 6, "pread");
		printf("  file %s\n", bytes);
		check(write(files[1], "by the child", 13) == 13, "write");
		check(eventfd_write(files[2], 7) == 0, "eventfd");
		fflush(stdout);
		_exit(3);
	}
	file = accept(listener, NULL, NULL);
	getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer, &len);
	printf("client's %d\n", peer.pid == child);
	fflush(stdout);
	files[0] = open("rights-file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	check(write(files[0], "contents", 8) == 8, "write");
	unlink("rights-file");
	check(pipe(files + 10) == 0, "pipe");
	files[1] = files[11];
	files[2] = eventfd(0, 0);
	check(give(file, "three", files, 3) == 5, "sendmsg");
	check(close(files[0]) == 0 && close(files[1]) == 0, "close");
	check(waitpid(child, &status, 0) == child, "wait");
	check(read(files[10], bytes, 20) == 13, "read");
	check(read(files[10], bytes + 13, 1) == 0, "end");
	eventfd_t value;
	check(eventfd_read(files[2], &value) == 0, "eventfd");
	printf("child %d, %s, %d\n", WEXITSTATUS(status), bytes, (int)value);
	unlink("rights-socket");
	close(listener);
	close(file);
	close(files[10]);
	close(files[2]);
}

static void bounds(void)
{
	int pair[2], files[ROOM], at, count;

	check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
	give(pair[0], "ab", NULL, 0);
	give(pair[0], "cde", pair, 1);
	give(pair[0], "fg", pair, 2);
	give(pair[0], "hi", NULL, 0);
	give(pair[0], "jkl", NULL, 0);
	puts("bounds");
	for (at = 0; at < 3; at++) {
		count = take(pair[1], 100, CMSG_SPACE(sizeof(int) * ROOM), 0, files);
		while (count--)
			close(files[count]);
	}
	give(pair[0], "abcdef", pair, 2);
	give(pair[0], "ghi", NULL, 0);
	count = take(pair[1], 3, CMSG_SPACE(sizeof(int)), 0, files);
	while (count--)
		close(files[count]);
	take(pair[1], 100, CMSG_SPACE(sizeof(int)), 0, files);
	for (at = 0; at < 5; at++) {
		give(pair[0], "x", pair, 2);
		count = take(pair[1], 1, 12 + at * 4, 0, files);
		while (count--)
			close(files[count]);
	}
	give(pair[0], "read", pair, 2);
	give(pair[0], "more", NULL, 0);
	char bytes[20];
	printf("read %d", (int)read(pair[1], bytes, 20));
	printf(" and %d\n", (int)read(pair[1], bytes, 20));
	files[0] = 700;
	printf("bad %d", give(pair[0], "x", files, 1));
	printf(" %s\n", strerror(errno));
	at = 1;
	printf("option %d", setsockopt(pair[0], IPPROTO_TCP, TCP_NODELAY, &at, sizeof at));
	printf(" %s\n", strerror(errno));
	close(pair[0]);
	close(pair[1]);
}

/* As many as would fill the table of the kernel, if any were left. */
static void in_circles(void)
{
	int at;

	for (at = 0; at < 300; at++) {
		int one[2], two[2], files[2], ends[2];

		check(socketpair(AF_UNIX, SOCK_STREAM, 0, one) == 0, "one");
		check(socketpair(AF_UNIX, SOCK_STREAM, 0, two) == 0, "two");
		check(pipe(ends) == 0, "pipe");
		files[0] = two[1];
		files[1] = ends[0];
		check(give(one[0], "x", files, 2) == 1, "to one");
		check(give(two[0], "x", one + 1, 1) == 1, "to two");
		check(give(one[0], "y", one + 1, 1) == 1, "to itself");
		close(ends[0]);
		close(ends[1]);
		close(one[0]);
		close(one[1]);
		close(two[0]);
		close(two[1]);
	}
	printf("circles %d\n", at);
}

/* Who watches others is sent, and so is a socket with something on its way in it. */
static void of_all_kinds(void)
{
	struct epoll_event event = { .events = EPOLLIN }, found;
	int outer[2], inner[2], files[ROOM], poller = epoll_create1(0), count;

	check(socketpair(AF_UNIX, SOCK_STREAM, 0, outer) == 0, "outer");
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, inner) == 0, "inner");
	event.data.u32 = 9;
	epoll_ctl(poller, EPOLL_CTL_ADD, inner[1], &event);
	check(give(inner[0], "deep", &poller, 1) == 4, "inner");
	check(give(outer[0], "far", inner + 1, 1) == 3, "outer");
	close(poller);
	close(inner[0]);
	if (!fork()) {
		puts("kinds");
		check(take(outer[1], 9, CMSG_SPACE(sizeof(int)), 0, files) == 1, "socket");
		count = take(files[0], 9, CMSG_SPACE(sizeof(int)), 0, files + 1);
		check(count == 1, "poller");
		count = epoll_wait(files[1], &found, 1, -1);
		printf("  events %d of %d: %x\n", count, (int)found.data.u32, found.events);
		fflush(stdout);
		_exit(0);
	}
	wait(NULL);
	close(outer[0]);
	close(outer[1]);
	close(inner[1]);
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	by_server();
	bounds();
	in_circles();
	of_all_kinds();
	return 0;
}
