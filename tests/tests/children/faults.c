// meter COMMAND...: runs it and tells the page faults of it and its children.
// loop ROUNDS [PROGRAM]: executes this program anew, or that one, in so many children.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static struct rusage run(char **command) {
  struct rusage used;
  int status;
  pid_t child = fork();
  if (child == 0) {
    execv(command[0], command);
    _exit(127);
  }
  if (wait4(child, &status, 0, &used) != child || status != 0) exit(1);
  return used;
}

int main(int argc, char **argv) {
  if (!strcmp(argv[1], "meter")) {
    printf("%ld\n", run(argv + 2).ru_minflt);
  } else if (!strcmp(argv[1], "loop")) {
    char *end[] = {argc > 3 ? argv[3] : argv[0], "end", 0};
    for (int left = atoi(argv[2]); left > 0; left--) run(end);
  }
  return 0;
}
