// Writes to files that act on this process, which whoever started it has opened, and tells what has
// come of it.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static volatile int variable = 1;

int main(void) {
  char text[16] = { 0 }, name[17] = { 0 };
  printf("%zd", write(5, "300", 3));
  int own = open("/proc/self/oom_score_adj", O_RDONLY);
  printf(" %zd %s", read(own, text, sizeof text - 1), text);
  printf("%zd", write(6, "abc", 3));
  prctl(PR_GET_NAME, name);
  printf(" %s\n", name);
  // The memory is that of the shell, which is gone.
  int value = 2;
  printf("%zd", pwrite(7, &value, sizeof value, (off_t)&variable));
  printf(" %d\n", variable);
  return 0;
}
