// Process ids that the host tells beside a result: of a peer, a sender, the owner of a lock.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static union {
  char room[CMSG_SPACE(sizeof(struct ucred))];
  struct cmsghdr head;
} control;
enum { MANY = 40 };
static char byte;
static struct iovec part = {&byte, 1};
static struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control};

static int tell_as(int socket, pid_t pid) {
  struct ucred who = {pid, getuid(), getgid()};
  message.msg_controllen = sizeof control;
  control.head = (struct cmsghdr){CMSG_LEN(sizeof who), SOL_SOCKET, SCM_CREDENTIALS};
  memcpy(CMSG_DATA(&control.head), &who, sizeof who);
  int sent = sendmsg(socket, &message, 0);
  memcpy(&who, CMSG_DATA(&control.head), sizeof who);
  return sent == 1 && who.pid == pid;
}

static pid_t told(int socket) {
  struct ucred who = {-1, -1, -1};
  memset(&control, 0, sizeof control);
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, 0) == 1) memcpy(&who, CMSG_DATA(&control.head), sizeof who);
  return who.pid;
}

/* Each message of one call tells who sends it. */
static int tell_at_once(int socket, int count) {
  static struct {
    struct cmsghdr head;
    struct ucred who;
    char end[4];
  } controls[MANY];
  static struct mmsghdr messages[MANY];
  for (int i = 0; i < count; i++) {
    controls[i].head = (struct cmsghdr){CMSG_LEN(sizeof(struct ucred)), SOL_SOCKET, SCM_CREDENTIALS};
    controls[i].who = (struct ucred){getpid(), getuid(), getgid()};
    messages[i].msg_hdr = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_control = &controls[i]};
    messages[i].msg_hdr.msg_controllen = CMSG_SPACE(sizeof(struct ucred));
  }
  int sent = sendmmsg(socket, messages, count, 0), kept = 0;
  for (int i = 0; i < count; i++) kept += controls[i].who.pid == getpid();
  printf("at once %d, %s, left as they are %d\n", sent, sent < 0 ? strerror(errno) : "", kept);
  return sent;
}

int main(void) {
  int ends[2], on = 1, status;
  setvbuf(stdout, 0, _IOLBF, 0);
  socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
  for (int i = 0; i < 2; i++) setsockopt(ends[i], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  struct ucred peer;
  socklen_t size = sizeof peer;
  getsockopt(ends[0], SOL_SOCKET, SO_PEERCRED, &peer, &size);
  printf("peer %d %d\n", peer.pid == getpid(), peer.uid == getuid());
  write(ends[0], "x", 1);
  printf("written by me: %d\n", told(ends[1]) == getpid());
  printf("told as me: %d", tell_as(ends[0], getpid()));
  printf(" %d\n", told(ends[1]) == getpid());
  int right = 0, many = tell_at_once(ends[0], MANY);
  for (int i = 0; i < many; i++) right += told(ends[1]) == getpid();
  printf("of them as me: %d\n", right);
  int file = open("locked", O_RDWR | O_CREAT, 0600);
  struct flock lock = {.l_type = F_WRLCK}, found = lock;
  fcntl(file, F_SETLK, &lock);
  pid_t parent = getpid(), child = fork();
  if (!child) {
    fcntl(file, F_GETLK, &found);
    printf("locked by my parent: %d\n", found.l_type == F_WRLCK && found.l_pid == parent);
    write(ends[0], "x", 1);
    _exit(tell_as(ends[0], getpid()));
  }
  printf("written by my child: %d\n", told(ends[1]) == child);
  printf("told as my child: %d\n", told(ends[1]) == child);
  waitpid(child, &status, 0);
  printf("child %x\n", status);
}
