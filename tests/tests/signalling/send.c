// Sends one signal when a byte comes from the pipe "go": to a child that counts, or to a process
// that is given. The signal queues, so that a second one would count.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int queued, end = SIGTERM;

// Tells of each signal and, when it is told to end, how many they were.
static int receive(sigset_t *set) {
  printf("ready\n");
  fflush(stdout);
  for (int count = 0;;) {
    siginfo_t info;
    int number = sigwaitinfo(set, &info);
    if (number == end) {
      printf("end %d\n", count);
      fflush(stdout);
      return 0;
    }
    printf("got %d\n", ++count);
    fflush(stdout);
  }
}

static void await_go(void) {
  char byte;
  read(open("go", O_RDONLY), &byte, 1);
}

static int send_by(const char *way, pid_t to) {
  siginfo_t info = {.si_signo = queued, .si_code = SI_QUEUE};
  if (!strcmp(way, "kill")) return kill(to, queued);
  if (!strcmp(way, "tgkill")) return syscall(SYS_tgkill, to, to, queued);
  if (!strcmp(way, "sigqueue")) return sigqueue(to, queued, (union sigval){7});
  if (!strcmp(way, "group")) return kill(0, queued);
  int descriptor = syscall(SYS_pidfd_open, to, 0);
  close(open("opened", O_WRONLY | O_CREAT, 0600));
  await_go();
  return syscall(SYS_pidfd_send_signal, descriptor, queued, &info, 0);
}

int main(int argc, char **argv) {
  queued = SIGRTMIN + 3;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, queued);
  sigaddset(&set, end);
  sigprocmask(SIG_BLOCK, &set, 0);
  if (argc == 1) return receive(&set);
  pid_t to = argc > 2 ? atoi(argv[2]) : fork();
  if (!to) _exit(receive(&set));
  if (strcmp(argv[1], "pidfd")) await_go();
  int result = send_by(argv[1], to);
  FILE *told = fopen("sent", "w");
  int own = 0;
  while (sigtimedwait(&set, 0, &(struct timespec){0}) == queued) own++;
  fprintf(told, "%d, %d to itself\n", result, own);
  fclose(told);
  while (access("stop", F_OK)) usleep(1000);
  kill(to, end);
  if (argc == 2) wait(0);
}
