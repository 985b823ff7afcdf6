/* Asks a server for one datagram after the other, and again when one was lost, until it ends that. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { MOST = 1472 };

static unsigned char asked[MOST], came[2 * MOST];

/* What is asked with a number: as much of what as the number says. */
static int make(uint64_t number)
{
    int bytes = 8 + number * 97 % (MOST - 7);
    for (int at = 8; at < bytes; at++)
        asked[at] = at * 31 + number * 7;
    memcpy(asked, &number, 8);
    return bytes;
}

int main(int count, char **words)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(words[2]))};
    int file = socket(AF_INET, SOCK_DGRAM, 0);

    inet_pton(AF_INET, words[1], &to.sin_addr);
    if (count > 3 && connect(file, (void *)&to, sizeof to))
        return 3;
    printf("begins\n");
    fflush(stdout);
    for (uint64_t number = 0;; number++) {
        int bytes = make(number), heard = 0;
        while (!heard) {
            struct pollfd one = {file, POLLIN, 0};
            long sent = count > 3 ? send(file, asked, bytes, 0)
                                  : sendto(file, asked, bytes, 0, (void *)&to, sizeof to);
            if (sent != bytes)
                return 4;
            while (!heard && poll(&one, 1, 1000) > 0) {
                struct sockaddr_in from;
                socklen_t room = sizeof from;
                long got = recvfrom(file, came, sizeof came, 0, (void *)&from, &room);
                uint64_t which;
                if (got < 8 || from.sin_port != to.sin_port || room != sizeof from)
                    return 5;
                memcpy(&which, came, 8);
                if (which == UINT64_MAX)
                    return got == 8 ? 0 : 6;
                /* An answer may come twice if the question was sent again. */
                if (which != number)
                    continue;
                if (got != bytes || memcmp(came, asked, bytes))
                    return 7;
                heard = 1;
            }
        }
    }
}
