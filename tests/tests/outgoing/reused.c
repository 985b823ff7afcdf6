// A stream whose peer has gone is written to more than once before anybody can tell, and closed. The
// next one gets its number, and nothing of that.
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) ((what) ? (void)0 : (printf("line %d: %s\n", __LINE__, #what), exit(1)))

// Longer than effects wait.
static void compute(void) {
  static volatile uint64_t sum;
  struct timespec from, to;
  clock_gettime(CLOCK_MONOTONIC, &from);
  do {
    for (int i = 0; i < 100000; i++) sum += i;
    clock_gettime(CLOCK_MONOTONIC, &to);
  } while ((to.tv_sec - from.tv_sec) * 1000000000L + to.tv_nsec - from.tv_nsec < 20000000);
}

int main(void) {
  signal(SIGPIPE, SIG_IGN);
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof here;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(listener, (struct sockaddr *)&here, size) == 0 && listen(listener, 8) == 0);
  CHECK(getsockname(listener, (struct sockaddr *)&here, &size) == 0);
  int number = -1;
  for (int round = 0; round < 6; round++) {
    int peer = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(peer, (struct sockaddr *)&here, size) == 0);
    int stream = accept(listener, NULL, NULL);
    CHECK(number == -1 || stream == number);
    number = stream;
    char bytes[4];
    for (int i = 0; i < 4; i++) CHECK(write(stream, "well", 1) == 1);
    for (int i = 0; i < 4; i++) CHECK(read(peer, bytes, 1) == 1);
    struct linger at_once = {1, 0};
    CHECK(setsockopt(peer, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
    CHECK(close(peer) == 0);
    for (int i = 0; i < 3; i++) {
      ssize_t written = write(stream, "lost", 1);
      CHECK(written == 1 || written == -1);
      compute();
    }
    CHECK(close(stream) == 0);
  }
  puts("each stream for itself");
  return 0;
}
