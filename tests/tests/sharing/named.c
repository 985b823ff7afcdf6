/* Memory and a semaphore that a program which was executed finds by their names; a file that two
   processes map; memory that a child maps and hands back by its descriptor's number. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char *map(int fd, off_t at) {
  return mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);
}

static int executed(char **argv) {
  char *memory = map(shm_open(argv[1], O_RDWR, 0), 0);
  sem_t *ready = sem_open(argv[2], 0);
  char *file = map(open("mapped", O_RDWR), 4096);
  printf("the child finds %s and %s\n", memory, file);
  fflush(stdout);
  strcpy(memory, "what the child wrote");
  strcpy(file, "written by the child");
  sem_post(ready);
  pause();
  return 0;
}

int main(int argc, char **argv) {
  char name[64], semaphore[64], text[32] = { 0 };
  if (argc > 1) return executed(argv);
  sprintf(name, "/rcoe-test-%d", getpid());
  sprintf(semaphore, "/rcoe-ready-%d", getpid());
  int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
  ftruncate(fd, 8192);
  char *memory = map(fd, 0);
  strcpy(memory, "what the parent wrote");
  sem_t *ready = sem_open(semaphore, O_CREAT | O_EXCL, 0600, 0);
  int other = open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0600);
  ftruncate(other, 8192);
  pwrite(other, "written to the file", 20, 4096);
  char *file = map(other, 4096);
  pid_t child = fork();
  if (!child) {
    execl(argv[0], argv[0], name, semaphore, (char *)0);
    _exit(9);
  }
  sem_wait(ready);
  printf("the parent finds %s and %s\n", memory, file);
  kill(child, SIGKILL);
  int status;
  waitpid(child, &status, 0);
  printf("killed by %d\n", WTERMSIG(status));
  pread(fd, text, 31, 0);
  printf("the object has %s\n", text);
  pwrite(fd, "WHAT", 4, 0);
  printf("the mapping has %s\n", memory);
  int unnamed = memfd_create("unnamed", 0);
  ftruncate(unnamed, 4096);
  char *early = map(unnamed, 0), *twice = map(unnamed, 0);
  if (!fork()) {
    strcpy(map(unnamed, 0), "through a third mapping");
    _exit(0);
  }
  wait(0);
  printf("%s, %s\n", early, twice);
  munmap(early, 4096);
  munmap(twice, 4096);
  printf("mapped again: %s\n", map(unnamed, 0));
  shm_unlink(name);
  sem_unlink(semaphore);
  return 0;
}
