// What calls that may wait leave behind in a program with threads: a socket that is connected says
// so, one that was refused may connect elsewhere, and a file is copied whole.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(what) ((what) ? (void)0 : (printf("line %d: %s\n", __LINE__, #what), exit(1)))

enum { LENGTH = 1 << 20 };

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void *waits(void *nothing) {
  pthread_mutex_lock(&held);
  return nothing;
}

static struct sockaddr_in listening(int *listener) {
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof here;
  *listener = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(*listener, (struct sockaddr *)&here, size) == 0 && listen(*listener, 8) == 0);
  CHECK(getsockname(*listener, (struct sockaddr *)&here, &size) == 0);
  return here;
}

static void tell(const char *what, int result) {
  printf("%s: %d %s\n", what, result, result < 0 ? strerrorname_np(errno) : "");
}

static int connects(int fd, struct sockaddr_in to) {
  return connect(fd, (struct sockaddr *)&to, sizeof to);
}

static void sockets(void) {
  int listener, other, fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in here = listening(&listener), nowhere = listening(&other);
  close(other);
  tell("refused", connects(fd, nowhere));
  tell("elsewhere", connects(fd, here));
  tell("connected already", connects(fd, here));
  struct sockaddr_in odd = {.sin_family = 47};
  tell("of no family", connects(socket(AF_INET, SOCK_STREAM, 0), odd));
  CHECK(write(fd, "well", 4) == 4);
  CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) == 0);
}

static void files(void) {
  int from = memfd_create("from", 0), to = memfd_create("to", 0);
  CHECK(ftruncate(from, LENGTH) == 0);
  tell("copied", sendfile(to, from, NULL, 2 * LENGTH));
  tell("no more", sendfile(to, from, NULL, LENGTH));
}

int main(void) {
  pthread_t thread;
  pthread_mutex_lock(&held);
  CHECK(pthread_create(&thread, NULL, waits, NULL) == 0);
  sockets();
  files();
  int fd = memfd_create("mapped", 0);
  CHECK(ftruncate(fd, LENGTH) == 0);
  void *odd = mmap(NULL, LENGTH, PROT_READ, MAP_SHARED_VALIDATE | 1 << 23, fd, 0);
  tell("mapped by a flag that nobody knows", odd == MAP_FAILED ? -1 : 0);
  void *none = mmap(NULL, LENGTH, PROT_READ, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, -1, 0);
  tell("mapped without a file", none == MAP_FAILED ? -1 : 0);
  pthread_mutex_unlock(&held);
  CHECK(pthread_join(thread, NULL) == 0);
  return 0;
}
