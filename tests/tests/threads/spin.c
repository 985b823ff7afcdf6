// A thread that waits for another one without a system call.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static volatile int flag;
static void *sets(void *unused) {
  (void)unused;
  for (int i = 0; i < 200; i++) getppid();
  flag = 1;
  return 0;
}

int main(void) {
  pthread_t thread;
  pthread_create(&thread, 0, sets, 0);
  while (!flag) {}
  pthread_join(thread, 0);
  puts("seen");
  return 0;
}
