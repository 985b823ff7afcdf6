/* A module that a program opens, which needs a library beside it. */
#include <stdio.h>

int other(int);

static int calls;

__attribute__((constructor)) static void begin(void) { puts("module begins"); }
__attribute__((destructor)) static void end(void) { puts("module ends"); }

int module(int number) { return other(number) + ++calls; }
