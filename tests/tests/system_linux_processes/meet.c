/* Two processes meet by names: a file that both map, a named pipe, and a connection of messages
   that tells who sent them. The child is replaced now and then. Goes on for so many rounds, or for
   ever. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 64, WORDS = PAGES * 512, STEPS = 20000 };

static const struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "meet-socket" };

static void check(int ok, int status) {
  if (!ok) _exit(status);
}

static uint64_t *map(void) {
  int file = open("meet-file", O_RDWR | O_CREAT, 0600);
  check(file >= 0 && ftruncate(file, PAGES * 4096) == 0, 101);
  uint64_t *table = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  check(table != MAP_FAILED, 102);
  close(file);
  return table;
}

static uint64_t mix(uint64_t *table, uint64_t word, int steps) {
  for (int i = 0; i < steps; i++) {
    word = word * 6364136223846793005u + table[(word >> 20) % WORDS];
    table[(word >> 40) % WORDS] ^= word;
  }
  return word;
}

/* Receives a word; who sent it. */
static pid_t hear(int from, uint64_t *word) {
  struct iovec piece = { word, sizeof *word };
  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(struct ucred))];
  } beside;
  struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &beside,
                            .msg_controllen = sizeof beside };
  struct ucred who;
  if (recvmsg(from, &message, 0) != sizeof *word) return 0;
  check(CMSG_FIRSTHDR(&message) != NULL, 103);
  memcpy(&who, CMSG_DATA(&beside.head), sizeof who);
  return who.pid;
}

static void work(void) {
  int file = socket(AF_UNIX, SOCK_SEQPACKET, 0), on = 1;
  check(setsockopt(file, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0, 104);
  check(connect(file, (const void *)&name, sizeof name) == 0, 105);
  int back = open("meet-pipe", O_WRONLY);
  uint64_t *table = map(), word;
  check(back >= 0, 106);
  while (hear(file, &word) == getppid()) {
    word = mix(table, word, STEPS);
    check(write(back, &word, sizeof word) == sizeof word, 107);
  }
  _exit(0);
}

int main(int count, char **words) {
  int rounds = count > 1 ? atoi(words[1]) : -1, peer = -1, back = -1, status;
  unlink("meet-file");
  unlink("meet-pipe");
  unlink(name.sun_path);
  int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  check(bind(listener, (const void *)&name, sizeof name) == 0 && listen(listener, 1) == 0, 108);
  check(mkfifo("meet-pipe", 0600) == 0, 109);
  uint64_t *table = map(), word;
  int file = open("meet-file", O_RDONLY);
  for (int round = 0; round != rounds; round++) {
    if (round % 3 == 0) {
      if (!fork()) work();
      peer = accept(listener, NULL, NULL);
      check(peer >= 0, 110);
      back = open("meet-pipe", O_RDONLY);
    }
    uint64_t sum = mix(table, round, 100);
    check(send(peer, &sum, sizeof sum, 0) == sizeof sum, 111);
    check(read(back, &word, sizeof word) == sizeof word, 112);
    for (int i = 0; i < 8; i++) {
      check(pread(file, &sum, 8, (word >> 8 * i) % WORDS * 8) == 8, 113);
      word = word * 31 + sum;
    }
    if (round % 3 == 2) {
      close(peer);
      check(read(back, &sum, 1) == 0, 114);
      close(back);
      wait(&status);
      check(status == 0, 115);
    }
    printf("round %d: %016llx\n", round, (unsigned long long)word);
    fflush(stdout);
  }
  return 0;
}
