/* Named pipes: who opens waits for the other end, whoever that is. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char bytes[70000];
static const char *const name = "named-pipe";

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

static void tell_open(const char *what, int file)
{
	tell(what, file < 0 ? -1 : 0);
	if (file >= 0)
		close(file);
}

static void events_of(int file, const char *what)
{
	struct pollfd asked = { file, POLLIN | POLLOUT, 0 };

	poll(&asked, 1, 0);
	printf("%s %x\n", what, asked.revents);
}

static void as_file(void)
{
	struct stat told, open_one;
	struct dirent *entry;
	DIR *folder;
	int file;

	check(mkfifo(name, 0640) == 0, "mkfifo");
	tell("again", mkfifo(name, 0640));
	tell("mknod", mknod("other-pipe", S_IFIFO | 0600, 0));
	check(stat(name, &told) == 0, "stat");
	printf("kind %o, %d links\n", told.st_mode, (int)told.st_nlink);
	folder = opendir(".");
	while ((entry = readdir(folder)))
		if (!strcmp(entry->d_name, name))
			printf("type %d\n", entry->d_type);
	closedir(folder);
	tell_open("folder", open(name, O_RDONLY | O_DIRECTORY));
	tell_open("only new", open(name, O_RDONLY | O_CREAT | O_EXCL, 0600));
	tell_open("no reader", open(name, O_WRONLY | O_NONBLOCK));
	file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	check(file >= 0 && fstat(file, &open_one) == 0, "fstat");
	printf("same %d, mode %o\n", told.st_ino == open_one.st_ino, open_one.st_mode);
	tell("seek", lseek(file, 0, SEEK_SET));
	tell("cut", ftruncate(file, 0));
	tell("mode", fchmod(file, 0600));
	events_of(file, "both, empty");
	tell("write", write(file, "both", 4));
	events_of(file, "both, full");
	tell("read", read(file, bytes, 9));
	printf("%.4s\n", bytes);
	close(file);
	tell("rename", rename(name, "other-pipe"));
	tell("rename", rename("other-pipe", name));
}

static void at_once(void)
{
	int reader = open(name, O_RDONLY | O_NONBLOCK), writer, more;
	char path[40];

	check(reader >= 0, "open");
	events_of(reader, "nobody yet");
	tell("read", read(reader, bytes, 9));
	writer = open(name, O_WRONLY | O_NONBLOCK);
	check(writer >= 0, "open");
	events_of(reader, "a writer");
	events_of(writer, "its end");
	tell("read", read(reader, bytes, 9));
	check(write(writer, "hello", 5) == 5, "write");
	events_of(reader, "more");
	sprintf(path, "/proc/self/fd/%d", reader);
	more = open(path, O_WRONLY | O_NONBLOCK);
	check(more >= 0 && write(more, " there", 6) == 6, "open");
	close(writer);
	tell("read", read(reader, bytes, 5));
	close(more);
	events_of(reader, "gone");
	tell("rest", read(reader, bytes, 20));
	tell("end", read(reader, bytes, 20));
	events_of(reader, "end");
	writer = open(name, O_WRONLY);
	events_of(reader, "another");
	while (write(writer, bytes, 4096) == 4096 && fcntl(writer, F_SETFL, O_NONBLOCK) == 0)
		;
	tell("full", write(writer, bytes, 1));
	events_of(writer, "full");
	close(reader);
	events_of(writer, "no reader");
	tell("lost", write(writer, bytes, 1));
	close(writer);
	/* What nobody read is gone with the last end. */
	reader = open(name, O_RDONLY | O_NONBLOCK);
	tell("anew", read(reader, bytes, 20));
	close(reader);
}

/* Each waits for the other one, and what one wrote that is gone again is there. */
static void waiting(void)
{
	int at, file, back[2], got;

	check(pipe(back) == 0, "pipe");
	for (at = 0; at < 4; at++) {
		if (!fork()) {
			file = open(name, at % 2 ? O_WRONLY : O_RDONLY);
			check(file >= 0, "open");
			if (at % 2)
				check(write(file, "from the child", 14) == 14, "write");
			else
				while ((got = read(file, bytes, 5)) > 0)
					check(write(back[1], bytes, got) == got, "write");
			_exit(0);
		}
		file = open(name, at % 2 ? O_RDONLY : O_WRONLY);
		check(file >= 0, "open");
		if (at % 2) {
			wait(NULL);
			got = read(file, bytes, 30);
		} else {
			check(write(file, "from the parent", 15) == 15, "write");
			close(file);
			wait(NULL);
			got = read(back[0], bytes, 30);
		}
		printf("%d: %.*s\n", at, got, bytes);
		if (at % 2) {
			tell("end", read(file, bytes, 9));
			close(file);
		}
	}
	close(back[0]);
	close(back[1]);
}

/* Lines of many writers stay whole. */
static void many(void)
{
	enum { WRITERS = 5, LINES = 40, LENGTH = 1000 };
	int at, file, count[WRITERS] = { 0 }, bad = 0;

	for (at = 0; at < WRITERS; at++) {
		if (!fork()) {
			int line;

			file = open(name, O_WRONLY);
			memset(bytes, 'a' + at, LENGTH);
			for (line = 0; line < LINES; line++)
				check(write(file, bytes, LENGTH) == LENGTH, "write");
			_exit(0);
		}
	}
	/* Held open, so that no end comes before all have begun. */
	file = open(name, O_RDWR);
	for (at = 0; at < WRITERS * LINES; at++) {
		int done = 0, got;

		while (done < LENGTH) {
			got = read(file, bytes + done, LENGTH - done);
			check(got > 0, "read");
			done += got;
		}
		for (got = 0; got < LENGTH; got++)
			bad += bytes[got] != bytes[0];
		count[bytes[0] - 'a']++;
	}
	while (wait(NULL) > 0)
		;
	for (at = 0; at < WRITERS; at++)
		printf("%d ", count[at]);
	printf("lines, %d bad\n", bad);
	close(file);
}

static void unlinked(void)
{
	int reader = open(name, O_RDONLY | O_NONBLOCK), writer = open(name, O_WRONLY);
	struct epoll_event event = { .events = EPOLLIN | EPOLLET }, found;
	int poller = epoll_create1(0), other;
	struct stat told;

	check(reader >= 0 && writer >= 0 && unlink(name) == 0, "unlink");
	tell_open("gone", open(name, O_RDONLY));
	check(fstat(reader, &told) == 0, "fstat");
	printf("%d links\n", (int)told.st_nlink);
	check(mkfifo(name, 0600) == 0, "mkfifo");
	other = open(name, O_RDONLY | O_NONBLOCK);
	epoll_ctl(poller, EPOLL_CTL_ADD, reader, &event);
	tell("none", epoll_wait(poller, &found, 1, 0));
	check(write(writer, "old", 3) == 3, "write");
	tell("one", epoll_wait(poller, &found, 1, -1));
	tell("told", epoll_wait(poller, &found, 1, 0));
	tell("other", read(other, bytes, 9));
	tell("old", read(reader, bytes, 9));
	close(reader);
	close(writer);
	close(other);
	close(poller);
}

static int rung[2];

static void ring(int signal)
{
	(void)signal;
	(void)!write(rung[1], "!", 1);
}

/* A signal breaks waiting off, or the call goes on behind the handler. */
static void broken_off(void)
{
	struct sigaction action = { .sa_handler = ring };
	int at, file;

	check(pipe(rung) == 0, "pipe");
	for (at = 0; at < 2; at++) {
		action.sa_flags = at ? SA_RESTART : 0;
		sigaction(SIGALRM, &action, NULL);
		if (at && !fork()) {
			/* Not before the other one had its signal. */
			check(read(rung[0], bytes, 1) == 1, "read");
			file = open(name, O_RDONLY);
			check(read(file, bytes, 9) == 1, "read");
			_exit(0);
		}
		ualarm(20000, 20000);
		file = open(name, O_WRONLY);
		tell("waited", file < 0 ? -1 : 0);
		ualarm(0, 0);
		if (file >= 0)
			tell("write", write(file, "x", 1));
		close(file);
		while (wait(NULL) > 0)
			;
		fcntl(rung[0], F_SETFL, O_NONBLOCK);
		while (read(rung[0], bytes, 9) > 0)
			;
		fcntl(rung[0], F_SETFL, 0);
	}
	tell_open("nobody", open(name, O_WRONLY | O_NONBLOCK));
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	umask(022);
	unlink(name);
	unlink("other-pipe");
	as_file();
	at_once();
	waiting();
	many();
	unlinked();
	broken_off();
	unlink(name);
	return 0;
}
