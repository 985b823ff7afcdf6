// Two threads answer each other while children end: a thread that waits for the other one must let
// it run, though a signal comes as it looks whether there is an answer.
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
static int ends[2];
static void *echo(void *none) {
  char byte;
  for (int i = 0; i < 6000; i++)
    if (read(ends[1], &byte, 1) != 1 || write(ends[1], &byte, 1) != 1) _exit(3);
  return none;
}
int main(void) {
  char byte = 7;
  pthread_t thread;
  socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
  pthread_create(&thread, 0, echo, 0);
  for (int i = 0; i < 6000; i++) {
    if (i % 300 == 0 && fork() == 0) _exit(0);
    if (write(ends[0], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1) _exit(4);
    if (i % 300 == 299) wait(0);
  }
  pthread_join(thread, 0);
  puts("done");
}
