// Writes to a file that acts on a child, by a descriptor that came from it in a message.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

union control {
  struct cmsghdr head;
  char room[CMSG_SPACE(2 * sizeof(int))];
};

static struct msghdr message(union control *control) {
  static char byte;
  static struct iovec part = { &byte, 1 };
  return (struct msghdr){ .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
                          .msg_controllen = sizeof *control };
}

static void child(int to) {
  // The first of two leads to nothing that acts.
  int files[] = { open("/dev/null", O_WRONLY), open("/proc/self/oom_score_adj", O_RDWR) };
  union control control = { .head = { CMSG_LEN(sizeof files), SOL_SOCKET, SCM_RIGHTS } };
  memcpy(CMSG_DATA(&control.head), files, sizeof files);
  struct msghdr header = message(&control);
  sendmsg(to, &header, 0);
  char text[16] = { 0 };
  read(to, text, 1);
  read(files[1], text, sizeof text - 1);
  printf("is %s", text);
  fflush(stdout);
  _exit(0);
}

int main(void) {
  int pair[2], files[2];
  socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
  if (fork() == 0)
    child(pair[1]);
  union control control;
  struct msghdr header = message(&control);
  printf("received %zd\n", recvmsg(pair[0], &header, 0));
  memcpy(files, CMSG_DATA(&control.head), sizeof files);
  printf("null %zd\n", write(files[0], "300", 3));
  printf("child %d\n", write(files[1], "300", 3) < 0 ? errno : 0);
  fflush(stdout);
  write(pair[0], "", 1);
  wait(0);
  return 0;
}
