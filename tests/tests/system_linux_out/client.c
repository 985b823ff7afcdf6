/*
 * Connects to ADDRESS:PORT, where a server sends back what it gets until the end and then ends, and
 * to ADDRESS:CLOSED, where nobody listens: waiting, and not.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ALL = 150000 };

static struct sockaddr_in peer(const char *address, const char *port)
{
    struct sockaddr_in it = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };

    inet_pton(AF_INET, address, &it.sin_addr);
    return it;
}

static int error(int file)
{
    int value = -1;
    socklen_t len = sizeof value;

    getsockopt(file, SOL_SOCKET, SO_ERROR, &value, &len);
    return value;
}

/* Sends all of it, takes it back meanwhile, and ends its half first. */
static void exchange(int file, const char *what)
{
    static char sent[ALL], back[ALL];
    int out = 0, in = 0, ended = 0;

    for (int at = 0; at < ALL; at++)
        sent[at] = at * 31 / 7;
    while (!ended) {
        struct pollfd it = { .fd = file, .events = POLLIN | (out < ALL ? POLLOUT : 0) };

        if (poll(&it, 1, -1) != 1)
            exit(3);
        if (out < ALL && it.revents & POLLOUT) {
            int some = send(file, sent + out, ALL - out, MSG_DONTWAIT | MSG_NOSIGNAL);

            out += some > 0 ? some : 0;
            if (out == ALL)
                shutdown(file, SHUT_WR);
        }
        if (it.revents & POLLIN) {
            int some = recv(file, back + in, ALL - in, MSG_DONTWAIT);

            ended = some == 0;
            in += some > 0 ? some : 0;
        }
    }
    printf("%s: %d of %d came back, %s\n", what, in, ALL,
           memcmp(sent, back, ALL) ? "others" : "the same");
}

static int asked(struct sockaddr_in *to)
{
    int file = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int came = connect(file, (void *)to, sizeof *to);

    printf("asks: %d %d\n", came, errno == EINPROGRESS);
    return file;
}

static int waits(int file)
{
    struct pollfd it = { .fd = file, .events = POLLOUT };

    poll(&it, 1, -1);
    return it.revents;
}

int main(int count, char **words)
{
    struct sockaddr_in to = peer(words[1], words[2]), closed = peer(words[1], words[3]), name;
    socklen_t len = sizeof name;
    int file = socket(AF_INET, SOCK_STREAM, 0);

    (void)count;
    setvbuf(stdout, 0, _IOLBF, 0);
    printf("waits: %d\n", connect(file, (void *)&to, sizeof to));
    getpeername(file, (void *)&name, &len);
    printf("peer: %d\n", memcmp(&name, &to, sizeof to));
    printf("again: %d %d\n", connect(file, (void *)&to, sizeof to), errno == EISCONN);
    exchange(file, "waited");
    close(file);
    file = asked(&to);
    printf("made: %d %d\n", waits(file) == POLLOUT, error(file));
    printf("told: %d\n", connect(file, (void *)&to, sizeof to));
    exchange(file, "asked");
    close(file);
    file = socket(AF_INET, SOCK_STREAM, 0);
    printf("refused: %d %d\n", connect(file, (void *)&closed, sizeof closed),
           errno == ECONNREFUSED);
    printf("then: %d\n", connect(file, (void *)&to, sizeof to));
    exchange(file, "refused first");
    close(file);
    file = asked(&closed);
    printf("none: %d", (waits(file) & (POLLOUT | POLLERR | POLLHUP)) ==
           (POLLOUT | POLLERR | POLLHUP));
    printf(" %d", error(file) == ECONNREFUSED);
    printf(" %d\n", error(file));
    return 0;
}
