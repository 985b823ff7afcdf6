/* A program that executes itself and others in all ways there are, and tells what they find. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *self;
static int data = 1;

static void tell(int status)
{
	if (WIFSIGNALED(status))
		printf("signal %d\n", WTERMSIG(status));
	else
		printf("status %d\n", WEXITSTATUS(status));
	fflush(stdout);
}

static void wait_for(pid_t child)
{
	int status = -1;

	if (waitpid(child, &status, 0) != child)
		perror("waitpid");
	tell(status);
}

/* What a program finds that was executed. */
static int child(int argc, char **argv, char **envp)
{
	sigset_t mask;
	struct sigaction action;
	int word = 0, variable = 0;

	for (; word < argc; word++)
		printf("[%s]", argv[word]);
	for (; envp[variable]; variable++)
		printf("{%s}", envp[variable]);
	sigprocmask(SIG_BLOCK, NULL, &mask);
	printf(" data %d blocked %d", data, sigismember(&mask, SIGUSR1));
	sigaction(SIGTERM, NULL, &action);
	printf(" handled %d", action.sa_handler != SIG_DFL);
	sigaction(SIGHUP, NULL, &action);
	printf(" ignored %d", action.sa_handler == SIG_IGN);
	printf(" kept %d closed %d", fcntl(100, F_GETFD) >= 0, fcntl(101, F_GETFD) < 0);
	printf(" self %d\n", getpid() == gettid());
	fflush(stdout);
	return 40 + argc;
}

static void handler(int signal)
{
	(void)signal;
}

static void *execute(void *unused)
{
	char *words[] = { "thread", "child", NULL };
	char *variables[] = { "FROM=thread", NULL };

	execve(self, words, variables);
	return unused;
}

/* A thread executes a program while others wait. */
static void by_thread(void)
{
	pthread_t thread;
	pid_t pid = fork();

	if (pid)
		return wait_for(pid);
	pthread_create(&thread, NULL, execute, NULL);
	pthread_join(thread, NULL);
	_exit(1);
}

static void by_spawn(void)
{
	char *words[] = { "spawned", "child", "x", NULL };
	char *variables[] = { NULL };
	char *lost[] = { "lost", NULL };
	pid_t pid;

	if (posix_spawn(&pid, self, NULL, NULL, words, variables) == 0)
		wait_for(pid);
	printf("lost %d\n", posix_spawn(&pid, "lost", NULL, NULL, lost, variables));
}

static void by_descriptor(void)
{
	char *words[] = { "descriptor", "child", NULL };
	char *variables[] = { NULL };
	pid_t pid = fork();

	if (pid)
		return wait_for(pid);
	fexecve(open(self, O_RDONLY | O_CLOEXEC), words, variables);
	_exit(1);
}

/* A script that is written here, with the program as its interpreter. */
static void by_script(void)
{
	char *words[] = { "dropped", "a", "b", NULL };
	pid_t pid;
	FILE *file = fopen("own-script", "w");

	fprintf(file, "#! %s child\n", self);
	fclose(file);
	chmod("own-script", 0755);
	pid = fork();
	if (!pid) {
		clearenv();
		execv("own-script", words);
		_exit(1);
	}
	wait_for(pid);
	unlink("own-script");
}

static void errors(void)
{
	char *words[] = { "x", NULL };

	execv("/", words);
	printf("folder %d\n", errno);
	execv("lost", words);
	printf("lost %d\n", errno);
	execv(self, (char **)1);
	printf("fault %d\n", errno);
	close(open("own-text", O_CREAT | O_WRONLY, 0644));
	execv("own-text", words);
	printf("no program %d\n", errno);
	chmod("own-text", 0755);
	execv("own-text", words);
	printf("empty %d\n", errno);
	unlink("own-text");
}

int main(int argc, char **argv, char **envp)
{
	static char path[4096];
	char *words[] = { "replaced", "child", NULL };
	char *variables[] = { "LAST=1", NULL };
	sigset_t mask;
	int word;

	for (word = 0; word < argc; word++)
		if (!strcmp(argv[word], "child"))
			return child(argc, argv, envp);
	path[readlink("/proc/self/exe", path, sizeof path - 1)] = 0;
	self = path;
	data = 2;
	dup2(1, 100);
	fcntl(dup2(1, 101), F_SETFD, FD_CLOEXEC);
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	signal(SIGTERM, handler);
	signal(SIGHUP, SIG_IGN);
	by_thread();
	by_spawn();
	by_descriptor();
	by_script();
	errors();
	printf("shell ");
	fflush(stdout);
	tell(system("echo $((6 * 7)); exit 3"));
	alarm(1000);
	printf("data %d\n", data);
	fflush(stdout);
	execve(self, words, variables);
	return 1;
}
