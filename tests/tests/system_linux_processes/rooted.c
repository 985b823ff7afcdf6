/* Processes for which a folder is the root. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int ok, const char *what)
{
	if (!ok) {
		printf("%s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static void put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	check(file >= 0 && write(file, text, strlen(text)) == (int)strlen(text), path);
	close(file);
}

/* What is in a file, by a path from a folder. */
static void tell(int folder, const char *path)
{
	char text[50];
	int file = openat(folder, path, O_RDONLY), got;

	if (file < 0) {
		printf("%s: %s\n", path, strerror(errno));
		return;
	}
	got = read(file, text, sizeof text);
	printf("%s: %.*s\n", path, got, text);
	close(file);
}

static void tell_here(void)
{
	char text[200] = "";

	/* Libraries differ in what they make of it. */
	if (syscall(SYS_getcwd, text, sizeof text) < 0)
		printf("nowhere: %s\n", strerror(errno));
	else
		printf("in %.13s\n", text);
}

static void root(const char *path)
{
	int done = chroot(path);

	printf("root %s: %s\n", path, done ? strerror(errno) : "yes");
}

static void inside(int outside)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	struct stat own, told;
	int file;

	check(stat("jail", &own) == 0, "stat");
	root("missing");
	root("file");
	root("jail/inner/file/..");
	root("jail");
	tell_here();
	check(stat("/", &told) == 0, "stat");
	printf("same %d\n", own.st_ino == told.st_ino);
	/* What it has open, and where it is, leads out. */
	tell(AT_FDCWD, "file");
	tell(outside, "file");
	tell(outside, "/file");
	tell(AT_FDCWD, "/inner/file");
	tell(AT_FDCWD, "/../../inner/file");
	tell(AT_FDCWD, "/up");
	tell(AT_FDCWD, "/rooted");
	tell(AT_FDCWD, "jail/rooted");
	check(chdir("/") == 0, "chdir");
	tell_here();
	tell(AT_FDCWD, "../../file");
	tell(AT_FDCWD, "up");
	check(chdir("inner") == 0, "chdir");
	tell_here();
	tell(AT_FDCWD, "../../inner/file");
	put("/made", "made inside");
	check(symlink("/made", "/inner/to-made") == 0, "symlink");
	tell(AT_FDCWD, "to-made");
	check(rename("/made", "/inner/made") == 0, "rename");
	tell(AT_FDCWD, "to-made");
	file = socket(AF_UNIX, SOCK_DGRAM, 0);
	strcpy(name.sun_path, "/inner/socket");
	check(bind(file, (void *)&name, sizeof name) == 0, "bind");
	printf("socket %d\n", lstat("socket", &told) == 0 && S_ISSOCK(told.st_mode));
	if (!fork()) {
		/* One within the other. */
		tell(AT_FDCWD, "/inner/file");
		root("/inner");
		tell_here();
		check(chdir("..") == 0, "chdir");
		tell_here();
		tell(AT_FDCWD, "/made");
		tell(AT_FDCWD, "/../inner/made");
		tell(AT_FDCWD, "file");
		_exit(0);
	}
	wait(NULL);
	tell(AT_FDCWD, "/inner/made");
	check(fchdir(outside) == 0, "fchdir");
	root(".");
	tell_here();
	tell(AT_FDCWD, "/file");
	tell(AT_FDCWD, "/jail/inner/made");
}

int main(void)
{
	int outside;

	setvbuf(stdout, NULL, _IOLBF, 0);
	mkdir("place", 0700);
	check(chdir("place") == 0, "chdir");
	mkdir("jail", 0700);
	mkdir("jail/inner", 0700);
	put("file", "outside");
	put("jail/inner/file", "inside");
	check(symlink("../file", "jail/up") == 0, "symlink");
	check(symlink("/inner/file", "jail/rooted") == 0, "symlink");
	outside = open(".", O_RDONLY | O_DIRECTORY);
	if (!fork()) {
		inside(outside);
		_exit(0);
	}
	wait(NULL);
	tell(AT_FDCWD, "jail/inner/made");
	tell(AT_FDCWD, "jail/rooted");
	unlink("jail/inner/made");
	unlink("jail/inner/to-made");
	unlink("jail/inner/socket");
	unlink("jail/inner/file");
	unlink("jail/rooted");
	unlink("jail/up");
	unlink("file");
	check(rmdir("jail/inner") == 0 && rmdir("jail") == 0, "rmdir");
	check(chdir("..") == 0 && rmdir("place") == 0, "rmdir");
	return 0;
}
