/* Draws random numbers by an instruction that no replica can share with another, so that it always
 * fails: in a page that is read anew from its file, or moves, as it is told. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, DONTUNMAP = 4 };
/* Its number, or 0 if there is none. */
__asm__(".text\n.balign 4096\n.globl draw\ndraw: push %rbx\nmov %rsp,%rbx\nrdrand %rax\nsetc %cl\n"
        "movzbl %cl,%ecx\nimul %rcx,%rax\npop %rbx\nret\n.fill 64,1,0x90\n.balign 4096\n");
extern unsigned long draw(void);

static int draws(const char *what, unsigned long (*draw)(void)) {
  unsigned long all = 0;
  for (int i = 0; i < 40; i++) all |= draw();
  return printf("%s: %lx\n", what, all) < 0;
}

static unsigned long (*move(void *from, void *to, int flags))(void) {
  flags |= MREMAP_MAYMOVE | MREMAP_FIXED;
  return mremap(from, PAGE, PAGE, flags, to) == to ? to : 0;
}

int main(void) {
  void *place = mmap(0, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  draws("at first", draw);
  if (madvise((void *)draw, PAGE, MADV_DONTNEED)) return 1;
  draws("read anew", draw);
  if (!move(draw, place, 0)) return 2;
  draws("moved", place);
  if (!move(place, draw, 0)) return 3;
  draws("there again", draw);
  if (!move(draw, place, DONTUNMAP)) return 4;
  draws("moved once more", place);
  draws("read anew where it was", draw);
  return 0;
}
