#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PAGES 16384l
static long visits[PAGES];
static int file;
static void both(const char *line, int len) { write(1, line, len); write(file, line, len); }
int main(void) {
  long *all = malloc(PAGES << 12), i = 0;
  char line[32];
  for (long page = 0; page < PAGES; page++) all[page << 9] = ~page;
  file = open("lines", O_WRONLY | O_CREAT | O_APPEND, 0644);
  do {
    long page = i * 40503 % PAGES;
    all[page << 9] += 3;
    visits[page] += 3;
    both(line, snprintf(line, sizeof line, "%ld\n", i++));
    usleep(300);
  } while (access("stop", F_OK) != 0);
  for (long page = 0; page < PAGES; page++)
    if (all[page << 9] != ~page + visits[page]) both("wrong\n", 6);
  both(line, snprintf(line, sizeof line, "end %ld\n", i));
  return 7;
}
