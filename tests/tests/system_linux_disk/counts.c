/* Counts, for ever or so far as it is told: each number is in a file of its own that takes the place of the last one, and is
 * on the disk before the next one begins. Says how far it is now and then. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	unsigned long end = argc > 1 ? strtoul(argv[1], NULL, 10) : -1UL;
	int folder = open("/disk", O_RDONLY | O_DIRECTORY);

	for (unsigned long i = 1; i <= end; i++) {
		char text[64];
		int file = open("/disk/new", O_WRONLY | O_CREAT | O_TRUNC, 0644);
		int len = snprintf(text, sizeof text, "counted up to %lu\n", i);

		if (write(file, text, len) != len || close(file) ||
		    rename("/disk/new", "/disk/count") || fsync(folder)) {
			perror("counts");
			return 1;
		}
		if (i % 16 == 1) {
			printf("%lu\n", i);
			fflush(stdout);
		}
	}
	return 0;
}
