// What the calls about limits say, and who may raise one.
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *word(int failed) { return failed ? strerrorname_np(errno) : "done"; }

static void show(int resource) {
  struct rlimit now;
  if (getrlimit(resource, &now) == 0)
    printf("%d: %lld %lld\n", resource, (long long)now.rlim_cur, (long long)now.rlim_max);
}

static int set(int resource, rlim_t soft, rlim_t hard) {
  struct rlimit wish = { soft, hard };
  return setrlimit(resource, &wish);
}

static void lower_and_raise(void) {
  for (int resource = 0; resource < 16; resource++) {
    // Fewer descriptors would be more than a test; the others take any value.
    rlim_t low = resource == RLIMIT_NOFILE ? 64 : 1UL << 30;
    struct rlimit old;
    getrlimit(resource, &old);
    if (old.rlim_max < low) low = old.rlim_max;
    printf("%d down %s", resource, word(set(resource, low / 2, low)));
    printf(" soft %s", word(set(resource, low, low)));
    printf(" up %s", word(low + 1 == 0 ? 0 : set(resource, low, low + 1)));
    printf(" crossed %s\n", word(set(resource, low + 2, low + 1)));
    show(resource);
  }
  fflush(stdout);
}

int main(void) {
  for (int resource = 0; resource < 16; resource++) show(resource);
  struct rlimit one = { 7, 9 }, two = { 0, 0 };
  printf("unknown %s\n", word(setrlimit(16, &one)));
  printf("unknown %s\n", word(getrlimit(16, &two)));
  printf("nowhere %s\n", word(getrlimit(RLIMIT_AS, (void *)8)));
  printf("from nowhere %s\n", word(setrlimit(RLIMIT_AS, (void *)8)));
  printf("descriptors %s\n", word(set(RLIMIT_NOFILE, 1UL << 40, 1UL << 40)));
  printf("both %s", word(prlimit(getpid(), RLIMIT_CPU, &(struct rlimit){ 500, 600 }, &two)));
  printf(" %lld\n", (long long)two.rlim_cur);
  printf("read %s", word(prlimit(0, RLIMIT_CPU, 0, &two)));
  printf(" %lld %lld\n", (long long)two.rlim_cur, (long long)two.rlim_max);
  printf("nobody %s\n", word(prlimit(1 << 22, RLIMIT_CPU, 0, &two)));
  fflush(stdout);
  int status;
  if (fork() == 0) {
    printf("of the parent %s", word(prlimit(getppid(), RLIMIT_CPU, 0, &two)));
    printf(" %lld %lld\n", (long long)two.rlim_cur, (long long)two.rlim_max);
    lower_and_raise();
    _exit(0);
  }
  wait(&status);
  if (fork() == 0) {
    // Whoever is not root, or is no longer, cannot raise what it has lowered.
    if (getuid() == 0 && setresuid(65534, 65534, 65534)) return 1;
    lower_and_raise();
    _exit(0);
  }
  wait(&status);
  return 0;
}
