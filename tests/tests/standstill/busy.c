/* Numbers lines for ever, computes, or waits for a signal that does not come: alone, or in a thread
   beside others. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long line;

static void number_lines(void) {
  char text[32];
  for (;;) {
    pthread_mutex_lock(&lock);
    write(1, text, snprintf(text, sizeof text, "%lu\n", line));
    line++;
    pthread_mutex_unlock(&lock);
  }
}

static void *in_thread(void *unused) {
  number_lines();
  return unused;
}

int main(int argc, char **argv) {
  const char *how = argc > 1 ? argv[1] : "";
  pthread_t thread;
  volatile unsigned long count = 0;
  write(1, "ready\n", 6);
  if (!strcmp(how, "write")) number_lines();
  if (!strcmp(how, "compute"))
    for (;;) count++;
  if (!strcmp(how, "threads"))
    for (int i = 0; i < 3; i++) pthread_create(&thread, 0, in_thread, 0);
  for (;;) pause();
}
