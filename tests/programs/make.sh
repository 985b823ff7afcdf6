# make -j2 and gcc: fifty generated C files, compiled and linked; every object file must be equal.
. "$SCENES/prelude.sh"
python3 - <<'P'
from pathlib import Path
for i in range(50):
    body = "\n".join(f"    x = x * {i + j + 3}u + (x >> {j % 7 + 1});" for j in range(30))
    Path(f"f{i}.c").write_text(f"#include <stdio.h>\n#include <string.h>\n#include <math.h>\n"
        f"unsigned f{i}(unsigned x) {{\n{body}\n    return x ^ (unsigned)strlen(\"f{i}\");\n}}\n")
calls = "\n".join(f"    x = f{i}(x);" for i in range(50))
heads = "\n".join(f"unsigned f{i}(unsigned);" for i in range(50))
Path("main.c").write_text(f"#include <stdio.h>\n{heads}\nint main(void) {{\n    unsigned x = 1;\n{calls}\n"
    '    printf("%u\\n", x);\n    return 0;\n}\n')
Path("Makefile").write_text("OBJECTS := $(patsubst %.c,%.o,$(wildcard *.c))\nprogram: $(OBJECTS)\n"
    "\t$(CC) -o $@ $^\n%.o: %.c\n\t$(CC) -O2 -g -c -o $@ $<\nclean:\n\trm -f *.o program\n")
P
"${run[@]}" make -s -j2 CC=gcc
./program
sha256sum -- *.o program
"${run[@]}" make -j2 CC=gcc
touch f7.c
"${run[@]}" make -j2 CC=gcc
