/* Computes without a call until a signal comes; then tells what it has computed with. With an
 * argument a child of it does so, and it waits for that. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

volatile unsigned long word = 7;
volatile unsigned long table[4096];
static volatile sig_atomic_t enough;

static void stop(int signal) { enough = signal; }

int main(int count, char **arguments) {
  (void)arguments;
  signal(SIGUSR1, stop);
  if (count > 1 && fork()) {
    int status;
    wait(&status);
    return WEXITSTATUS(status);
  }
  write(1, "ready\n", 6);
  for (unsigned long i = 1; !enough; i++) table[i * i & 4095] += word;
  printf("%lu\n", word);
  return 0;
}
