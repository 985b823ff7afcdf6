/* Looks for names as programs do, and tells the addresses of IPv4. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static int by_name(const void *one, const void *other)
{
    return strcmp(one, other);
}

int main(int count, char **words)
{
    for (int at = 1; at < count; at++) {
        struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *all = 0;
        int failed = getaddrinfo(words[at], "80", &wanted, &all);
        printf("%s", words[at]);
        if (failed)
            printf(" %s", failed == EAI_NONAME ? "is unknown" : gai_strerror(failed));
        for (struct addrinfo *it = all; it; it = it->ai_next) {
            char text[64];
            struct sockaddr_in *name = (void *)it->ai_addr;
            if (it->ai_family == AF_INET)
                printf(" %s:%d", inet_ntop(AF_INET, &name->sin_addr, text, sizeof text),
                       ntohs(name->sin_port));
        }
        printf("\n");
        if (all)
            freeaddrinfo(all);
    }
    return 0;
}
