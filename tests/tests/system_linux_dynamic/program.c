/* A dynamic program with a library of its own, threads, a module, and a child. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int own_count(int), own_zeroes(void), own_vendor(void);
const char *own_name(int);

static void *thread(void *argument) {
    int count = own_count(*(int *)argument);
    if (count > 9)
        pthread_exit((void *)(long)count);
    return (void *)(long)(count + own_vendor());
}

static void threads(void) {
    for (int at = 1; at < 4; at++) {
        pthread_t made;
        void *result;
        pthread_create(&made, 0, thread, &at);
        pthread_join(made, &result);
        printf("thread %d: %ld, here %d\n", at, (long)result, own_count(0));
    }
}

static void modules(void) {
    for (int at = 0; at < 2; at++) {
        void *open = dlopen("./modules/module.so", at ? RTLD_NOW : RTLD_LAZY);
        if (!open) {
            printf("no module: %s\n", dlerror());
            return;
        }
        int (*module)(int) = (int (*)(int))dlsym(open, "module");
        int first = module(1);
        printf("module: %d %d\n", first, module(2));
        printf("nothing there: %d\n", !dlsym(open, "nothing"));
        printf("closed: %d\n", dlclose(open));
    }
    printf("absent: %d\n", !dlopen("./modules/absent.so", RTLD_NOW));
}

static void children(void) {
    fflush(stdout);
    if (!fork()) {
        printf("child: %d %d %s\n", own_vendor(), own_count(5), own_name(2));
        exit(own_vendor());
    }
    int status;
    wait(&status);
    printf("child ended %d; here %d\n", WEXITSTATUS(status), own_count(0));
}

static double work(long rounds) {
    double sum = 0;
    for (long at = 0; at < rounds; at++)
        sum += sin(at);
    return sum;
}

int main(int count, char **words) {
    setvbuf(stdout, 0, _IOLBF, 0);
    printf("%d %s %s\n", count, words[0], words[count - 1]);
    printf("%.9g %.9g %.9g\n", sin(count), pow(2.5, count), lgamma(count + 0.5));
    printf("%s %s %d %d\n", own_name(0), own_name(1), own_zeroes(), own_zeroes());
    printf("sse2 %d\n", !!__builtin_cpu_supports("sse2"));
    printf("%d\n", own_vendor());
    printf("%.9g\n", work(atol(words[count - 1])));
    threads();
    modules();
    children();
    return 42;
}
