#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
  int file = open("lines", O_WRONLY | O_CREAT | O_APPEND, 0644);
  char line[32];
  if (fork() == 0) {
    long i = 0;
    do {
      int len = snprintf(line, sizeof line, "%ld\n", i++);
      write(1, line, len); write(file, line, len);
      usleep(300);
    } while (access("stop", F_OK) != 0);
    int len = snprintf(line, sizeof line, "end %ld\n", i);
    write(1, line, len); write(file, line, len);
    _exit(3);
  }
  int status;
  wait(&status);
  return WEXITSTATUS(status) + 4;
}
