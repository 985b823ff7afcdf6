#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

volatile unsigned long wrong, unused;
static int fifo;
static void both(int file, const char *line, int len) {
  write(1, line, len); write(file, line, len); write(fifo, line, len);
}
int main(void) {
  int file = open("lines", O_WRONLY | O_CREAT | O_APPEND, 0644);
  char line[32];
  long i = 0;
  fifo = open("pipe", O_WRONLY);
  do {
    both(file, line, snprintf(line, sizeof line, "%ld\n", i++ + (long)wrong));
    usleep(300);
  } while (access("stop", F_OK) != 0);
  both(file, line, snprintf(line, sizeof line, "end %ld\n", i));
  return 7;
}
