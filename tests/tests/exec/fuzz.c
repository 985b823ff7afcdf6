// Walks at random through calls that change credentials, executions of itself and forks, each
// walk in a child, and tells after each step what the process is and what it may do to a few
// files. The same seed takes the same way. Arguments: as whom (`root`, `container` with the
// capabilities that containers usually have, or `user`), the first seed, how many walks, of how
// many steps.
//
// Of what an exec gave back to root that had put it down the walk parts at once: that is what
// rcoe does instead of giving it back.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct __user_cap_data_struct Sets[2];

static unsigned long state;
static int files;

static unsigned chance(unsigned below) {
  state = state * 6364136223846793005UL + 1442695040888963407UL;
  return (unsigned)(state >> 33) % below;
}

static int some_id(void) {
  static const int ids[] = {0, 0, 0, 1000, 1000, 1000, 2000, -1, -1};
  return ids[chance(sizeof ids / sizeof *ids)];
}

static int some_capability(void) {
  static const int all[] = {CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_KILL,
                            CAP_SETGID, CAP_SETUID,       CAP_SETPCAP};
  return all[chance(sizeof all / sizeof *all)];
}

static void get(Sets sets) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  syscall(SYS_capget, &header, sets);
}

static long change_sets(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  Sets sets;
  get(sets);
  unsigned bit = 1U << some_capability();
  switch (chance(8)) {
    case 0: sets[0].effective &= ~bit; break;
    case 1: sets[0].effective |= bit; break;
    case 2: sets[0].permitted &= ~bit; sets[0].effective &= ~bit; break;
    case 3: sets[0].inheritable |= bit; break;
    case 4: sets[0].inheritable &= ~bit; break;
    case 5: memcpy(&sets[0].effective, &sets[0].permitted, 4); break;
    case 6: sets[0].effective = sets[1].effective = 0; break;
    default: sets[0].inheritable = sets[0].permitted & 0x1ff;
  }
  return syscall(SYS_capset, &header, sets);
}

static long change_flags(void) {
  // A lock of SECBIT_KEEP_CAPS is left out: rcoe refuses to execute anything then.
  static const unsigned long flags[] = {0, SECBIT_NOROOT, SECBIT_NO_SETUID_FIXUP, SECBIT_KEEP_CAPS,
    SECBIT_NO_CAP_AMBIENT_RAISE, SECBIT_NOROOT | SECBIT_NO_SETUID_FIXUP};
  if (!chance(3)) return prctl(PR_SET_SECUREBITS, flags[chance(6)], 0, 0, 0);
  return prctl(PR_SET_KEEPCAPS, chance(2), 0, 0, 0);
}

static long change(const char **name) {
  switch (chance(16)) {
    case 0: *name = "setuid"; return setuid(some_id());
    case 1: *name = "setgid"; return setgid(some_id());
    case 2: *name = "setreuid"; return setreuid(some_id(), some_id());
    case 3: *name = "setregid"; return setregid(some_id(), some_id());
    case 4: *name = "setresuid"; return setresuid(some_id(), some_id(), some_id());
    case 5: *name = "setresgid"; return setresgid(some_id(), some_id(), some_id());
    case 6: *name = "setfsuid"; return setfsuid(some_id());
    case 7: *name = "setfsgid"; return setfsgid(some_id());
    case 8: *name = "setgroups";
      return setgroups(chance(3), (gid_t[]){chance(3) * 1000, 7});
    case 9: case 10: *name = "capset"; return change_sets();
    case 11: *name = "flags"; return change_flags();
    case 12: *name = "bounding";
      return chance(3) ? 0 : prctl(PR_CAPBSET_DROP, some_capability(), 0, 0, 0);
    case 13: *name = "ambient";
      return prctl(PR_CAP_AMBIENT, chance(4) ? PR_CAP_AMBIENT_RAISE : PR_CAP_AMBIENT_LOWER,
                   some_capability(), 0, 0);
    case 14: *name = "no-new";
      return chance(6) ? 0 : prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    default: *name = "dumpable"; return prctl(PR_SET_DUMPABLE, chance(2), 0, 0, 0);
  }
}

static void tell(const char *what, long result) {
  uid_t user[3];
  gid_t group[3], groups[8];
  Sets sets;
  unsigned long ambient = 0, bounding = 0;
  char line[512];
  getresuid(user, user + 1, user + 2);
  getresgid(group, group + 1, group + 2);
  get(sets);
  for (int i = 0; i < 41; i++) {
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, i, 0, 0) == 1) ambient |= 1UL << i;
    if (prctl(PR_CAPBSET_READ, i, 0, 0, 0) == 1) bounding |= 1UL << i;
  }
  int count = getgroups(8, groups), length = 0;
  length = sprintf(line, "%s %ld u %d %d %d %d g %d %d %d %d n %d %d", what, result, user[0], user[1],
                   user[2], setfsuid(-1), group[0], group[1], group[2], setfsgid(-1), count,
                   count > 0 ? groups[0] : -1);
  length += sprintf(line + length, " p %x%08x e %x%08x i %x%08x a %lx b %lx s %x d %d w %d",
                    sets[1].permitted, sets[0].permitted, sets[1].effective, sets[0].effective,
                    sets[1].inheritable, sets[0].inheritable, ambient, bounding,
                    prctl(PR_GET_SECUREBITS, 0, 0, 0, 0), prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1,
                    prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
  static const char *const names[] = {"of-root", "of-1000", "of-2000", "of-group"};
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    int reads = openat(files, names[i], O_RDONLY), writes = openat(files, names[i], O_WRONLY);
    length += sprintf(line + length, " %d%d%d", reads >= 0, writes >= 0,
                      !fchmodat(files, names[i], i == 3 ? 0060 : 0600, 0));
    if (reads >= 0) close(reads);
    if (writes >= 0) close(writes);
  }
  line[length++] = '\n';
  if (write(1, line, length) != length) exit(3);
}

// The child goes its own way for some steps, and its parent waits.
static int branch(unsigned *steps) {
  pid_t child = fork();
  if (child < 0) {
    tell("fork", -errno);
    return 0;
  }
  if (!child) {
    *steps = *steps < 4 ? *steps : 4;
    chance(7);
    tell("child", 0);
    return 1;
  }
  int status = -1;
  waitpid(child, &status, 0);
  tell("parent", status);
  return 0;
}

// What an exec passes on: the state of the walk and what was permitted before.
static void execute(const char *own, unsigned steps) {
  char seed[32], left[16], place[16], low[16], high[16];
  Sets sets;
  get(sets);
  sprintf(seed, "%lu", state);
  sprintf(left, "%u", steps);
  sprintf(place, "%d", files);
  sprintf(low, "%u", sets[0].permitted);
  sprintf(high, "%u", sets[1].permitted);
  execl("/proc/self/exe", own, "on", seed, left, place, low, high, (char *)0);
  tell("not-executed", errno);
}

static void part_with_what_was_not_permitted(char **permitted) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  Sets sets;
  get(sets);
  for (int i = 0; i < 2; i++) {
    sets[i].permitted &= strtoul(permitted[i], 0, 10);
    sets[i].effective &= sets[i].permitted;
  }
  if (syscall(SYS_capset, &header, sets)) exit(4);
}

static int walk(const char *own, unsigned steps) {
  while (steps-- > 0) {
    unsigned way = chance(10);
    if (way < 2) {
      execute(own, steps);
    } else if (way == 2 && steps > 2) {
      branch(&steps);
    } else {
      const char *name = "";
      long result = change(&name);
      tell(name, result < 0 ? -errno : result);
    }
  }
  return 0;
}

static void become(const char *who) {
  if (!strcmp(who, "container")) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    const unsigned usual = 0xa80425fb;
    Sets sets;
    for (int i = 0; i < 64; i++)
      if (i > 31 || !(usual >> i & 1)) prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
    get(sets);
    sets[1].permitted = sets[1].effective = 0;
    sets[0].permitted = sets[0].effective = sets[0].permitted & usual;
    syscall(SYS_capset, &header, sets);
  } else if (!strcmp(who, "user")) {
    setgroups(0, 0);
    setresgid(1000, 1000, 1000);
    setresuid(1000, 1000, 1000);
  }
}

int main(int argc, char **argv) {
  if (argc == 7 && !strcmp(argv[1], "on")) {
    state = strtoul(argv[2], 0, 10);
    files = atoi(argv[4]);
    part_with_what_was_not_permitted(argv + 5);
    tell("executed", getauxval(AT_SECURE) * 10000 + getauxval(AT_EUID));
    return walk(argv[0], atoi(argv[3]));
  }
  if (argc != 5) return 2;
  files = open(".", O_RDONLY | O_DIRECTORY);
  for (unsigned long seed = atoi(argv[2]), end = seed + atoi(argv[3]); seed < end; seed++) {
    pid_t child = fork();
    if (child < 0) return 5;
    if (!child) {
      state = seed;
      for (int i = 0; i < 4; i++) chance(1);
      become(argv[1]);
      tell("begins", seed);
      return walk(argv[0], atoi(argv[4]));
    }
    int status = -1;
    waitpid(child, &status, 0);
    char line[64];
    int length = sprintf(line, "walk %lu ended %x\n", seed, status);
    if (write(1, line, length) != length) return 3;
  }
  return 0;
}
