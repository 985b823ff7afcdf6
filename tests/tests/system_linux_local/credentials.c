/* Who sent a message: SO_PASSCRED and SCM_CREDENTIALS. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROOM = 200 };

static pid_t first, child;

static void check(int ok, const char *what)
{
	if (!ok) {
		printf("%s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static const char *who(pid_t pid)
{
	return !pid ? "nobody" : pid == first ? "parent" : pid == child ? "child" : "other";
}

/* Sends text as somebody says, with a descriptor or without; the length may be wrong. */
static int say(int to, const char *text, pid_t pid, int len, int file)
{
	struct iovec piece = { (void *)text, strlen(text) };
	struct ucred own = { pid, getuid(), getgid() };
	union {
		struct cmsghdr head;
		char bytes[ROOM];
	} beside = { .bytes = { 0 } };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &beside };
	struct cmsghdr *head;

	message.msg_controllen = CMSG_SPACE(len) + (file < 0 ? 0 : CMSG_SPACE(sizeof file));
	head = CMSG_FIRSTHDR(&message);
	head->cmsg_len = CMSG_LEN(len);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_CREDENTIALS;
	memcpy(CMSG_DATA(head), &own, len);
	if (file >= 0) {
		head = CMSG_NXTHDR(&message, head);
		head->cmsg_len = CMSG_LEN(sizeof file);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		memcpy(CMSG_DATA(head), &file, sizeof file);
	}
	return sendmsg(to, &message, MSG_NOSIGNAL);
}

static void hear(int from, int most, int room, int flags)
{
	char bytes[100];
	struct iovec piece = { bytes, most };
	union {
		struct cmsghdr head;
		char bytes[ROOM];
	} beside = { .bytes = { 0 } };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &beside };
	struct cmsghdr *head;
	struct ucred told = { 0 };
	int len;

	message.msg_controllen = room;
	len = recvmsg(from, &message, flags);
	check(len >= 0, "recvmsg");
	printf("  %.*s (%d), %d beside, flags %x", len, bytes, len, (int)message.msg_controllen,
	       message.msg_flags);
	for (head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
		if (head->cmsg_type == SCM_CREDENTIALS && head->cmsg_len == CMSG_LEN(sizeof told)) {
			memcpy(&told, CMSG_DATA(head), sizeof told);
			printf("; by %s %d", who(told.pid),
			       told.pid ? told.uid == getuid() && told.gid == getgid()
					: told.uid == 65534);
		} else if (head->cmsg_type == SCM_RIGHTS) {
			int file;

			memcpy(&file, CMSG_DATA(head), sizeof file);
			printf("; a descriptor");
			close(file);
		} else {
			printf("; %d of kind %d", (int)head->cmsg_len, head->cmsg_type);
		}
	}
	printf("\n");
}

static void set(int file, int on)
{
	socklen_t len = sizeof on;

	check(setsockopt(file, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0, "SO_PASSCRED");
	on = 7;
	check(getsockopt(file, SOL_SOCKET, SO_PASSCRED, &on, &len) == 0, "SO_PASSCRED");
	printf("set %d\n", on);
}

static void by_kind(int kind)
{
	int pair[2];

	printf("kind %d\n", kind);
	check(socketpair(AF_UNIX, kind, 0, pair) == 0, "socketpair");
	check(write(pair[0], "before", 6) == 6, "write");
	set(pair[1], 1);
	hear(pair[1], 50, ROOM, 0);
	check(write(pair[0], "mine", 4) == 4, "write");
	child = fork();
	if (!child) {
		check(write(pair[0], "yours", 5) == 5 && write(pair[0], "too", 3) == 3, "write");
		_exit(0);
	}
	waitpid(child, NULL, 0);
	check(send(pair[0], "again", 5, 0) == 5, "send");
	hear(pair[1], 50, ROOM, MSG_PEEK);
	hear(pair[1], 50, ROOM, 0);
	hear(pair[1], 4, ROOM, 0);
	hear(pair[1], 50, ROOM, 0);
	hear(pair[1], 50, ROOM, 0);
	printf("says %d\n", say(pair[0], "said", getpid(), sizeof(struct ucred), pair[0]));
	hear(pair[1], 50, ROOM, 0);
	set(pair[1], 0);
	printf("says %d\n", say(pair[0], "unheard", getpid(), sizeof(struct ucred), -1));
	hear(pair[1], 50, ROOM, 0);
	set(pair[0], 1);
	check(write(pair[0], "told", 4) == 4, "write");
	set(pair[1], 1);
	hear(pair[1], 50, ROOM, 0);
	check(write(pair[0], "short", 5) == 5, "write");
	hear(pair[1], 50, 20, 0);
	check(write(pair[0], "none", 4) == 4, "write");
	hear(pair[1], 50, 0, 0);
	check(say(pair[0], "x", 0x7ffffff0, sizeof(struct ucred), -1) < 0, "say");
	printf("nobody: %s\n", strerror(errno));
	check(say(pair[0], "x", getpid(), 8, -1) < 0, "say");
	printf("length: %s\n", strerror(errno));
	close(pair[0]);
	close(pair[1]);
}

/* A server learns of each client, whether it was accepted before or after it spoke. */
static void by_server(int kind)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, kind, 0), file, at;

	strcpy(name.sun_path, "credentials-socket");
	unlink(name.sun_path);
	set(listener, 1);
	check(bind(listener, (void *)&name, sizeof name) == 0 && listen(listener, 4) == 0, "bind");
	for (at = 0; at < 2; at++) {
		child = fork();
		if (!child) {
			file = socket(AF_UNIX, kind, 0);
			check(connect(file, (void *)&name, sizeof name) == 0, "connect");
			check(write(file, "hello", 5) == 5, "write");
			_exit(0);
		}
		if (at)
			waitpid(child, NULL, 0);
		file = accept(listener, NULL, NULL);
		check(file >= 0, "accept");
		hear(file, 50, ROOM, 0);
		if (!at)
			waitpid(child, NULL, 0);
		close(file);
	}
	close(listener);
	unlink(name.sun_path);
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	first = getpid();
	by_kind(SOCK_STREAM);
	by_kind(SOCK_DGRAM);
	by_kind(SOCK_SEQPACKET);
	by_server(SOCK_STREAM);
	by_server(SOCK_SEQPACKET);
	return 0;
}
