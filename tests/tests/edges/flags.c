// Calls with the flag set by which accesses to what is not aligned fault.
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static char text[] = "..written with the flag\n";

// A call with the flag set; whether it was set after it, too.
static long checked(long number, long first, long second, long third, long *flags) {
  long result;
  asm volatile("pushf; orl $0x40000, (%%rsp); popf; syscall; pushf; pop %1;"
               "pushf; andl $~0x40000, (%%rsp); popf"
               : "=a"(result), "=&r"(*flags)
               : "a"(number), "D"(first), "S"(second), "d"(third)
               : "rcx", "r11", "memory", "cc");
  return result;
}

int main(void) {
  long flags, kept = 0, right = 0;
  setvbuf(stdout, 0, _IONBF, 0);
  for (int i = 0; i < 3000; i++) {
    right += checked(SYS_getpid, 0, 0, 0, &flags) == getpid();
    kept += flags >> 18 & 1;
  }
  printf("%ld right, %ld kept\n", right, kept);
  printf("%ld\n", checked(SYS_write, 1, (long)text + 2, sizeof text - 3, &flags));
  char path[64] = "x/proc/self/status";
  printf("%d\n", checked(SYS_access, (long)path + 1, 0, 0, &flags) == 0);
}
