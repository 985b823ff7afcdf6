/* What is refused by name. */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
  long answer = syscall(SYS_bpf, 0, 0, 0);
  printf("%ld %d\n", answer, errno == ENOSYS);
  /* A number by which the personality could mean `open` itself. */
  answer = syscall(0xffff0012, "/", 0);
  printf("%ld %d\n", answer, errno == ENOSYS);
  void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  printf("%d %d\n", code == MAP_FAILED, errno == EACCES);
  fflush(stdout);
  __asm__ volatile("mrs x9, midr_el1" : : : "x9");
  return 0;
}
