// Signals that a program does not act on cut nothing short that it writes, sends or copies.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 1 << 20, FILE_SIZE = 48 << 20, ENDS = 40 };
static char bytes[SIZE];

// Sleeps until the writer waits: what there is to be read stays the same.
static void await_full(int end) {
  int last = -1, now = 0, same = 0;
  while (same < 20) {
    ioctl(end, FIONREAD, &now);
    same = now && now == last ? same + 1 : 0;
    last = now;
    usleep(1000);
  }
}

// A child that calls the writer away, and another one that reads once the first has ended.
static void surround(int ends[2], int signal) {
  int gate[2];
  char byte, *room;
  long got, sum = 0, total = 0;
  pid_t writer = getpid();
  pipe(gate);
  fflush(stdout);
  if (!fork()) {
    close(ends[1]);
    await_full(ends[0]);
    if (signal) kill(writer, signal);
    _exit(0);
  }
  close(gate[1]);
  if (!fork()) {
    close(ends[1]);
    read(gate[0], &byte, 1);
    await_full(ends[0]);
    room = malloc(SIZE);
    while ((got = read(ends[0], room, SIZE)) > 0)
      for (long at = 0; at < got; at++) sum = sum * 31 + room[at], total++;
    printf("  read %ld, %ld\n", total, sum);
    fflush(stdout);
    _exit(0);
  }
  close(gate[0]);
  close(ends[0]);
}

static void finish(const char *how, int end, long done) {
  close(end);
  while (wait(0) > 0) continue;
  printf("%s: %ld\n", how, done);
}

static void writes(int signal) {
  int ends[2];
  pipe(ends);
  surround(ends, signal);
  finish("write", ends[1], write(ends[1], bytes, SIZE));
}

static void writes_parts(void) {
  int ends[2];
  struct iovec parts[3] = {{bytes, 100000}, {bytes + 5, 0}, {bytes + 100000, SIZE - 100000}};
  pipe(ends);
  surround(ends, 0);
  finish("writev", ends[1], writev(ends[1], parts, 3));
}

static void sends(int family_call) {
  int ends[2];
  struct iovec part = {bytes, SIZE};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
  int swapped[2] = {ends[1], ends[0]};
  surround(swapped, 0);
  long done = family_call == 0   ? send(ends[0], bytes, SIZE, 0)
              : family_call == 1 ? sendmsg(ends[0], &message, 0)
                                 : write(ends[0], bytes, SIZE);
  finish(family_call == 0 ? "send" : family_call == 1 ? "sendmsg" : "write", ends[0], done);
}

static void sends_file(int from) {
  int ends[2];
  off_t at = 4096;
  socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
  int swapped[2] = {ends[1], ends[0]};
  surround(swapped, 0);
  long done = sendfile(ends[0], from, &at, SIZE);
  finish("sendfile", ends[0], done);
  printf("  position %ld\n", (long)at);
}

// Children end all the time while a file is copied.
static void copies(const char *how, int from, int ranged) {
  int to = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0600);
  off_t first = 0, second = 0;
  fflush(stdout);
  for (int child = 0; child < ENDS; child++)
    if (!fork()) {
      for (volatile int round = 0; round < child * 100000; round++) continue;
      _exit(0);
    }
  long done = ranged ? copy_file_range(from, &first, to, &second, FILE_SIZE + 99, 0)
                     : sendfile(to, from, &first, FILE_SIZE + 99);
  while (wait(0) > 0) continue;
  struct stat facts;
  fstat(to, &facts);
  printf("%s: %ld, %ld to %ld, %ld\n", how, done, (long)first, (long)second, (long)facts.st_size);
  close(to);
}

static void handler(int signal) {}

int main(void) {
  for (int at = 0; at < SIZE; at++) bytes[at] = at * 7 + at / 1000;
  int file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
  for (int done = 0; done < FILE_SIZE; done += SIZE) write(file, bytes, SIZE);
  for (int round = 0; round < 3; round++) writes(0), writes_parts();
  for (int how = 0; how < 3; how++) sends(how);
  sends_file(file);
  copies("sendfile", file, 0);
  copies("copy_file_range", file, 1);
  // One that it acts on does.
  signal(SIGUSR1, handler);
  writes(SIGUSR1);
}
