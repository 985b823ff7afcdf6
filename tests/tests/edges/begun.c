// A timer that comes at any time, with a handler after which calls do not go on: those that need not
// wait are made all the same, whenever it comes.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { ROUNDS = 1000, CALLS = 5 };

static void ignore(int signal) { (void)signal; }

int main(void) {
  static const char *const names[CALLS] = { "write", "read", "send", "receive", "open" };
  struct sigaction action = { .sa_handler = ignore };
  int failed[CALLS] = { 0 }, streams[2], pair[2];
  char byte;
  sigaction(SIGALRM, &action, NULL);
  pipe(streams);
  socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
  for (int i = 0; i < ROUNDS; i++) {
    struct itimerval soon = { { 0, 0 }, { 0, 20 + i % 150 } };
    setitimer(ITIMER_REAL, &soon, NULL);
    if (write(streams[1], "x", 1) == 1)
      failed[1] += read(streams[0], &byte, 1) != 1;
    else
      failed[0]++;
    if (send(pair[1], "x", 1, 0) == 1)
      failed[3] += recv(pair[0], &byte, 1, 0) != 1;
    else
      failed[2]++;
    int file = open("/dev/null", O_RDWR);
    failed[4] += file < 0;
    close(file);
  }
  for (int i = 0; i < CALLS; i++) printf("%s failed %d times\n", names[i], failed[i]);
  return 0;
}
