// System V semaphores and message queues between processes and threads.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int failed(long result) { return result == -1 ? errno : 0; }
static void on(int number) { (void)number; }

static int change(int id, int at, int by, int flags) {
  struct sembuf operation = {at, by, flags};
  return semop(id, &operation, 1);
}
static int change_for(int id, int by, long milliseconds) {
  struct sembuf operation = {0, by, 0};
  struct timespec time = {0, milliseconds * 1000000};
  return semtimedop(id, &operation, 1, &time);
}
static int ended(pid_t pid) {
  int status;
  waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void values(void) {
  int id = semget(IPC_PRIVATE, 3, 0600);
  unsigned short all[3] = {5, 6, 7}, seen[3];
  struct semid_ds set;
  printf("set %d", semctl(id, 0, SETALL, all));
  printf(" %d", semctl(id, 1, SETVAL, 9));
  printf(" %d", semctl(id, 0, GETALL, seen));
  printf(" %d %d %d", seen[0], seen[1], seen[2]);
  printf(" %d", semctl(id, 0, IPC_STAT, &set));
  printf(" %lu %o\n", set.sem_nsems, set.sem_perm.mode);
  set.sem_perm.mode = 0640;
  printf("mode %d", semctl(id, 0, IPC_SET, &set));
  semctl(id, 0, IPC_STAT, &set);
  printf(" %o", set.sem_perm.mode);
  printf(" %d", change(id, 2, -7, 0));
  printf(" %d %d", semctl(id, 2, GETVAL), semctl(id, 2, GETPID) == getpid());
  printf(" %d", failed(change(id, 2, -1, IPC_NOWAIT)) == EAGAIN);
  printf(" %d", failed(change(id, 9, -1, 0)) == EFBIG);
  printf(" %d", failed(semctl(id, 9, GETVAL)) == EINVAL);
  printf(" %d", failed(semctl(id, 0, SETVAL, -1)) == ERANGE);
  printf(" %d\n", failed(semctl(id, 0, GETALL, (void *)8)) == EFAULT);
  struct sembuf both[2] = {{0, -5, 0}, {2, -1, IPC_NOWAIT}};
  printf("both %d", failed(semop(id, both, 2)) == EAGAIN);
  printf(" %d", semctl(id, 0, GETVAL));
  printf(" %d", semctl(id, 0, IPC_RMID));
  printf(" %d\n", failed(change(id, 0, 1, 0)) == EINVAL);
}

static void between_processes(void) {
  int id = semget(IPC_PRIVATE, 2, 0600);
  semctl(id, 0, SETVAL, 0);
  semctl(id, 1, SETVAL, 0);
  pid_t pid = fork();
  if (!pid) {
    for (int i = 0; i < 200; i++)
      if (change(id, 0, -1, 0) || change(id, 1, 1, 0)) _exit(1);
    _exit(0);
  }
  for (int i = 0; i < 200; i++)
    if (change(id, 0, 1, 0) || change(id, 1, -1, 0)) printf("lost\n");
  printf("turns %d", ended(pid));
  printf(" %d %d\n", semctl(id, 0, GETPID) == pid, semctl(id, 1, GETPID) == getpid());
  // One that is killed gives back what it took, and only that.
  semctl(id, 0, SETVAL, 3);
  int told[2];
  if (pipe(told)) return;
  pid = fork();
  if (!pid) {
    change(id, 0, -2, SEM_UNDO);
    change(id, 0, -1, 0);
    if (write(told[1], "x", 1) != 1) _exit(1);
    pause();
  }
  char byte;
  if (read(told[0], &byte, 1) != 1) return;
  printf("held %d", semctl(id, 0, GETVAL));
  kill(pid, SIGKILL);
  printf(" %d", ended(pid));
  printf(" %d\n", semctl(id, 0, GETVAL));
  pid = fork();
  if (!pid) {
    change(id, 0, -1, SEM_UNDO);
    if (fork()) {
      wait(0);
      _exit(semctl(id, 0, GETVAL));
    }
    _exit(0);
  }
  printf("child's end undoes nothing %d", ended(pid));
  printf(" %d\n", semctl(id, 0, GETVAL));
  semctl(id, 0, IPC_RMID);
}

static void waits(void) {
  int id = semget(IPC_PRIVATE, 1, 0600);
  semctl(id, 0, SETVAL, 0);
  printf("time %d", failed(change_for(id, -1, 20)) == EAGAIN);
  struct sigaction action = {.sa_handler = on, .sa_flags = SA_RESTART};
  sigaction(SIGUSR1, &action, 0);
  pid_t pid = fork();
  if (!pid) {
    while (kill(getppid(), SIGUSR1) == 0 && semctl(id, 0, GETVAL) == 0) usleep(5000);
    _exit(0);
  }
  printf(" signal %d", failed(change(id, 0, -1, 0)) == EINTR);
  semctl(id, 0, SETVAL, 1);
  while (waitpid(pid, 0, 0) == -1 && errno == EINTR);
  semctl(id, 0, SETVAL, 0);
  pid = fork();
  if (!pid) _exit(failed(change(id, 0, -1, 0)) == EIDRM ? 0 : failed(change(id, 0, -1, 0)));
  while (semctl(id, 0, GETNCNT) == 0) usleep(1000);
  printf(" waiting %d", semctl(id, 0, GETNCNT));
  semctl(id, 0, IPC_RMID);
  printf(" removed %d\n", ended(pid));
}

static int shared;
static void *takes(void *unused) {
  long taken = 0;
  (void)unused;
  for (int i = 0; i < 50; i++) taken += change(shared, 0, -1, 0) == 0;
  return (void *)taken;
}

static void in_threads(void) {
  pthread_t threads[4];
  shared = semget(IPC_PRIVATE, 1, 0600);
  semctl(shared, 0, SETVAL, 0);
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, takes, 0);
  pid_t pid = fork();
  if (!pid) {
    for (int i = 0; i < 200; i++) change(shared, 0, 1, 0);
    _exit(0);
  }
  long all = 0;
  for (int i = 0; i < 4; i++) {
    void *taken;
    pthread_join(threads[i], &taken);
    all += (long)taken;
  }
  printf("threads %ld %d", all, ended(pid));
  printf(" %d\n", semctl(shared, 0, GETVAL));
  pthread_create(&threads[0], 0, takes, 0);
  printf("time %d\n", failed(change_for(shared, -200, 30)) == EAGAIN);
  for (int i = 0; i < 50; i++) change(shared, 0, 1, 0);
  pthread_join(threads[0], 0);
  semctl(shared, 0, IPC_RMID);
}

struct message {
  long type;
  char text[100];
};

static void *answers(void *id) {
  struct message message;
  ssize_t got = msgrcv(*(int *)id, &message, sizeof message.text, 7, 0);
  printf("thread %zd %s\n", got, message.text);
  return 0;
}

static void queues(void) {
  int id = msgget(IPC_PRIVATE, 0600);
  struct message message = {3, "three"};
  struct msqid_ds queue;
  printf("send %d", msgsnd(id, &message, 6, 0));
  message = (struct message){2, "two"};
  printf(" %d", msgsnd(id, &message, 4, 0));
  printf(" %d", msgctl(id, IPC_STAT, &queue));
  printf(" %lu %d %d\n", queue.msg_qnum, queue.msg_lspid == getpid(), queue.msg_lrpid);
  printf("receive %zd", msgrcv(id, &message, sizeof message.text, 2, 0));
  printf(" %ld %s", message.type, message.text);
  printf(" %d", failed(msgrcv(id, &message, 2, 0, 0)) == E2BIG);
  printf(" %zd", msgrcv(id, &message, 2, 0, MSG_NOERROR));
  printf(" %ld %.2s", message.type, message.text);
  printf(" %d", failed(msgrcv(id, &message, 2, 0, IPC_NOWAIT)) == ENOMSG);
  printf(" %d", failed(msgsnd(id, &message, -1, 0)) == EINVAL);
  message.type = 0;
  printf(" %d\n", failed(msgsnd(id, &message, 1, 0)) == EINVAL);
  pid_t pid = fork();
  if (!pid) {
    for (int i = 0; i < 500; i++) {
      message.type = 1 + i % 3;
      sprintf(message.text, "message %d", i);
      if (msgsnd(id, &message, sizeof message.text, 0)) _exit(1);
    }
    _exit(0);
  }
  long sum = 0;
  for (int i = 0; i < 500; i++) {
    int number;
    if (msgrcv(id, &message, sizeof message.text, 0, 0) != sizeof message.text) printf("short\n");
    sscanf(message.text, "message %d", &number);
    sum += number * message.type;
  }
  printf("sum %ld %d", sum, ended(pid));
  msgctl(id, IPC_STAT, &queue);
  printf(" %d %d\n", queue.msg_lspid == pid, queue.msg_lrpid == getpid());
  pthread_t thread;
  pthread_create(&thread, 0, answers, &id);
  usleep(1000);
  message = (struct message){7, "seven"};
  msgsnd(id, &message, 6, 0);
  pthread_join(thread, 0);
  pid = fork();
  if (!pid) _exit(failed(msgrcv(id, &message, 1, 0, 0)) == EIDRM ? 0 : errno);
  usleep(20000);
  msgctl(id, IPC_RMID, 0);
  int status = ended(pid);
  // It may have come too late to wait.
  printf("removed %d\n", status == 0 || status == EINVAL);
}

int main(void) {
  setvbuf(stdout, 0, _IOLBF, 0);
  values();
  between_processes();
  waits();
  in_threads();
  queues();
  return 0;
}
