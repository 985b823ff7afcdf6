/* Sends back what comes: by one thread that watches all clients, or by a thread for each. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

struct client {
    char bytes[3000];
    int from, to;
};

static int out(const char *what)
{
    perror(what);
    exit(9);
}

/* Moves what there is, until there is nothing, or the client is gone. */
static int move(int file, struct client *client)
{
    for (;;) {
        while (client->from < client->to) {
            int left = client->to - client->from;
            struct iovec parts[2] = {{client->bytes + client->from, left / 2},
                                     {client->bytes + client->from + left / 2, left - left / 2}};
            int sent = writev(file, parts, 2);
            if (sent < 0)
                return errno == EAGAIN ? 0 : -1;
            client->from += sent;
        }
        int came = read(file, client->bytes, sizeof client->bytes);
        if (came < 0)
            return errno == EAGAIN ? 0 : -1;
        if (came == 0)
            return -1;
        client->from = 0;
        client->to = came;
    }
}

static void watch(int listener)
{
    static struct client clients[300];
    int watcher = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, got[8];
    epoll_ctl(watcher, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(watcher, got, 8, 10000);
        for (int i = 0; i < count; i++) {
            int file = got[i].data.fd;
            if (file == listener) {
                int new = accept4(listener, 0, 0, SOCK_NONBLOCK);
                if (new < 0)
                    out("accept4");
                event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
                event.data.fd = new;
                clients[new].from = clients[new].to = 0;
                if (epoll_ctl(watcher, EPOLL_CTL_ADD, new, &event))
                    out("epoll_ctl");
            } else if (move(file, &clients[file])) {
                close(file);
            }
        }
    }
}

static void *serve(void *argument)
{
    int file = (int)(long)argument, one = 1;
    struct sockaddr_in peer;
    socklen_t bytes = sizeof peer;
    setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (getpeername(file, (void *)&peer, &bytes) || peer.sin_family != AF_INET)
        out("getpeername");
    char *room = malloc(20000);
    long came;
    while ((came = recv(file, room, 20000, 0)) > 0)
        if (send(file, room, came, MSG_NOSIGNAL) != came)
            break;
    shutdown(file, SHUT_WR);
    while (came > 0 && (came = recv(file, room, 20000, 0)) > 0)
        ;
    close(file);
    free(room);
    return 0;
}

int main(int argc, char **argv)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(7)};
    socklen_t bytes = sizeof any;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&any, sizeof any) || listen(listener, 64))
        out("listen");
    getsockname(listener, (void *)&any, &bytes);
    printf("listens at port %d\n", ntohs(any.sin_port));
    fflush(stdout);
    if (argc > 1)
        watch(listener);
    for (;;) {
        pthread_t thread;
        long new = accept(listener, 0, 0);
        if (new < 0)
            out("accept");
        if (pthread_create(&thread, 0, serve, (void *)new))
            out("pthread_create");
        pthread_detach(thread);
    }
}
