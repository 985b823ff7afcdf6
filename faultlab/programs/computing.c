// Computes without a single call, and then tells sums of all that it has computed. Its state is in
// general and vector registers, and in tables in its data, on its heap and on its stack. Each word
// is read again in the next round, and no step forgets a bit: a flip shows in the sums.
//
// The argument is the number of rounds; without one it takes some seconds.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 120000, WORDS = 4096, BYTES = WORDS * sizeof(uint64_t) };

static uint64_t table[WORDS];

static uint64_t step(uint64_t x) {
  x ^= x << 13;
  x ^= x >> 7;
  return x ^ x << 17;
}

// The sum of all words of a table, in the order that they have.
static uint64_t sum(const uint64_t *words) {
  uint64_t all = 1;
  for (int i = 0; i < WORDS; i++) all = (all ^ words[i]) * 1099511628211ull;
  return all;
}

int main(int count, char **arguments) {
  long rounds = count > 1 ? atol(arguments[1]) : ROUNDS;
  uint64_t *heap = malloc(BYTES);
  uint64_t stack[WORDS];
  if (!heap) return 1;
  for (int i = 0; i < WORDS; i++) {
    table[i] = (uint64_t)i * 2654435761u + 1;
    heap[i] = step(table[i]);
    stack[i] = step(heap[i]);
  }
  uint64_t word = 88172645463325252ull;
  double chaos = 0.3;
  for (long round = 0; round < rounds; round++)
    for (int i = 0; i < WORDS; i++) {
      word = step(word + table[i] + heap[i] + stack[i]);
      table[i] += word;
      heap[i] ^= word >> 3;
      stack[i] -= word;
      chaos = 3.99 * chaos * (1 - chaos);
    }
  printf("%016llx %016llx %016llx %016llx %a\n", (unsigned long long)word,
         (unsigned long long)sum(table), (unsigned long long)sum(heap),
         (unsigned long long)sum(stack), chaos);
  return 0;
}
