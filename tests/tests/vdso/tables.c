// Looks whether tables that the linker puts beside code are what they were written as: words among
// which bytes look like instructions that differ from core to core.
#include <stdint.h>
#include <stdio.h>

struct entry {
  uint64_t at, kind, value;
};

// The bytes of `cpuid`, `rdrand` and `rdtsc`, each behind two others.
#define VALUE(low, what) ((uint64_t)(what) << 16 | 0x9900 | (low))
#define ENTRY(low, what) { 0x4aa8000 + 8 * (low), 8, VALUE(low, what) },
#define ALL(low) ENTRY(low, 0xa20f) ENTRY(low, 0xf0c70f) ENTRY(low, 0x310f)
#define ALL4(low) ALL(low) ALL(low + 1) ALL(low + 2) ALL(low + 3)
#define ALL16(low) ALL4(low) ALL4(low + 4) ALL4(low + 8) ALL4(low + 12)
#define ALL64(low) ALL16(low) ALL16(low + 16) ALL16(low + 32) ALL16(low + 48)

static const struct entry table[] = { ALL64(0) ALL64(64) ALL64(128) ALL64(192) };

// What cannot be replaced, so that the processor is told to trap.
__attribute__((used, noinline)) static int doubtful(int way) {
  if (way == 7)
    __asm__ volatile(".byte 0x66, 0x0f, 0xa2" ::: "eax", "ebx", "ecx", "edx");
  return way + 1;
}

int main(int count, char **words) {
  static const uint64_t kinds[] = { 0xa20f, 0xf0c70f, 0x310f };
  int wrong = 0;
  for (unsigned at = 0; at < sizeof table / sizeof *table; at++) {
    volatile const struct entry *it = &table[at];
    uint64_t low = at / 3;
    wrong += it->at != 0x4aa8000 + 8 * low || it->kind != 8
      || it->value != VALUE(low, kinds[at % 3]);
  }
  printf("%zu entries, %d wrong\n", sizeof table / sizeof *table, wrong);
  return doubtful(count) - 2 + !!wrong;
}
