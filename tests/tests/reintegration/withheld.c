#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static long *page(int advice) {
  long *at = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(at, 8192, advice);
  return at;
}
int main(void) {
  long *dropped = page(MADV_DONTFORK), *wiped = page(MADV_WIPEONFORK), *kept;
  kept = mmap(dropped, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
              -1, 0);
  dropped += 512;
  int file = open("lines", O_WRONLY | O_CREAT | O_APPEND, 0644), status;
  char line[32];
  do {
    int len = snprintf(line, sizeof line, "%ld\n", *dropped);
    if (*dropped != *wiped || *dropped != *kept) len = sprintf(line, "wrong\n");
    ++*dropped; ++*wiped; ++*kept;
    write(1, line, len); write(file, line, len);
    usleep(300);
  } while (access("stop", F_OK) != 0);
  if (fork() == 0) {
    int gone = access((char *)dropped, F_OK) == -1 && errno == EFAULT;
    _exit(gone && *wiped == 0 && *kept != 0 ? 7 : 1);
  }
  wait(&status);
  int len = snprintf(line, sizeof line, "end %ld\n", *dropped);
  write(1, line, len); write(file, line, len);
  return WEXITSTATUS(status);
}
