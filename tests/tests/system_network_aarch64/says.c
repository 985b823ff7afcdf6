/* Says what the files that it is told of hold. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char room[4096];

	for (int i = 1; i < argc; i++) {
		int file = open(argv[i], O_RDONLY);
		long count;

		if (file < 0) {
			perror(argv[i]);
			return 1;
		}
		while ((count = read(file, room, sizeof room)) > 0)
			write(1, room, count);
		close(file);
	}
	return 0;
}
