/* Takes all memory and gives it back; then processes have some, at ever other places. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 3, PLACES = 180, APART = 4 << 20, CHILDREN = 6 };

static void take_all(void)
{
    void *start = sbrk(0);
    long step = 16 << 20;
    while (step >= 4096)
        if (sbrk(step) == (void *)-1)
            step /= 2;
    if (brk(start) != 0)
        exit(2);
}

/* Uses pages that are far from each other. */
static int use(int round)
{
    char *first = (char *)0x2000000000 + (long)round * PLACES * APART;
    for (int place = 0; place < PLACES; place++) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        char *page = mmap(first + (long)place * APART, 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (page == MAP_FAILED)
            return 3;
        *page = 1;
    }
    return 0;
}

int main(void)
{
    take_all();
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = fork();
        if (child < 0)
            return perror("fork"), 4;
        if (child == 0)
            _exit(use(round));
        int status;
        if (waitpid(child, &status, 0) != child || status != 0)
            return printf("round %d: %x\n", round, status), 5;
    }
    int children = 0;
    for (int child = 0; child < CHILDREN; child++) {
        pid_t pid = fork();
        if (pid < 0)
            return perror("fork"), 6;
        if (pid == 0)
            pause();
        children++;
    }
    printf("%d rounds, %d children at once\n", ROUNDS, children);
    return 0;
}
