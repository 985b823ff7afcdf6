// Calls that may wait, but fail or end at once for what they are given, in a program that has a
// second thread ("threads") or shares memory with another process ("shared").
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <unistd.h>

static char bytes[64];
static struct iovec part = {bytes, 8}, many[1025];
static struct sembuf down = {0, -1, 0}, beyond = {5, -1, 0};
static struct sockaddr nobody = {AF_UNIX};
static struct flock odd = {9};
static struct msghdr one = {.msg_iov = &part, .msg_iovlen = 1};
static int empty[2], full[2], pair[2], datagram, stream, unbound, only, folder, counter, most;
static int timer, set, semaphore, queue;

static void open_all(void) {
  pipe(empty);
  pipe(full);
  fcntl(full[1], F_SETFL, O_NONBLOCK);
  while (write(full[1], bytes, 64) > 0) {}
  fcntl(full[1], F_SETFL, 0);
  socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
  datagram = socket(AF_INET, SOCK_DGRAM, 0);
  stream = socket(AF_INET, SOCK_STREAM, 0);
  unbound = socket(AF_UNIX, SOCK_STREAM, 0);
  only = open("only", O_WRONLY | O_CREAT, 0600);
  folder = open(".", O_RDONLY);
  counter = eventfd(0, 0);
  most = eventfd(0, 0);
  unsigned long long top = -2ull;
  write(most, &top, 8);
  timer = timerfd_create(CLOCK_MONOTONIC, 0);
  set = epoll_create1(0);
  semaphore = semget(IPC_PRIVATE, 1, 0600);
  queue = msgget(IPC_PRIVATE, 0600);
  for (int i = 0; i < 1025; i++) many[i] = (struct iovec){bytes, 1};
}

#define TELL(call) (errno = 0, tell(#call, (call)))
static void tell(const char *call, long result) {
  printf("%s: %ld %s\n", call, result, result < 0 ? strerrorname_np(errno) : "");
}

static void reading(void) {
  TELL(read(-1, bytes, 1));
  TELL(read(99, bytes, 1));
  TELL(read(empty[1], bytes, 8));
  TELL(read(only, bytes, 8));
  TELL(read(folder, bytes, 1));
  TELL(read(set, bytes, 8));
  TELL(read(counter, bytes, 4));
  TELL(read(timer, bytes, 4));
  TELL(read(empty[0], bytes, 0));
  TELL(readv(empty[1], &part, 1));
  TELL(readv(empty[0], &part, 0));
  TELL(readv(empty[0], many, 1025));
  TELL(preadv2(empty[0], &part, 1, 0, 0));
  TELL(preadv2(empty[0], &part, 1, -1, 1 << 30));
}

static void writing(void) {
  TELL(write(-1, bytes, 1));
  TELL(write(full[0], bytes, 8));
  TELL(write(full[1], bytes, 0));
  TELL(write(most, bytes, 4));
  TELL(write(set, bytes, 8));
  TELL(writev(full[1], many, 1025));
  TELL(writev(empty[1], many, 1025));
  TELL(splice(empty[0], 0, empty[0], 0, 8, 0));
  TELL(splice(empty[0], 0, empty[1], 0, 8, 0));
  TELL(splice(pair[0], 0, pair[1], 0, 8, 0));
  TELL(splice(-1, 0, empty[1], 0, 8, 0));
  TELL(tee(empty[0], empty[1], 8, 0));
  TELL(tee(empty[0], full[0], 8, 0));
  TELL(sendfile(only, empty[0], 0, 8));
  TELL(sendfile(empty[1], -1, 0, 8));
}

static void sockets(void) {
  TELL(accept(-1, 0, 0));
  TELL(accept(datagram, 0, 0));
  TELL(accept(stream, 0, 0));
  TELL(accept(empty[0], 0, 0));
  TELL(accept4(unbound, 0, 0, 1));
  TELL(recv(-1, bytes, 1, 0));
  TELL(recv(empty[0], bytes, 8, 0));
  TELL(recv(empty[0], bytes, 8, MSG_WAITALL));
  TELL(recv(stream, bytes, 8, 0));
  TELL(recv(pair[0], bytes, 8, MSG_OOB));
  TELL(recvmsg(datagram, &one, MSG_ERRQUEUE));
  TELL(send(stream, bytes, 8, MSG_NOSIGNAL));
  TELL(send(empty[1], bytes, 8, 0));
  TELL(connect(unbound, &nobody, sizeof nobody));
  struct timeval soon = {0, 20000};
  setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
  TELL(recv(pair[0], bytes, 0, 0));
  TELL(read(pair[0], bytes, 0));
  write(pair[1], "abc", 3);
  TELL(recv(pair[0], (void *)8, 3, 0));
}

static void others(void) {
  TELL(semop(-1, &down, 1));
  TELL(semop(semaphore, &down, 0));
  TELL(semop(semaphore, &beyond, 1));
  TELL(msgrcv(-1, bytes, 8, 0, 0));
  TELL(msgrcv(queue, bytes, -1, 0, 0));
  TELL(msgrcv(queue, bytes, 8, 0, 040000));
  TELL(flock(only, 0));
  TELL(fcntl(only, F_SETLKW, &odd));
  TELL(epoll_wait(set, (void *)bytes, 0, -1));
  TELL(epoll_wait(-1, (void *)bytes, 1, -1));
}

static void *stay(void *end) { return (void *)read(*(int *)end, bytes + 32, 1); }

int main(int count, char **arguments) {
  int hold[2];
  pid_t child = 0;
  pthread_t thread;
  pipe(hold);
  signal(SIGPIPE, SIG_IGN);
  if (!strcmp(arguments[1], "shared")) {
    mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!(child = fork())) {
      close(hold[1]);
      stay(&hold[0]);
      _exit(0);
    }
  } else pthread_create(&thread, 0, stay, &hold[0]);
  setvbuf(stdout, 0, _IOLBF, 0);
  open_all();
  reading();
  writing();
  sockets();
  others();
  semctl(semaphore, 0, IPC_RMID);
  msgctl(queue, IPC_RMID, 0);
  close(hold[1]);
  if (child) waitpid(child, 0, 0);
  else pthread_join(thread, 0);
  puts("end");
}
