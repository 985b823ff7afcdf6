/* Asks a server to say one number after the other until it ends. */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char **words)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(words[1])) };
    int file = socket(AF_INET, SOCK_STREAM, 0);
    uint64_t asked = 0, back;

    (void)count;
    inet_pton(AF_INET, "10.0.2.2", &to.sin_addr);
    printf("begins\n");
    fflush(stdout);
    if (connect(file, (void *)&to, sizeof to))
        return 3;
    for (;; asked++) {
        if (write(file, &asked, sizeof asked) != sizeof asked)
            return 4;
        long got = recv(file, &back, sizeof back, MSG_WAITALL);
        if (got == 0)
            return 0;
        if (got != sizeof back || back != asked)
            return 5;
    }
}
