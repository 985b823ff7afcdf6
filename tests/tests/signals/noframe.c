// A handler that has no room for its frame is not entered: the program gets SIGSEGV instead.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t urgent, faults, code;
static sigset_t during;

static void on_urgent(int signal) { urgent++; }

static void on_fault(int signal, siginfo_t *info, void *context) {
  faults++;
  code = info->si_code;
  sigprocmask(SIG_BLOCK, NULL, &during);
}

static void handle(int signal, void (*handler)(), int flags) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
  sigaction(signal, &action, NULL);
}

static void in_child(const char *name, int block, int on_stack, int handled) {
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGSEGV);
    if (block) sigprocmask(SIG_BLOCK, &set, NULL);
    if (handled) handle(SIGSEGV, on_fault, SA_SIGINFO | (on_stack ? SA_ONSTACK : 0));
    raise(SIGURG);
    _exit(faults + 10 * urgent);
  }
  int status;
  waitpid(child, &status, 0);
  printf("%s: %s %d\n", name, WIFSIGNALED(status) ? "signal" : "exit",
         WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

int main(void) {
  size_t size = 65536;
  char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack_t stack = {.ss_sp = memory, .ss_size = size};
  sigaltstack(&stack, NULL);
  handle(SIGURG, on_urgent, SA_ONSTACK);
  raise(SIGURG);
  printf("with room: %d %d\n", urgent, faults);
  mprotect(memory, size, PROT_READ);
  in_child("handled", 0, 0, 1);
  in_child("by default", 0, 0, 0);
  in_child("blocked", 1, 0, 1);
  in_child("no room for that either", 0, 1, 1);
  handle(SIGSEGV, on_fault, SA_SIGINFO);
  raise(SIGURG);
  printf("instead: %d %d, code %d, masked %d %d\n", urgent, faults, code,
         sigismember(&during, SIGURG), sigismember(&during, SIGSEGV));
  mprotect(memory, size, PROT_READ | PROT_WRITE);
  raise(SIGURG);
  sigprocmask(SIG_BLOCK, NULL, &during);
  printf("again: %d %d, masked %d %d\n", urgent, faults, sigismember(&during, SIGURG),
         sigismember(&during, SIGSEGV));
  return 0;
}
