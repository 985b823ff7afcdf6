// Takes the steps that its arguments name, executes itself, and tells what it is then, one
// attribute a line.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct __user_cap_data_struct Sets[2];

static void get(Sets sets) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  syscall(SYS_capget, &header, sets);
}

static int set(Sets sets) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  return syscall(SYS_capset, &header, sets);
}

// Makes one of the three sets what is permitted of `wanted`.
static int reduce(char which, unsigned wanted) {
  Sets sets;
  get(sets);
  for (int i = 0; i < 2; i++) {
    unsigned value = (i ? 0 : wanted) & sets[i].permitted;
    if (which == 'p') sets[i].permitted = sets[i].effective = value;
    if (which == 'e') sets[i].effective = value;
    if (which == 'i') sets[i].inheritable = value;
  }
  return set(sets);
}

static int restore_effective(void) {
  Sets sets;
  get(sets);
  for (int i = 0; i < 2; i++) sets[i].effective = sets[i].permitted;
  return set(sets);
}

static int drop_bounding(void) {
  int result = 0;
  for (int i = 0; i < 64; i++)
    if (i != CAP_SETUID) result |= prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
  return result;
}

static int ids(const char *text, int group) {
  int real, effective, saved;
  sscanf(text, "%d,%d,%d", &real, &effective, &saved);
  return group ? setresgid(real, effective, saved) : setresuid(real, effective, saved);
}

static void handler(int signal) { (void)signal; }

// Signals, timers and what belongs to memory, each other than at the start.
static int unsettle(void) {
  static char stack[65536];
  sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, 0);
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};
  sigaction(SIGUSR1, &action, 0);
  action.sa_handler = SIG_IGN;
  sigaction(SIGUSR2, &action, 0);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGTERM);
  sigprocmask(SIG_BLOCK, &mask, 0);
  raise(SIGTERM);
  setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {1000, 0}}, 0);
  timer_t timer;
  timer_create(CLOCK_REALTIME, &(struct sigevent){.sigev_notify = SIGEV_NONE}, &timer);
  struct itimerspec later = {{0, 0}, {1000, 0}};
  return timer_settime(timer, 0, &later, 0);
}

// Limits, names and descriptors.
static int adorn(void) {
  open("/dev/null", O_RDONLY | O_CLOEXEC);
  open("/dev/null", O_RDONLY);
  dup3(1, 20, O_CLOEXEC);
  dup2(1, 21);
  fcntl(1, F_DUPFD_CLOEXEC, 30);
  umask(037);
  prctl(PR_SET_NAME, "another", 0, 0, 0);
  prctl(PR_SET_TIMERSLACK, 12345, 0, 0, 0);
  setpriority(PRIO_PROCESS, 0, 5);
  setrlimit(RLIMIT_CORE, &(struct rlimit){1234, 5678});
  return chdir("/");
}

// The rest is done by a child, which this process lives to see the end of.
static int go_on_in_child(void) {
  int status;
  fflush(stdout);
  pid_t child = fork();
  if (child <= 0) return child;
  waitpid(child, &status, 0);
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static int step(const char *name) {
  const char *value = strchr(name, '=');
  if (value) value++;
  if (!strncmp(name, "uid=", 4)) return ids(value, 0);
  if (!strncmp(name, "gid=", 4)) return ids(value, 1);
  if (!strncmp(name, "fsuid=", 6)) return setfsuid(atoi(value));
  if (!strncmp(name, "fsgid=", 6)) return setfsgid(atoi(value));
  if (!strncmp(name, "group=", 6)) return setgroups(1, (gid_t[]){atoi(value)});
  if (!strcmp(name, "no-groups")) return setgroups(0, 0);
  if (!strcmp(name, "no-new")) return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (!strcmp(name, "keep")) return prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
  if (!strncmp(name, "secure=", 7)) return prctl(PR_SET_SECUREBITS, atoi(value), 0, 0, 0);
  if (!strcmp(name, "unbound")) return drop_bounding();
  if (!strncmp(name, "drop=", 5)) return prctl(PR_CAPBSET_DROP, atoi(value), 0, 0, 0);
  if (!strcmp(name, "child")) return go_on_in_child();
  if (!strncmp(name, "permitted=", 10)) return reduce('p', strtoul(value, 0, 0));
  if (!strncmp(name, "effective=", 10)) return reduce('e', strtoul(value, 0, 0));
  if (!strncmp(name, "inheritable=", 12)) return reduce('i', strtoul(value, 0, 0));
  if (!strcmp(name, "effective")) return restore_effective();
  if (!strncmp(name, "ambient=", 8))
    return prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, atoi(value), 0, 0);
  if (!strcmp(name, "unsettle")) return unsettle();
  if (!strcmp(name, "adorn")) return adorn();
  if (!strcmp(name, "lock")) return mlockall(MCL_FUTURE);
  if (!strncmp(name, "stack=", 6))
    return setrlimit(RLIMIT_STACK, &(struct rlimit){strtoul(value, 0, 0), RLIM_INFINITY});
  if (!strncmp(name, "persona=", 8)) return personality(strtoul(value, 0, 0));
  if (!strncmp(name, "dumpable=", 9)) return prctl(PR_SET_DUMPABLE, atoi(value), 0, 0, 0);
  if (!strncmp(name, "orphan=", 7)) return prctl(PR_SET_PDEATHSIG, atoi(value), 0, 0, 0);
  fprintf(stderr, "unknown step %s\n", name);
  exit(2);
}

static void tell_sets(void) {
  Sets sets;
  unsigned long ambient = 0, bounding = 0;
  get(sets);
  printf("effective %08x%08x\n", sets[1].effective, sets[0].effective);
  printf("permitted %08x%08x\n", sets[1].permitted, sets[0].permitted);
  printf("inheritable %08x%08x\n", sets[1].inheritable, sets[0].inheritable);
  for (int i = 0; i < 64; i++) {
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, i, 0, 0) == 1) ambient |= 1UL << i;
    if (prctl(PR_CAPBSET_READ, i, 0, 0, 0) == 1) bounding |= 1UL << i;
  }
  printf("ambient %016lx\nbounding %016lx\n", ambient, bounding);
}

static void tell_ids(void) {
  uid_t user[3];
  gid_t group[3];
  getresuid(user, user + 1, user + 2);
  getresgid(group, group + 1, group + 2);
  printf("users %d %d %d\n", user[0], user[1], user[2]);
  printf("groups %d %d %d\n", group[0], group[1], group[2]);
  printf("file-user %d\nfile-group %d\n", setfsuid(-1), setfsgid(-1));
  printf("supplementary %d\n", getgroups(0, 0));
}

static void tell_auxiliary(void) {
  printf("at-uid %ld\nat-euid %ld\n", getauxval(AT_UID), getauxval(AT_EUID));
  printf("at-gid %ld\nat-egid %ld\n", getauxval(AT_GID), getauxval(AT_EGID));
  printf("at-secure %ld\n", getauxval(AT_SECURE));
}

static void tell_signals(void) {
  stack_t stack;
  struct sigaction action;
  sigset_t set;
  struct itimerval interval;
  struct itimerspec timer;
  sigaltstack(0, &stack);
  printf("signal-stack %d\n", stack.ss_flags == SS_DISABLE ? 0 : (int)stack.ss_size);
  sigaction(SIGUSR1, 0, &action);
  printf("handled %s %x\n", action.sa_handler == SIG_DFL ? "default" : "kept", action.sa_flags);
  sigaction(SIGUSR2, 0, &action);
  printf("ignored %s %x\n", action.sa_handler == SIG_IGN ? "kept" : "default", action.sa_flags);
  sigprocmask(SIG_BLOCK, 0, &set);
  printf("mask %d\n", sigismember(&set, SIGTERM));
  sigpending(&set);
  printf("pending %d\n", sigismember(&set, SIGTERM));
  getitimer(ITIMER_REAL, &interval);
  printf("interval-timer %d\n", interval.it_value.tv_sec > 0);
  printf("posix-timer %ld\n", syscall(SYS_timer_gettime, 0, &timer));
}

// A number out of /proc/self/status.
static long status_of(const char *name) {
  char line[256];
  long value = -1;
  FILE *file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file))
    if (!strncmp(line, name, strlen(name))) value = atol(line + strlen(name) + 1);
  if (file) fclose(file);
  return value;
}

static void tell_process(void) {
  char name[16] = "", where[4096] = "";
  struct rlimit limit;
  int death = -1;
  prctl(PR_GET_PDEATHSIG, &death, 0, 0, 0);
  prctl(PR_GET_NAME, name, 0, 0, 0);
  printf("dumpable %d\ndeath-signal %d\nname %s\n", prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1, death,
         name);
  printf("timer-slack %d\n", prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0));
  printf("personality %x\n", personality(0xffffffff) & ~ADDR_NO_RANDOMIZE);
  printf("locked-memory %ld\n", status_of("VmLck"));
  getrlimit(RLIMIT_STACK, &limit);
  printf("stack-limit %ld\n", (long)limit.rlim_cur);
  getrlimit(RLIMIT_CORE, &limit);
  printf("core-limit %ld\n", (long)limit.rlim_cur);
  printf("umask %o\nnice %d\nfolder %d\n", umask(0), getpriority(PRIO_PROCESS, 0),
         !strcmp(getcwd(where, sizeof where), "/"));
  printf("descriptors");
  for (int i = 3; i < 40; i++)
    if (fcntl(i, F_GETFD) >= 0) printf(" %d", i);
  printf("\n");
}

// What the host lets this program do, which no set that is only shown would tell.
static void tell_powers(void) {
  int folder = open(getenv("SECRET"), O_PATH), file = openat(folder, "secret", O_RDONLY);
  printf("reads-secret %s\n", file < 0 ? strerror(errno) : "yes");
  printf("owns-secret %s\n", fchmodat(folder, "secret", 0600, 0) ? strerror(errno) : "yes");
  printf("back-to-root %s\n", setresuid(0, 0, 0) ? strerror(errno) : "yes");
  printf("back-to-root-group %s\n", setresgid(0, 0, 0) ? strerror(errno) : "yes");
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "after")) {
    tell_ids();
    tell_sets();
    printf("secure-bits %x\n", prctl(PR_GET_SECUREBITS, 0, 0, 0, 0));
    printf("keep-capabilities %d\n", prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0));
    printf("no-new-privileges %d\n", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    tell_auxiliary();
    tell_signals();
    tell_process();
    tell_powers();
    return 0;
  }
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "exec")) {
      // The rest is done by this program anew.
      fflush(stdout);
      execv("/proc/self/exe", argv + i);
      return 1;
    }
    printf("%s %s\n", argv[i], step(argv[i]) < 0 ? "-" : "+");
  }
  fflush(stdout);
  execl("/proc/self/exe", argv[0], "after", (char *)0);
  printf("not executed: %s\n", strerror(errno));
  return 1;
}
