// Effects of all kinds, one after the other, each read back and told: a wrong one shows in the output.
//
// What goes out lies at the start of one page at a fixed address and is made anew for each effect.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { ROUNDS = 240, KINDS = 8, LEAST = 64, MOST = 2048, SIZE = 16384 };
#define PAGE ((unsigned char *)0x50000000)

static uint64_t state = 88172645463325252ull;
static unsigned char back[SIZE];

static uint64_t next(void) {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

static uint64_t digest(const unsigned char *bytes, long len) {
  uint64_t sum = (uint64_t)len + 1;
  for (long i = 0; i < len; i++) sum = (sum ^ bytes[i]) * 1099511628211ull;
  return sum;
}

static long got;

static long effect(int kind, int file, int *pipe, int *pair, long len) {
  struct iovec parts[2] = {{PAGE, len / 2}, {PAGE + len / 2, len - len / 2}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  long done;
  switch (kind) {
    case 0: done = write(file, PAGE, len); break;
    case 1: done = pwrite(file, PAGE, len, 512); break;
    case 2: done = writev(file, parts, 2); break;
    case 3: done = ftruncate(file, 4096 + len); break;
    case 4: done = fsetxattr(file, "user.effect", PAGE, LEAST, 0); break;
    case 5: done = write(pipe[1], PAGE, len); got = read(pipe[0], back, SIZE); return done;
    case 6: done = send(pair[1], PAGE, len, 0); got = recv(pair[0], back, SIZE, 0); return done;
    default: done = sendmsg(pair[1], &message, 0); got = recv(pair[0], back, SIZE, 0); return done;
  }
  got = kind == 4 ? fgetxattr(file, "user.effect", back, SIZE) : pread(file, back, SIZE, 0);
  return done;
}

int main(void) {
  char name[32], line[80];
  int pipe_ends[2], pair[2];
  snprintf(name, sizeof name, "effects-%d", getpid());
  int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  if (file < 0 || unlink(name) || pipe(pipe_ends) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) ||
      mmap(PAGE, 4096, PROT_READ | PROT_WRITE, flags, -1, 0) != PAGE)
    return 1;
  // What an effect gone astray leaves to be waited for must not hang the program.
  fcntl(pipe_ends[0], F_SETFL, O_NONBLOCK);
  fcntl(pair[0], F_SETFL, O_NONBLOCK);
  for (int round = 0; round < ROUNDS; round++) {
    if (round % 64 == 0) lseek(file, 0, SEEK_SET);
    long len = LEAST + (long)(next() % (MOST - LEAST));
    for (long i = 0; i < len; i += 8) {
      uint64_t word = next();
      memcpy(PAGE + i, &word, 8);
    }
    long done = effect(round % KINDS, file, pipe_ends, pair, len);
    uint64_t sum = got < 0 ? 0 : digest(back, got);
    int letters = snprintf(line, sizeof line, "%d %ld %ld %016llx\n", round, done, got,
                           (unsigned long long)sum);
    if (write(1, line, (size_t)letters) != letters) return 2;
  }
  return 0;
}
