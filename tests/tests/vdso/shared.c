/* Executes a file that is mapped shared, from a descriptor that can write: it must stay as it is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 8192, CALL = 256, DRAW = 4096 };
/* mov $39,%eax; syscall; ret */
static const unsigned char call[] = {0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3};
/* xor %eax,%eax; rdrand %rcx; setc %al; ret */
static const unsigned char draw[] = {0x31, 0xc0, 0x48, 0x0f, 0xc7, 0xf1, 0x0f, 0x92, 0xc0, 0xc3};

int main(void) {
  static unsigned char code[SIZE], now[SIZE];
  const int rx = PROT_READ | PROT_EXEC;
  memset(code, 0x90, SIZE);
  memcpy(code + CALL, call, sizeof call);
  memcpy(code + DRAW, draw, sizeof draw);
  for (int later = 0; later < 2; later++) {
    int file = open("code", O_RDWR | O_CREAT | O_TRUNC, 0700);
    if (write(file, code, SIZE) != SIZE) return 1;
    char *at = mmap(0, SIZE, later ? PROT_READ : rx, MAP_SHARED, file, 0);
    if (at == MAP_FAILED || (later && mprotect(at, SIZE, rx))) return 2;
    for (int i = 0; i < 200; i++)
      if (((int (*)(void))(at + CALL))() != getpid()) return 3;
    if (pread(file, now, SIZE, 0) != SIZE) return 4;
    printf("as it was: %d\n", !memcmp(code, now, SIZE));
  }
  return 0;
}
