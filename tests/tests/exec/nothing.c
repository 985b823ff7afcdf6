// Programs and scripts that are executed with no argument at all.
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char *no_words[] = {0}, *environment[] = {"X=1", 0};

static void try(const char *path, char **words) {
  fflush(stdout);
  if (!fork()) {
    execve(path, words, environment);
    perror(path);
    _exit(1);
  }
  wait(0);
}

int main(int count, char **arguments) {
  if (getenv("X")) {
    printf("%d:", count);
    for (int at = 0; at < count; at++) printf(" '%s'", arguments[at]);
    printf(", then %s, %s\n", arguments[count] ? "more" : "nothing", getenv("X"));
    return 0;
  }
  FILE *script = fopen("script", "w");
  fputs("#!./nothing word\n", script);
  fclose(script);
  chmod("script", 0755);
  try("./nothing", no_words);
  try("./nothing", 0);
  try("./script", no_words);
  try("./script", 0);
}
