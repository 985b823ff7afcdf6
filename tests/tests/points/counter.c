// A process counts in shared memory, with registers that are the same each time round; its parent
// tells how far it has come, which is for chance to say, and ends it.
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void count_up(volatile unsigned long *count) {
    // Divisions take their time, so that looking at each round costs little beside them.
    for (;;)
        __asm__ volatile("incq %0\n\t"
                         "movl $7, %%ecx\n\t"
                         ".rept 12\n\t"
                         "orl $-2, %%eax\n\t"
                         "xorl %%edx, %%edx\n\t"
                         "divq %%rcx\n\t"
                         ".endr\n\t"
                         "xorl %%eax, %%eax\n\t"
                         "xorl %%edx, %%edx\n"
                         : "+m"(*count)
                         :
                         : "rax", "rcx", "rdx", "cc");
}

int main(void) {
    unsigned char *shared =
        mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    volatile unsigned long *count = (void *)(shared + 8192);
    pid_t child = fork();
    if (child == 0)
        count_up(count);
    unsigned long before = 0;
    for (int i = 0; i < 8; i++) {
        while (*count == before)
            ;
        before = *count;
        printf("%lu\n", before);
    }
    int status;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    printf("ended by %d\n", WTERMSIG(status));
    return 0;
}
