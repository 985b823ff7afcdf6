/* Sends back what comes, each client served by a process: "each" makes one when a client comes,
   "keeps" does too and has a last word when that has ended, and of processes made ahead all accept
   at one listener ("ahead"), or watch it ("herd"). */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 4 };

static void out(const char *what) {
  perror(what);
  exit(9);
}

static void put(int file, const char *bytes, ssize_t count) {
  while (count > 0) {
    ssize_t sent = write(file, bytes, count);
    if (sent < 0) out("write");
    bytes += sent;
    count -= sent;
  }
}

/* A child goes on, once the process that made it is gone with its descriptors. */
static void hand_over(void) {
  int ends[2];
  char byte;
  if (pipe(ends)) out("pipe");
  pid_t child = fork();
  if (child < 0) out("fork");
  if (child) _exit(0);
  close(ends[1]);
  if (read(ends[0], &byte, 1)) out("read of a pipe");
  close(ends[0]);
}

/* What begins with '>' is handed over first, and what begins with '.' ends this process. */
static void echo(int file) {
  char bytes[3000];
  ssize_t came;
  while ((came = read(file, bytes, sizeof bytes)) > 0) {
    if (bytes[0] == '>') hand_over();
    put(file, bytes, came);
    if (bytes[0] == '.') _exit(0);
  }
  if (came < 0) out("read");
}

static void on_child(int signal) {
  int before = errno;
  (void)signal;
  while (waitpid(-1, 0, WNOHANG) > 0)
    ;
  errno = before;
}

static pid_t serve(int listener, int file) {
  pid_t child = fork();
  if (child < 0) out("fork");
  if (child) return child;
  close(listener);
  echo(file);
  exit(0);
}

/* The next client, of all those who want it. */
static int come(int listener, int watcher) {
  for (;;) {
    struct epoll_event event;
    if (watcher >= 0 && epoll_wait(watcher, &event, 1, -1) < 0) out("epoll_wait");
    int file = accept(listener, 0, 0);
    if (file >= 0) return file;
    if (errno != EAGAIN && errno != EINTR) out("accept");
  }
}

static void work(int listener, int herd) {
  pid_t child = fork();
  if (child < 0) out("fork");
  if (child) return;
  int watcher = herd ? epoll_create1(0) : -1;
  struct epoll_event event = {.events = EPOLLIN};
  if (herd && epoll_ctl(watcher, EPOLL_CTL_ADD, listener, &event)) out("epoll_ctl");
  for (;;) {
    int file = come(listener, watcher);
    echo(file);
    close(file);
  }
}

static void ahead(int listener, int herd) {
  int status;
  if (herd && fcntl(listener, F_SETFL, O_NONBLOCK)) out("fcntl");
  for (int i = 0; i < WORKERS; i++) work(listener, herd);
  while (wait(&status) > 0) {
    printf("a worker ended: %d\n", status);
    fflush(stdout);
    work(listener, herd);
  }
  out("wait");
}

int main(int count, char **words) {
  struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(7)};
  struct sigaction action = {.sa_handler = on_child, .sa_flags = SA_RESTART};
  const char *how = count > 1 ? words[1] : "";
  int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, (void *)&any, sizeof any) || listen(listener, 64)) out("listen");
  printf("listens\n");
  fflush(stdout);
  if (!strcmp(how, "ahead") || !strcmp(how, "herd")) ahead(listener, how[0] == 'h');
  int keeps = !strcmp(how, "keeps");
  if (!keeps) sigaction(SIGCHLD, &action, 0);
  for (;;) {
    int file = come(listener, -1);
    pid_t child = serve(listener, file);
    if (keeps) {
      if (waitpid(child, 0, 0) != child) out("waitpid");
      put(file, "kept", 4);
    }
    close(file);
  }
}
