/* System V segments: by key, across fork and execve, until removed. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

static void show(int id) {
  struct shmid_ds facts;
  if (shmctl(id, IPC_STAT, &facts)) {
    printf("no segment: %d\n", errno == EINVAL);
    return;
  }
  printf("%zu bytes, mode %o, attached %d\n", facts.shm_segsz, facts.shm_perm.mode,
         (int)facts.shm_nattch);
}

int main(int argc, char **argv) {
  /* Not yet anyone else's key, natively: the directory is the test's own. */
  key_t key = ftok(".", 'r');
  if (argc > 1) {
    char *memory = shmat(shmget(key, 0, 0), 0, 0);
    printf("executed: %s\n", memory);
    strcpy(memory, "from the executed");
    return 0;
  }
  int id = shmget(key, 5000, IPC_CREAT | IPC_EXCL | 0600);
  printf("%d %d\n", id >= 0, shmget(key, 5000, IPC_CREAT | IPC_EXCL | 0600) < 0 && errno == EEXIST);
  printf("too large: %d\n", shmget(key, 6000, 0) < 0 && errno == EINVAL);
  char *memory = shmat(id, 0, 0);
  strcpy(memory, "from the first");
  show(id);
  fflush(stdout);
  if (!fork()) {
    show(id);
    fflush(stdout);
    strcpy(memory, "from the child");
    shmdt(memory);
    show(id);
    fflush(stdout);
    _exit(0);
  }
  wait(0);
  printf("%s\n", memory);
  fflush(stdout);
  if (!fork()) {
    execl(argv[0], argv[0], "x", (char *)0);
    _exit(9);
  }
  wait(0);
  printf("%s\n", memory);
  printf("removed: %d %d\n", shmctl(id, IPC_RMID, 0), shmget(key, 0, 0) < 0 && errno == ENOENT);
  show(id);
  strcpy(memory, "still there");
  printf("%s\n", memory);
  printf("detached: %d\n", shmdt(memory));
  show(id);
  printf("not attached: %d\n", shmdt(memory) < 0 && errno == EINVAL);
  return 0;
}
