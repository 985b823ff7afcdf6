/* What files below /proc tell of processes and the machine. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

static char bytes[65536];
static int data = 5;

static void check(int ok, const char *what)
{
	if (!ok) {
		printf("%s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static void tell(const char *what, int got)
{
	if (got < 0)
		printf("%s: %s\n", what, strerror(errno));
	else
		printf("%s: %d\n", what, got);
}

/* Reads a file of a process, or of the machine if there is none; how much there was. */
static int load(int pid, const char *name)
{
	char path[80];
	int file, len = 0, got;

	if (pid > 0)
		sprintf(path, "/proc/%d/%s", pid, name);
	else
		sprintf(path, pid ? "/proc/self/%s" : "/proc/%s", name);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return -1;
	while ((got = read(file, bytes + len, sizeof bytes - 1 - len)) > 0)
		len += got;
	bytes[len] = 0;
	close(file);
	return len;
}

/* The value behind a name, if there is one. */
static const char *value(const char *name)
{
	const char *at = bytes;

	while (at && strncmp(at, name, strlen(name))) {
		at = strchr(at, '\n');
		at = at ? at + 1 : at;
	}
	return at ? at + strlen(name) : "0";
}

static void tell_stat(int pid, const char *what)
{
	int number, parent, group, session, fields = 0;
	char name[30], state, *at;

	if (load(pid, "stat") < 0) {
		printf("%s: %s\n", what, strerror(errno));
		return;
	}
	check(sscanf(bytes, "%d (%29[^)]) %c %d %d %d", &number, name, &state, &parent, &group,
		     &session) == 6, "stat");
	for (at = bytes; *at; at++)
		fields += *at == ' ';
	printf("%s: %s %c, own %d, child %d, of its parent's group %d, %d fields\n", what, name,
	       state, number == getpid(), parent == getpid(), group == getpgrp(), fields + 1);
}

static void tell_status(int pid, const char *what)
{
	char name[30];

	check(load(pid, "status") > 0, "status");
	sscanf(value("Name:"), "%29s", name);
	printf("%s: %s, number %d, parent %d, threads %d, user %d\n", what, name,
	       atoi(value("Pid:")) == (pid > 0 ? pid : getpid()),
	       atoi(value("PPid:")) == (pid == getpid() || pid < 0 ? getppid() : getpid()),
	       atoi(value("Threads:")), atoi(value("Uid:")) == (int)getuid());
	printf("  mask %s", strncmp(value("Umask:\t"), "0027", 4) ? "other\n" : "0027\n");
	printf("  memory %d, blocked %lx, ignored %lx, caught %lx\n",
	       atoi(value("VmRSS:")) > 0 && atoi(value("VmSize:")) >= atoi(value("VmRSS:")),
	       strtoul(value("SigBlk:"), NULL, 16), strtoul(value("SigIgn:"), NULL, 16) & 0xffff,
	       strtoul(value("SigCgt:"), NULL, 16) & 0xffff);
}

static void tell_words(int pid)
{
	int len = load(pid, "cmdline"), at;

	for (at = 0; at < len; at += strlen(bytes + at) + 1)
		printf("%s|", bytes + at);
	printf(" (%d)\n", len);
}

/* The rights of the mapping that has an address, and what it is called. */
static void tell_map(const void *place, const char *what)
{
	unsigned long start, end;
	char rights[5], name[40], *at;
	int found = 0;

	check(load(-1, "maps") > 0, "maps");
	for (at = strtok(bytes, "\n"); at; at = strtok(NULL, "\n")) {
		int got = sscanf(at, "%lx-%lx %4s %*x %*s %*d %39s", &start, &end, rights, name);

		check(got >= 3, "sscanf");
		if ((unsigned long)place < start || (unsigned long)place >= end)
			continue;
		found++;
		printf("%s: %s%s%s\n", what, rights, got > 3 && name[0] == '[' ? " " : "",
		       got > 3 && name[0] == '[' ? name : "");
	}
	if (found != 1)
		printf("%s: %d times\n", what, found);
}

static void ring(int signal)
{
	(void)signal;
}

static void *run(void *unused)
{
	tell_status(-1, "of two");
	return unused;
}

static void of_itself(void)
{
	struct stat told;
	pthread_t thread;
	sigset_t some;

	umask(027);
	sigemptyset(&some);
	sigaddset(&some, SIGUSR1);
	sigaddset(&some, SIGRTMAX);
	sigprocmask(SIG_BLOCK, &some, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGINT, ring);
	tell_stat(-1, "self");
	tell_stat(getpid(), "number");
	tell_status(-1, "self");
	tell_status(getpid(), "number");
	check(pthread_create(&thread, NULL, run, NULL) == 0, "pthread_create");
	pthread_join(thread, NULL);
	tell_words(-1);
	check(load(-1, "comm") > 0, "comm");
	printf("%s", bytes);
	check(stat("/proc/self/status", &told) == 0, "stat");
	printf("mode %o, %d bytes\n", told.st_mode, (int)told.st_size);
	check(stat("/proc/self/", &told) == 0, "stat");
	printf("folder %d\n", S_ISDIR(told.st_mode));
	sprintf(bytes, "/proc/%d/../%d/./exe", getpid(), getpid());
	printf("exe %d\n", readlink(bytes, bytes + 100, 200) > 0);
	sigprocmask(SIG_UNBLOCK, &some, NULL);
}

static void of_memory(void)
{
	int on_stack;
	char *heap = malloc(100);
	void *plain = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	void *none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	tell_map((void *)of_memory, "code");
	tell_map(&data, "data");
	tell_map(&on_stack, "stack");
	tell_map(plain, "plain");
	tell_map(shared, "shared");
	tell_map(none, "none");
	check(mprotect(plain, 4096, PROT_READ) == 0, "mprotect");
	tell_map(plain, "read");
	tell_map((char *)plain + 4096, "rest");
	munmap(plain, 4096);
	tell_map(plain, "gone");
	/* Libraries differ in where small pieces come from. */
	heap[0] = 1;
	heap = sbrk(4096);
	tell_map(heap, "heap");
	check(load(-1, "statm") > 0, "statm");
	printf("statm %d\n", atoi(bytes) > 0);
}

static void of_machine(void)
{
	struct sysinfo info;
	struct utsname name;
	double up = 0, load_now = 1;
	const char *at;
	int cores = 0;

	check(load(0, "meminfo") > 0 && sysinfo(&info) == 0, "meminfo");
	printf("memory %d, free %d\n",
	       strtoul(value("MemTotal:"), NULL, 10) == info.totalram * info.mem_unit / 1024,
	       strtoul(value("MemFree:"), NULL, 10) > 0);
	check(load(0, "cpuinfo") > 0, "cpuinfo");
	for (at = bytes; (at = strstr(at, "processor\t:")); at++)
		cores++;
	printf("cores %d, sse2 %d, model %d\n", cores > 0, strstr(bytes, " sse2") != NULL,
	       strstr(bytes, "model name\t: ") != NULL);
	check(load(0, "uptime") > 0 && sscanf(bytes, "%lf", &up) == 1, "uptime");
	check(load(0, "loadavg") > 0 && sscanf(bytes, "%lf", &load_now) == 1, "loadavg");
	printf("up %d, load %d\n", up > 0, load_now >= 0);
	check(load(0, "stat") > 0, "stat");
	printf("cpu0 %d, btime %d\n", strstr(bytes, "\ncpu0 ") != NULL, atoi(value("btime ")) > 0);
	uname(&name);
	check(load(0, "sys/kernel/osrelease") > 0, "osrelease");
	printf("release %d\n", !strncmp(bytes, name.release, strlen(name.release)));
	check(load(0, "sys/kernel/hostname") > 0, "hostname");
	printf("host %d\n", !strncmp(bytes, name.nodename, strlen(name.nodename)));
	check(load(0, "version") > 0, "version");
	printf("version %d\n", strstr(bytes, name.release) != NULL);
}

static int listed(int pid)
{
	DIR *folder = opendir("/proc");
	struct dirent *entry;
	int found = 0;

	check(folder != NULL, "opendir");
	while ((entry = readdir(folder)))
		found += atoi(entry->d_name) == pid;
	closedir(folder);
	return found;
}

/* A child as long as it waits, when it has ended, and when it is gone. */
static void of_others(char **words)
{
	int go[2], ready[2], file;
	char path[60];
	siginfo_t info;
	pid_t child;

	check(pipe(go) == 0 && pipe(ready) == 0, "pipe");
	child = fork();
	if (!child) {
		strcpy(words[1], "new");
		check(write(ready[1], "!", 1) == 1, "write");
		check(read(go[0], bytes, 1) == 1, "read");
		_exit(0);
	}
	check(read(ready[0], bytes, 1) == 1, "read");
	/* It waits for a byte, or is about to. */
	while (load(child, "stat") > 0 && !strstr(bytes, ") S "))
		sched_yield();
	tell_stat(child, "child");
	tell_status(child, "child");
	tell_words(child);
	sprintf(path, "/proc/%d/stat", child);
	file = open(path, O_RDONLY);
	printf("listed %d\n", listed(child));
	check(write(go[1], "!", 1) == 1, "write");
	check(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0, "waitid");
	tell_stat(child, "ended");
	tell_words(child);
	printf("listed %d\n", listed(child));
	waitpid(child, NULL, 0);
	tell_stat(child, "gone");
	printf("listed %d\n", listed(child));
	tell("read", pread(file, bytes, 10, 0));
	close(file);
	tell("nobody", load(0, "12345678/stat"));
	tell("nothing", load(-1, "nothing"));
}

int main(int count, char **words)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	check(count == 3, "words");
	of_itself();
	of_memory();
	of_machine();
	of_others(words);
	return 0;
}
