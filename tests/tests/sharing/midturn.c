// A process that computes in its turn is killed; the next one that shares memory is not held up.
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int child(int told, int ends) {
  char *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  *shared = 1;
  if (fork() == 0) _exit(*shared);
  int status;
  wait(&status);
  if (write(told, shared, 1) != 1) _exit(9);
  while (!ends) {}
  _exit(WEXITSTATUS(status));
}

int main(void) {
  for (int ends = 0; ends < 2; ends++) {
    int pipes[2], status;
    char byte = 0;
    if (pipe(pipes)) return 1;
    pid_t pid = fork();
    if (pid == 0) child(pipes[1], ends);
    if (read(pipes[0], &byte, 1) != 1) return 2;
    if (!ends) kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    printf("%d %x\n", byte, status);
  }
  return 0;
}
