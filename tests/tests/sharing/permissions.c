// System V segments: who may find, attach, read, change, lock and remove them, and what is told.
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#define TELL(what) tell(#what, (long)(what))

static int key, id;

static void tell(const char *what, long result) {
  printf("  %s: %s\n", what, result == -1 ? strerrorname_np(errno) : "done");
}

static void attach(int flags) {
  char *memory = shmat(id, NULL, flags);
  tell(flags & SHM_RDONLY ? "attach for reading" : "attach", (long)memory);
  if (memory == (char *)-1) return;
  TELL(mprotect(memory, 4096, PROT_READ));
  TELL(mprotect(memory, 4096, PROT_READ | PROT_WRITE));
  shmdt(memory);
}

static void try_all(void) {
  struct shmid_ds facts;
  TELL(shmget(key, 100, 0));
  TELL(shmget(key, 100, 0400));
  TELL(shmget(key, 100, 0200));
  TELL(shmget(key, 100, 0020));
  TELL(shmget(key, 100, 0600));
  attach(0);
  attach(SHM_RDONLY);
  attach(SHM_RDONLY | SHM_EXEC);
  TELL(shmctl(id, IPC_STAT, &facts));
  TELL(shmctl(id, SHM_LOCK, NULL));
  TELL(shmctl(id, SHM_UNLOCK, NULL));
}

static void change_all(void) {
  struct shmid_ds facts = {0};
  facts.shm_perm.mode = 0666;
  TELL(shmctl(id, IPC_SET, NULL));
  TELL(shmctl(id, IPC_SET, &facts));
  TELL(shmctl(id, IPC_RMID, NULL));
}

static void as(const char *name, int user, int group, int extra, void (*act)(void)) {
  printf("%s\n", name);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    gid_t groups[] = {extra};
    if (setgroups(1, groups) || setresgid(group, group, group) || setresuid(user, user, user)) {
      printf("not the superuser\n");
      exit(1);
    }
    act();
    exit(0);
  }
  waitpid(child, NULL, 0);
}

static void mark(const char *when) {
  struct shmid_ds facts;
  shmctl(id, IPC_STAT, &facts);
  printf("%s: %o, %u %u\n", when, facts.shm_perm.mode, facts.shm_perm.uid, facts.shm_perm.cuid);
}

int main(void) {
  static const int modes[] = {0600, 0640, 0604, 0707, 0000, 0200};
  struct shmid_ds facts;
  struct shminfo most;
  key = ftok(".", 'p');
  for (int i = 0; i < 6; i++) {
    id = shmget(key, 100, IPC_CREAT | IPC_EXCL | modes[i]);
    shmctl(id, IPC_STAT, &facts);
    facts.shm_perm.uid = 1001;
    facts.shm_perm.gid = 1002;
    shmctl(id, IPC_SET, &facts);
    printf("mode %o\n", modes[i]);
    as("superuser", 0, 0, 0, try_all);
    as("owner", 1001, 9, 9, try_all);
    as("group", 1003, 1002, 9, try_all);
    as("further group", 1003, 9, 1002, try_all);
    as("others", 1003, 9, 9, try_all);
    as("others", 1003, 9, 9, change_all);
    mark("kept");
    as("owner", 1001, 9, 9, change_all);
    printf("gone: %d\n", shmctl(id, IPC_STAT, &facts) < 0 && errno == EINVAL);
    shmctl(id, IPC_RMID, NULL);
  }
  id = shmget(IPC_PRIVATE, 100, 0600);
  TELL(shmctl(id, SHM_LOCK, NULL));
  mark("locked");
  TELL(shmctl(id, SHM_UNLOCK, NULL));
  mark("unlocked");
  TELL(shmctl(id, 99, NULL));
  TELL(shmctl(-1, IPC_STAT, &facts));
  TELL(shmctl(id + 999, IPC_RMID, NULL));
  TELL(shmctl(id, IPC_STAT, (void *)-1));
  int last = shmctl(0, IPC_INFO, (void *)&most);
  printf("limits: %lu %lu %lu %lu\n", most.shmmax, most.shmmin, most.shmmni, most.shmall);
  int found = 0;
  for (int place = 0; place <= last; place++) found += shmctl(place, SHM_STAT, &facts) == id;
  printf("found: %d\n", found);
  TELL(shmget(IPC_PRIVATE, 0, 0600));
  TELL(shmget(IPC_PRIVATE, most.shmmax + 1, 0600));
  TELL(shmctl(id, IPC_RMID, NULL));
  return 0;
}
