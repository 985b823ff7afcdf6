// Go's runtime, started by a C program.
#include <stdio.h>

void Work(void);

int main(void) {
    Work();
    puts("a round had another result");
    return 1;
}
