/* Children in a ring of pipes compute, each in memory of its own; their maker tells what came of
   each round, and makes another child in place of one now and then. Goes on for so many rounds, or
   for ever. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 4, WORDS = 16384, STEPS = 20000, NOBODY = -1 };

/* What goes round, and who is to end when it comes there. */
struct message {
  uint64_t word;
  int64_t ends;
};

static uint64_t table[WORDS];
static int pipes[CHILDREN + 1][2];
static pid_t children[CHILDREN];

static void put(int place, struct message message) {
  if (write(pipes[place][1], &message, sizeof message) != sizeof message) _exit(101);
}

static struct message take(int place) {
  struct message message;
  if (read(pipes[place][0], &message, sizeof message) != sizeof message) _exit(102);
  return message;
}

static uint64_t mix(uint64_t word, int me, int steps) {
  for (int i = 0; i < steps; i++) {
    word = word * 6364136223846793005u + table[(word >> 20) % WORDS] + me;
    table[(word >> 40) % WORDS] ^= word;
  }
  return word;
}

static void work(int me) {
  for (;;) {
    struct message message = take(me);
    if (message.ends == me) _exit(table[me] & 63);
    if (message.ends == NOBODY) message.word = mix(message.word, me, STEPS);
    put(me + 1, message);
  }
}

static void begin(int child) {
  children[child] = fork();
  if (!children[child]) work(child);
}

static void end(int child) {
  int status;
  put(0, (struct message){0, child});
  if (waitpid(children[child], &status, 0) != children[child]) _exit(103);
  printf("child %d ended: %x\n", child, status);
}

int main(int count, char **words) {
  int rounds = count > 1 ? atoi(words[1]) : -1;
  for (int i = 0; i <= CHILDREN; i++)
    if (pipe(pipes[i])) return 1;
  for (int i = 0; i < CHILDREN; i++) begin(i);
  for (int round = 0; round != rounds; round++) {
    uint64_t sum = 0;
    for (int i = 0; i < CHILDREN; i++) put(0, (struct message){round + i, NOBODY});
    for (int i = 0; i < CHILDREN; i++) sum = mix(sum ^ take(CHILDREN).word, CHILDREN, 100);
    if (round % 3 == 2) {
      int child = round / 3 % CHILDREN;
      end(child);
      begin(child);
    }
    printf("round %d: %016llx\n", round, (unsigned long long)sum);
    fflush(stdout);
  }
  for (int i = CHILDREN; i-- > 0;) end(i);
  return 0;
}
