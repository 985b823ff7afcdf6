/* Asks what the processor is by an instruction whose place code can take a jump: at first, in a page
 * that is read anew from its file, and where the page has moved to. Tells whether a jump stands
 * there, and whether the answers, the flags and what follows are the same every time. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, DONTUNMAP = 4, LEAVES = 8 };
typedef unsigned ask_fn(unsigned leaf, unsigned sub, unsigned *registers);
/* Stores the registers; the result is the carry flag, which was set before, and eax as a copy. */
__asm__(".text\n.balign 4096\n.globl ask\nask: push %rbx\nmov %edi,%eax\nmov %esi,%ecx\nmov %rdx,%r9\n"
        "stc\n.globl ask_site\nask_site: cpuid\nmov %eax,%r8d\n"
        "mov %eax,(%r9)\nmov %ebx,4(%r9)\nmov %ecx,8(%r9)\nmov %edx,12(%r9)\nsetc %al\n"
        "movzbl %al,%eax\nadd %r8d,%eax\npop %rbx\nret\n.fill 64,1,0x90\n.balign 4096\n");
extern ask_fn ask;
extern const unsigned char ask_site[];

static unsigned first[LEAVES][4];
static int known;

static int tell(const char *what, ask_fn *ask, const unsigned char *site) {
  unsigned wrong = 0;
  for (int round = 0; round < 3; round++)
    for (unsigned leaf = 0; leaf < LEAVES; leaf++) {
      unsigned now[4];
      wrong += ask(leaf, 0, now) != now[0] + 1;
      if (known < LEAVES) memcpy(first[known++], now, sizeof now);
      wrong += memcmp(first[leaf], now, sizeof now) != 0;
    }
  return printf("%s: %s, %u wrong\n", what, *site == 0xe9 ? "a jump" : "a trap", wrong) < 0;
}

static ask_fn *move(void *from, void *to, int flags) {
  flags |= MREMAP_MAYMOVE | MREMAP_FIXED;
  return mremap(from, PAGE, PAGE, flags, to) == to ? to : 0;
}

int main(void) {
  unsigned char *place = mmap(0, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const unsigned char *moved = place + (ask_site - (const unsigned char *)ask);
  tell("at first", ask, ask_site);
  if (!move(ask, place, 0)) return 2;
  tell("moved", (ask_fn *)place, moved);
  if (!move(place, ask, 0)) return 3;
  tell("there again", ask, ask_site);
  if (madvise((void *)ask, PAGE, MADV_DONTNEED)) return 1;
  tell("read anew", ask, ask_site);
  if (!move(ask, place, DONTUNMAP)) return 4;
  tell("moved once more", (ask_fn *)place, moved);
  tell("read anew where it was", ask, ask_site);
  return 0;
}
