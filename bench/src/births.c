/* Makes children in a loop, or runs a command and tells what CPU time all of its processes took. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs the command; prints microseconds of CPU time and page faults, of all that was awaited. */
static int meter(char **command) {
  struct rusage used;
  int status;
  pid_t child = fork();
  if (child == 0) {
    execvp(command[0], command);
    _exit(127);
  }
  if (wait4(child, &status, 0, &used) != child || status != 0) return 1;
  long seconds = used.ru_utime.tv_sec + used.ru_stime.tv_sec;
  long rest = used.ru_utime.tv_usec + used.ru_stime.tv_usec;
  printf("%ld %ld\n", seconds * 1000000 + rest, used.ru_minflt + used.ru_majflt);
  return 0;
}

/* births meter COMMAND...; births ROUNDS [PROGRAM] */
int main(int count, char **words) {
  if (count > 2 && strcmp(words[1], "meter") == 0) return meter(words + 2);
  for (long round = count > 1 ? atol(words[1]) : 0; round > 0; round--) {
    int status;
    pid_t child = fork();
    if (child == 0) {
      if (count > 2) execl(words[2], words[2], (char *)0);
      _exit(count > 2 ? 127 : 0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 1;
  }
  return 0;
}
