/* Servers and clients of one machine: by the loopback, and by names in the machine. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MUCH = 300000 };

static unsigned char block[MUCH];

static void check(int ok, const char *what)
{
	if (!ok) {
		printf("%s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static void send_all(int file, const unsigned char *from, int len)
{
	while (len > 0) {
		int sent = send(file, from, len, MSG_NOSIGNAL);

		check(sent > 0, "send");
		from += sent;
		len -= sent;
	}
}

static int receive_all(int file, unsigned char *to, int len)
{
	int done = 0;

	while (done < len) {
		int got = recv(file, to + done, len - done, 0);

		check(got >= 0, "recv");
		if (!got)
			break;
		done += got;
	}
	return done;
}

static unsigned sum(const unsigned char *from, int len)
{
	unsigned all = 5381;

	while (len--)
		all = all * 33 + *from++;
	return all;
}

/* Sends back what comes, changed, until the client is done. */
static void serve(int file)
{
	static unsigned char all[MUCH];
	int len = receive_all(file, all, MUCH), at;

	for (at = 0; at < len; at++)
		all[at] ^= 0x5a;
	send_all(file, all, len);
	close(file);
}

static void be_client(int file, int number)
{
	static unsigned char back[MUCH];
	int len = MUCH - 1000 * number, at;

	for (at = 0; at < len; at++)
		block[at] = at * 7 + number + at / 251;
	send_all(file, block, len);
	check(shutdown(file, SHUT_WR) == 0, "shutdown");
	at = receive_all(file, back, MUCH);
	printf("client %d: %d bytes, %x\n", number, at, sum(back, at));
	fflush(stdout);
	_exit(number);
}

/* A server with a child for each client; they come one after the other, so that output is alike. */
static void run(int family, const void *address, socklen_t len, const char *what)
{
	int listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), number;

	check(bind(listener, address, len) == 0, "bind");
	check(listen(listener, 4) == 0, "listen");
	for (number = 1; number <= 3; number++) {
		int status, file;
		pid_t client = fork(), child;

		if (!client) {
			file = socket(family, SOCK_STREAM, 0);
			check(connect(file, address, len) == 0, "connect");
			close(listener);
			be_client(file, number);
		}
		file = accept(listener, NULL, NULL);
		check(file >= 0, "accept");
		child = fork();
		if (!child) {
			close(listener);
			serve(file);
			_exit(0);
		}
		close(file);
		check(waitpid(child, &status, 0) == child && !status, "server");
		check(waitpid(client, &status, 0) == client, "client");
		printf("%s: status %d\n", what, WEXITSTATUS(status));
	}
	close(listener);
	number = socket(family, SOCK_STREAM, 0);
	check(connect(number, address, len) < 0, "nobody listens");
	printf("%s: then %s\n", what, strerror(errno));
	close(number);
}

static void by_pair(void)
{
	struct pollfd polled = { .events = POLLIN | POLLRDHUP };
	int pair[2], type = 0;
	socklen_t len = sizeof type;
	char byte;

	check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
	getsockopt(pair[0], SOL_SOCKET, SO_TYPE, &type, &len);
	if (!fork()) {
		close(pair[0]);
		check(read(pair[1], &byte, 1) == 1, "read");
		byte++;
		check(write(pair[1], &byte, 1) == 1, "write");
		_exit(0);
	}
	close(pair[1]);
	check(write(pair[0], "a", 1) == 1, "write");
	polled.fd = pair[0];
	poll(&polled, 1, -1);
	check(read(pair[0], &byte, 1) == 1, "read");
	wait(NULL);
	poll(&polled, 1, -1);
	printf("pair %c, type %d, events %x\n", byte, type, polled.revents);
	signal(SIGPIPE, SIG_IGN);
	check(write(pair[0], "a", 1) < 0, "write");
	printf("pair %s\n", strerror(errno));
	close(pair[0]);
}

/* One process that watches its listener and both ends of its connections. */
static void by_epoll(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	struct epoll_event event = { .events = EPOLLIN };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	int poller = epoll_create1(0), clients = 0, heard = 0;
	socklen_t len = sizeof address;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(bind(listener, (void *)&address, len) == 0 && listen(listener, 8) == 0, "bind");
	getsockname(listener, (void *)&address, &len);
	event.data.fd = listener;
	epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
	while (heard < 10) {
		struct epoll_event found[4];
		int count, at, file;

		if (clients < 10) {
			file = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
			check(!connect(file, (void *)&address, len) || errno == EINPROGRESS, "connect");
			check(write(file, &clients, sizeof clients) == sizeof clients, "write");
			clients++;
		}
		count = epoll_wait(poller, found, 4, -1);
		for (at = 0; at < count; at++) {
			file = found[at].data.fd;
			if (file == listener) {
				event.data.fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
				if (event.data.fd >= 0)
					epoll_ctl(poller, EPOLL_CTL_ADD, event.data.fd, &event);
			} else if (read(file, &count, sizeof count) == sizeof count) {
				heard++;
				close(file);
				break;
			}
		}
	}
	printf("epoll: %d of %d\n", heard, clients);
}

int main(void)
{
	struct sockaddr_in port = { .sin_family = AF_INET };
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	struct stat told;
	socklen_t len = sizeof port;
	/* A port that nobody has. */
	int file = socket(AF_INET, SOCK_STREAM, 0);

	port.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	check(bind(file, (void *)&port, len) == 0, "bind");
	getsockname(file, (void *)&port, &len);
	close(file);
	run(AF_INET, &port, sizeof port, "loopback");
	strcpy(name.sun_path, "own-socket");
	run(AF_UNIX, &name, sizeof name, "file");
	check(stat("own-socket", &told) == 0, "stat");
	printf("socket %d\n", S_ISSOCK(told.st_mode));
	unlink("own-socket");
	sprintf(name.sun_path + 1, "rcoe-%d", (int)getpid());
	len = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name.sun_path + 1);
	run(AF_UNIX, &name, len, "abstract");
	by_pair();
	by_epoll();
	return 0;
}
