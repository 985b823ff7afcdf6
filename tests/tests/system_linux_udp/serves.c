/* Sends back whatever datagrams come, behind their numbers under a mask that stands in its memory,
 * and ends with the first empty one. */
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>

static const volatile char mask[] = "what all answers bear";

int main(void)
{
    static char room[4096];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(53)}, from;
    int file = socket(AF_INET, SOCK_DGRAM, 0);

    if (bind(file, (void *)&at, sizeof at))
        return 3;
    printf("serves\n");
    fflush(stdout);
    for (;;) {
        socklen_t bytes = sizeof from;
        long got = recvfrom(file, room, sizeof room, 0, (void *)&from, &bytes);
        for (long at = 8; at < got; at++)
            room[at] ^= mask[at % (sizeof mask - 1)];
        if (got < 0 || sendto(file, room, got, 0, (void *)&from, bytes) != got)
            return 4;
        if (got == 0)
            return 0;
    }
}
