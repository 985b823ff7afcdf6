/* Numbers lines, from when there is a file `fork` on in turn with a child, until there is a file
   `stop`. With an argument the two share memory. Both keep much memory of their own, and change
   it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS (1l << 19)

/* For the test to change: nobody uses the one, and a child adds the other to what it tells. */
volatile unsigned long unused, wrong;

static int file;
static long *own, *shared;

static void tell(const char *line, int len) { write(1, line, len); write(file, line, len); }

static void tell_number(long number, long add) {
  char line[32];
  long *at = own + number * 4093 % WORDS;
  tell(line, snprintf(line, sizeof line, "%ld\n", number + add));
  if (shared && (*shared)++ != number) tell("wrong\n", 6);
  if (*at % WORDS != at - own) tell("changed\n", 8);
  *at += WORDS;
  if (access("mend", F_OK) == 0) unused = 1;
}

static void serve(int from, int to) {
  long next;
  while (read(from, &next, sizeof next) == sizeof next && next >= 0) {
    tell_number(next++, wrong);
    close(open("born", O_WRONLY | O_CREAT, 0644));
    write(to, &next, sizeof next);
  }
  _exit(0);
}

int main(int count, char **arguments) {
  int there[2], back[2], child = 0, status = 0;
  long next = 0, over = -1;
  char line[32];
  own = malloc(WORDS * sizeof *own);
  for (long i = 0; i < WORDS; i++) own[i] = i;
  if (count > 1)
    shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  file = open("lines", O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (pipe(there) != 0 || pipe(back) != 0) return 1;
  do {
    tell_number(next++, 0);
    if (child) {
      write(there[1], &next, sizeof next);
      read(back[0], &next, sizeof next);
    } else if (access("fork", F_OK) == 0 && (child = fork()) == 0)
      serve(there[0], back[1]);
    usleep(300);
  } while (access("stop", F_OK) != 0);
  write(there[1], &over, sizeof over);
  if (child) wait(&status);
  tell(line, snprintf(line, sizeof line, "end %ld\n", next));
  return status ? 1 : 7;
}
