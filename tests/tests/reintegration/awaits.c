/* Fills memory that its children do not get, and then writes lines, each by a child that it awaits,
   until there is a file `stop`. Tells at the end whether its children have used anything. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MUCH
#define MUCH (64 << 20)
#endif

static int file;

static void tell(const char *line, int len) { write(1, line, len); write(file, line, len); }

int main(void) {
  char line[32];
  struct rusage used;
  long i = 0;
  file = open("lines", O_WRONLY | O_CREAT | O_APPEND, 0644);
  char *much = mmap(0, MUCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(much, MUCH, MADV_DONTFORK);
  memset(much, 1, MUCH);
  do {
    int len = snprintf(line, sizeof line, "%ld\n", i++), status;
    if (fork() == 0) { tell(line, len); _exit(0); }
    wait(&status);
  } while (access("stop", F_OK) != 0);
  getrusage(RUSAGE_CHILDREN, &used);
  tell(line, snprintf(line, sizeof line, "end %ld\n", used.ru_maxrss > 0 ? i : -1));
  return 7;
}
