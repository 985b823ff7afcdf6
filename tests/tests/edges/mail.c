// Threads send each other messages through queues of POSIX, and wait for room, for messages, and
// for times.
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static mqd_t there, back;

static mqd_t queue(const char *name) {
  char path[64];
  struct mq_attr size = {.mq_maxmsg = 1, .mq_msgsize = 8};
  sprintf(path, "/edges-%d-%s", getpid(), name);
  mqd_t made = mq_open(path, O_CREAT | O_RDWR, 0600, &size);
  mq_unlink(path);
  return made;
}

static void *echo(void *none) {
  char text[8];
  for (int i = 0; i < 5; i++) {
    mq_receive(there, text, 8, 0);
    text[0]++;
    mq_send(back, text, 2, 0);
  }
  return none;
}

int main(void) {
  char text[8] = "a";
  pthread_t thread;
  struct timespec past = {1, 0}, odd = {1, -1}, soon;
  there = queue("there");
  back = queue("back");
  if (there < 0 || back < 0) return puts("no queues here") < 0;
  pthread_create(&thread, 0, echo, 0);
  for (int i = 0; i < 5; i++) {
    mq_send(there, text, 2, 0);
    mq_receive(back, text, 8, 0);
    printf("%s\n", text);
  }
  pthread_create(&thread, 0, echo, 0);
  clock_gettime(CLOCK_REALTIME, &soon);
  soon.tv_nsec = (soon.tv_nsec + 5000000) % 1000000000;
  soon.tv_sec += soon.tv_nsec < 5000000;
  printf("soon %d\n", mq_timedreceive(back, text, 8, 0, &soon) < 0 ? errno == ETIMEDOUT : -1);
  printf("past %d\n", mq_timedreceive(back, text, 8, 0, &past) < 0 ? errno == ETIMEDOUT : -1);
  printf("odd %d\n", mq_timedreceive(back, text, 8, 0, &odd) < 0 ? errno == EINVAL : -1);
  printf("short %d\n", mq_receive(back, text, 1, 0) < 0 ? errno == EMSGSIZE : -1);
  printf("none %d\n", mq_receive(99, text, 8, 0) < 0 ? errno == EBADF : -1);
}
