/* A host of its own for a command: in a fresh network and with other mounts (unshare), it has a
 * server of names at the loopback, which is the one that its resolver asks, and a server of pages at
 * port 8000. Both end with the command. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static void must(int holds, const char *what)
{
    if (!holds) {
        perror(what);
        exit(99);
    }
}

static int bound(int kind, int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    int file = socket(AF_INET, kind, 0), one = 1;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    must(!bind(file, (void *)&at, sizeof at), "bind");
    return file;
}

/* Is the question of this name? Labels come behind their lengths. */
static int names(const unsigned char *question, const char *name, int bytes)
{
    return !memcmp(question, name, bytes);
}

/* "one.example" has the address of the host's loopback as the machine sees it, and no other; every
 * further name has none. */
static void answer_names(int file)
{
    static const char known[] = "\3one\7example";
    static const unsigned char record[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 0, 2, 2};
    unsigned char bytes[1500];
    struct sockaddr_in from;
    for (;;) {
        socklen_t room = sizeof from;
        long got = recvfrom(file, bytes, 512, 0, (void *)&from, &room), end = 12;
        if (got < 17)
            continue;
        int is_known = names(bytes + 12, known, sizeof known);
        while (end < got && bytes[end])
            end += bytes[end] + 1;
        int is_address = bytes[end + 2] == 1;
        end += 5;
        bytes[2] = 0x81, bytes[3] = is_known ? 0x80 : 0x83;
        memset(bytes + 6, 0, 6);
        if (is_known && is_address) {
            bytes[7] = 1;
            memcpy(bytes + end, record, sizeof record);
            end += sizeof record;
        }
        sendto(file, bytes, end, 0, (void *)&from, room);
    }
}

static void serve_pages(int file)
{
    static const char page[] = "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nfound by it";
    char asked[4096];
    listen(file, 4);
    for (;;) {
        int client = accept(file, 0, 0), have = 0;
        while (have < (int)sizeof asked - 1) {
            long got = read(client, asked + have, sizeof asked - 1 - have);
            if (got <= 0)
                break;
            asked[have += got] = 0;
            if (strstr(asked, "\r\n\r\n"))
                break;
        }
        write(client, page, sizeof page - 1);
        close(client);
    }
}

static void beside(void (*serve)(int), int file)
{
    pid_t command = getpid();
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != command)
            _exit(0);
        serve(file);
    }
    close(file);
}

int main(int count, char **words)
{
    struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    (void)count;
    must(!ioctl(socket(AF_INET, SOCK_DGRAM, 0), SIOCSIFFLAGS, &loopback), "lo");
    must(!mount(words[1], "/etc/resolv.conf", 0, MS_BIND, 0), "resolv.conf");
    beside(answer_names, bound(SOCK_DGRAM, 53));
    beside(serve_pages, bound(SOCK_STREAM, 8000));
    execvp(words[2], words + 2);
    must(0, words[2]);
}
