/* Datagrams between sockets of one machine, in all ways that there are, with what comes of them. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static char room[70000], block[70000];

static const char *why(long result)
{
    static char text[40];
    if (result >= 0)
        snprintf(text, sizeof text, "%ld", result);
    else
        snprintf(text, sizeof text, "%d", -errno);
    return text;
}

static struct sockaddr_in name_of(int file)
{
    struct sockaddr_in name;
    socklen_t bytes = sizeof name;
    memset(&name, 0, sizeof name);
    getsockname(file, (void *)&name, &bytes);
    return name;
}

static struct sockaddr_in loopback(int port)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return name;
}

/* A socket at the loopback, at any port. */
static int server(struct sockaddr_in *name)
{
    int file = socket(AF_INET, SOCK_DGRAM, 0);
    *name = loopback(0);
    if (bind(file, (void *)name, sizeof *name))
        exit(9);
    *name = name_of(file);
    return file;
}

static void whole(void)
{
    struct sockaddr_in at, from, peer;
    socklen_t bytes = sizeof from;
    int here = server(&at), client = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP);
    printf("bound %d %d\n", at.sin_addr.s_addr == htonl(INADDR_LOOPBACK), at.sin_port != 0);
    printf("none %d\n", name_of(client).sin_port);
    printf("sent %s", why(sendto(client, "hello", 5, 0, (void *)&at, sizeof at)));
    printf(" %s", why(sendto(client, "", 0, 0, (void *)&at, sizeof at)));
    printf(" %s\n", why(sendto(client, "much more", 9, 0, (void *)&at, sizeof at)));
    int waiting = -1;
    ioctl(here, FIONREAD, &waiting);
    printf("waits %d\n", waiting);
    printf("peeked %s", why(recv(here, room, 3, MSG_PEEK | MSG_TRUNC)));
    printf(" %.3s\n", room);
    printf("came %s", why(recvfrom(here, room, sizeof room, 0, (void *)&from, &bytes)));
    peer = name_of(client);
    printf(" %.5s %d %d\n", room, (int)bytes, from.sin_port == peer.sin_port);
    printf("empty %s\n", why(recv(here, room, sizeof room, 0)));
    struct iovec parts[2] = {{room, 2}, {room + 10, 3}};
    struct msghdr message = {&from, sizeof from, parts, 2, 0, 0, 0};
    printf("cut %s", why(recvmsg(here, &message, 0)));
    printf(" %d %.2s %.3s\n", message.msg_flags == MSG_TRUNC, room, room + 10);
    printf("nothing %s", why(recv(here, room, 9, MSG_DONTWAIT)));
    printf(" %s\n", why(send(client, "x", 1, 0)));
    for (int bytes = 1; bytes < 60000; bytes = bytes * 5 + 1) {
        memset(block, bytes, bytes);
        printf("%d: %s", bytes, why(sendto(client, block, bytes, 0, (void *)&at, sizeof at)));
        long got = recv(here, room, sizeof room, 0);
        printf(" %s %d\n", why(got), memcmp(room, block, bytes));
    }
    printf("long %s\n", why(sendto(client, block, 65508, 0, (void *)&at, sizeof at)));
    printf("port %s\n", why(sendto(client, block, 1, 0, (void *)&(struct sockaddr_in){
        .sin_family = AF_INET, .sin_addr.s_addr = at.sin_addr.s_addr}, sizeof at)));
    printf("taken %s\n", why(bind(client, (void *)&at, sizeof at)));
    int other = socket(AF_INET, SOCK_DGRAM, 0);
    printf("used %s", why(bind(other, (void *)&at, sizeof at)));
    at.sin_addr.s_addr = htonl(0x09090909);
    printf(" foreign %s\n", why(bind(other, (void *)&at, sizeof at)));
    int kind = 0, protocol = 0;
    bytes = sizeof kind;
    getsockopt(here, SOL_SOCKET, SO_TYPE, &kind, &bytes);
    getsockopt(here, SOL_SOCKET, SO_PROTOCOL, &protocol, &bytes);
    printf("kind %d %d %s", kind, protocol, why(listen(here, 1)));
    printf(" %s\n", why(accept(here, 0, 0)));
    close(here), close(client), close(other);
}

static void connected(void)
{
    struct sockaddr_in at, mine, strange;
    socklen_t bytes = sizeof at;
    int here = server(&at), client = socket(AF_INET, SOCK_DGRAM, 0), other = server(&strange);
    printf("no peer %s\n", why(getpeername(client, (void *)&mine, &bytes)));
    printf("connect %s\n", why(connect(client, (void *)&at, sizeof at)));
    mine = name_of(client);
    printf("own %d\n", mine.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    printf("peer %s", why(getpeername(client, (void *)&strange, &bytes)));
    printf(" %d\n", strange.sin_port == at.sin_port);
    printf("asked %s\n", why(write(client, "question", 8)));
    printf("heard %s\n", why(read(here, room, sizeof room)));
    sendto(other, "lie", 3, 0, (void *)&mine, sizeof mine);
    printf("deaf %s\n", why(recv(client, room, 9, MSG_DONTWAIT)));
    sendto(here, "answer", 6, 0, (void *)&mine, sizeof mine);
    printf("answer %s\n", why(recv(client, room, sizeof room, 0)));
    struct pollfd one = {client, POLLIN | POLLOUT, 0};
    close(here);
    printf("unheard %s", why(send(client, "x", 1, 0)));
    printf(" %d", poll(&one, 1, 1000));
    printf(" %d", one.revents & (POLLERR | POLLOUT));
    printf(" %s", why(recv(client, room, 9, 0)));
    printf(" %s\n", why(recv(client, room, 9, MSG_DONTWAIT)));
    struct sockaddr_in none = {.sin_family = AF_UNSPEC};
    printf("free %s", why(connect(client, (void *)&none, sizeof none)));
    printf(" %s\n", why(send(client, "x", 1, 0)));
    printf("shut %s\n", why(shutdown(client, SHUT_RD)));
    close(client), close(other);
}

static void *answers(void *argument)
{
    struct sockaddr_in from;
    int file = *(int *)argument;
    for (;;) {
        socklen_t bytes = sizeof from;
        long got = recvfrom(file, block, sizeof block, 0, (void *)&from, &bytes);
        if (got <= 0)
            return 0;
        sendto(file, block, got, 0, (void *)&from, sizeof from);
    }
}

static void waited(void)
{
    struct sockaddr_in at, mine;
    int here = server(&at), client = server(&mine), watcher = epoll_create1(0);
    pthread_t thread;
    pthread_create(&thread, 0, answers, &here);
    connect(client, (void *)&at, sizeof at);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET}, got;
    epoll_ctl(watcher, EPOLL_CTL_ADD, client, &event);
    int sum = 0;
    for (int round = 0; round < 20; round++) {
        int bytes = 4 + round;
        memcpy(block, &round, 4);
        send(client, block, bytes, 0);
        if (round % 3 == 0) {
            struct pollfd one = {client, POLLIN, 0};
            poll(&one, 1, -1);
        } else if (round % 3 == 1) {
            fd_set set;
            FD_ZERO(&set);
            FD_SET(client, &set);
            select(client + 1, &set, 0, 0, 0);
        } else {
            epoll_wait(watcher, &got, 1, -1);
        }
        sum += recv(client, room, sizeof room, 0) == bytes && !memcmp(room, &round, 4);
    }
    printf("rounds %d\n", sum);
    send(client, "", 0, 0);
    pthread_join(thread, 0);
    struct timeval soon = {0, 30000};
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
    printf("late %s\n", why(recv(client, room, 9, 0)));
    /* A child answers by the socket that it was given. */
    pid_t child = fork();
    if (child == 0) {
        answers(&here);
        _exit(0);
    }
    close(here);
    soon.tv_usec = 0;
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
    send(client, "child", 5, 0);
    printf("child %s\n", why(recv(client, room, sizeof room, 0)));
    send(client, "", 0, 0);
    waitpid(child, 0, 0);
    /* Nothing waits to be sent: what has no room is lost. */
    int full = server(&at), sent = 0, kept = 0;
    for (int i = 0; i < 40; i++)
        sent += sendto(client, block, 30000, 0, (void *)&at, sizeof at) == 30000;
    while (recv(full, room, sizeof room, MSG_DONTWAIT) == 30000)
        kept++;
    printf("full %d %d\n", sent, kept > 0 && kept < 40);
}

static void many(void)
{
    struct sockaddr_in at, from[4];
    int here = server(&at), client = socket(AF_INET, SOCK_DGRAM, 0);
    struct iovec out[3] = {{"a", 1}, {"bcd", 3}, {"efghi", 5}}, in[4];
    struct mmsghdr sent[3], came[4];
    memset(sent, 0, sizeof sent), memset(came, 0, sizeof came);
    for (int i = 0; i < 3; i++)
        sent[i].msg_hdr = (struct msghdr){&at, sizeof at, &out[i], 1, 0, 0, 0};
    for (int i = 0; i < 4; i++) {
        in[i] = (struct iovec){room + 100 * i, 4};
        came[i].msg_hdr = (struct msghdr){&from[i], sizeof from[i], &in[i], 1, 0, 0, 0};
    }
    printf("sent many %s\n", why(sendmmsg(client, sent, 3, 0)));
    printf("came many %s\n", why(recvmmsg(here, came, 4, MSG_WAITFORONE, 0)));
    for (int i = 0; i < 3; i++)
        printf("%d %d %.*s %d\n", sent[i].msg_len, came[i].msg_len, (int)came[i].msg_len,
               room + 100 * i, came[i].msg_hdr.msg_flags == MSG_TRUNC);
    printf("no more %s\n", why(recvmmsg(here, came, 4, MSG_DONTWAIT, 0)));
    connect(client, (void *)&at, sizeof at);
    for (int i = 0; i < 3; i++)
        sent[i].msg_hdr.msg_name = 0, sent[i].msg_hdr.msg_namelen = 0;
    printf("again %s", why(sendmmsg(client, sent, 3, 0)));
    printf(" %s\n", why(recvmmsg(here, came, 3, 0, 0)));
    close(here), close(client);
}

int main(void)
{
    whole();
    connected();
    waited();
    many();
    fflush(stdout);
    return 7;
}
