// Calls whose result tells that memory was not written which they were given for it: it need not be
// there. What they have written all the same is handed to a call that fails, which is where replicas
// that differ are found.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };
/* A page, one that nobody may touch, two pages the second of which can only be read. */
static char *page, *end, *pages;

static void told(const char *what, long result) {
  int error = result < 0 ? errno : 0;
  pwrite(-1, page, PAGE, 0);
  pwrite(-1, pages, 2 * PAGE, 0);
  printf("%s %ld %d\n", what, result, error);
}

static int own_socket(struct sockaddr_in *own) {
  int udp = socket(AF_INET, SOCK_DGRAM, 0);
  socklen_t len = sizeof *own;
  *own = (struct sockaddr_in){ AF_INET, 0, { htonl(INADDR_LOOPBACK) } };
  bind(udp, (void *)own, sizeof *own);
  getsockname(udp, (void *)own, &len);
  return udp;
}

/* Of so many messages sent one is counted; the one after it goes to these places. */
static void receive(const char *what, int sent, struct mmsghdr *all, struct iovec *parts, void *name, void *control) {
  struct sockaddr_in own;
  int udp = own_socket(&own);
  for (int i = 0; i < sent; i++) sendto(udp, i ? "another one" : "one", 11, 0, (void *)&own, sizeof own);
  memset(all, 0, sizeof *all);
  memset(page, 0, PAGE);
  all[0].msg_hdr.msg_iov = &(struct iovec){ page, 64 };
  all[0].msg_hdr.msg_iovlen = 1;
  if (parts) {
    memset(all + 1, 0, sizeof *all);
    all[1].msg_hdr = (struct msghdr){ name, 64, parts, 2, control, 64, 0 };
    all[1].msg_len = 99;
  }
  told(what, recvmmsg(udp, all, 2, MSG_DONTWAIT, NULL));
  printf("%s, %.4s\n", page, page + 512);
  close(udp);
}

static void messages(void) {
  struct mmsghdr *some = (struct mmsghdr *)(page + 2048);
  struct iovec nowhere[] = { { end, 64 }, { end - 1, 64 } }, begun[] = { { page + 512, 4 }, { end, 64 } };
  struct iovec whole[] = { { page + 512, 4 }, { page + 600, 64 } };
  receive("none but one", 1, some, nowhere, end, end - 5);
  receive("no control data", 1, some, whole, page + 1024, end - 5);
  receive("a name nowhere", 2, some, whole, end - 1, NULL);
  receive("begun", 2, some, begun, NULL, NULL);
  receive("control data nowhere", 2, some, whole, NULL, end - 5);
  /* The header of the second one cannot be written to. */
  struct mmsghdr *fixed = (struct mmsghdr *)(pages + PAGE - sizeof *fixed);
  memset(pages, 0, 2 * PAGE);
  fixed[1].msg_hdr.msg_iov = (struct iovec *)(pages + 64);
  fixed[1].msg_hdr.msg_iovlen = 2;
  memcpy(pages + 64, whole, sizeof whole);
  mprotect(pages + PAGE, PAGE, PROT_READ);
  receive("a header that stays", 2, fixed, NULL, NULL, NULL);
}

/* The padding behind a descriptor counts, and is not written. */
static void padding(void) {
  int pair[2];
  socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
  struct msghdr message = { .msg_control = page, .msg_controllen = CMSG_SPACE(4) };
  struct cmsghdr *head = CMSG_FIRSTHDR(&message);
  *head = (struct cmsghdr){ CMSG_LEN(4), SOL_SOCKET, SCM_RIGHTS };
  *(int *)CMSG_DATA(head) = pair[0];
  sendmsg(pair[0], &message, 0);
  message.msg_control = end - CMSG_LEN(4);
  told("descriptor", recvmsg(pair[1], &message, 0));
  printf("%zu\n", message.msg_controllen);
}

static void ignore(int signal) { (void)signal; }

/* Nothing is left of a time that was not told as a length. */
static void sleeps(void) {
  struct sigaction action = { .sa_handler = ignore };
  struct itimerval often = { { 0, 5000 }, { 0, 5000 } }, never = { 0 };
  struct timespec far = { 1000000, 0 };
  sigaction(SIGALRM, &action, NULL);
  for (int clock = 0; clock <= CLOCK_PROCESS_CPUTIME_ID; clock++) {
    setitimer(ITIMER_REAL, &often, NULL);
    far.tv_sec = clock == CLOCK_REALTIME ? 1L << 33 : 1000000;
    long result = syscall(SYS_clock_nanosleep, clock, TIMER_ABSTIME, &far, end);
    setitimer(ITIMER_REAL, &never, NULL);
    told("sleep", result);
  }
  setitimer(ITIMER_REAL, &often, NULL);
  long result = syscall(SYS_clock_nanosleep, CLOCK_PROCESS_CPUTIME_ID, 0, &far, end - 8);
  setitimer(ITIMER_REAL, &never, NULL);
  told("rest nowhere", result);
}

int main(void) {
  setvbuf(stdout, 0, _IOLBF, 0);
  page = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  end = page + PAGE;
  pages = end + PAGE;
  mprotect(end, PAGE, PROT_NONE);
  messages();
  padding();
  sleeps();
  return 0;
}
