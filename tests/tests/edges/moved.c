// Code that makes calls is moved, replaced, read, and given back, after many calls.
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 3, SIZE = PAGES * PAGE, ENOUGH = 300 };
enum { CODE = PROT_READ | PROT_EXEC, DATA = PROT_READ | PROT_WRITE };

typedef long Function(long nr, void *a, long b, long c, void *d);

// mov $39, %eax; syscall; ret
static const unsigned char number_first[] = {0xb8, 39, 0, 0, 0, 0x0f, 5, 0xc3};
// mov %rdi, %rax; mov %rsi, %rdi; mov %rdx, %rsi; mov %rcx, %rdx; mov %r8, %r10
#define ARGUMENTS 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, \
                  0x4d, 0x89, 0xc2
// ...; syscall; cmp $-4095, %rax; ret
static const unsigned char then_compared[] = {ARGUMENTS, 0x0f, 5, 0x48, 0x3d, 1, 0xf0, 0xff,
                                              0xff, 0xc3};
// ...; syscall; mov $77, %eax; ret
static const unsigned char then_forgotten[] = {ARGUMENTS, 0x0f, 5, 0xb8, 77, 0, 0, 0, 0xc3};

// Offsets of the two: one of them may lie across a page's end.
static const int places[][2] = {{64, 256}, {PAGE + 64, PAGE + 256}, {2 * PAGE - 3, 64},
                                {64, 2 * PAGE - 18}, {128, 2 * PAGE - 15}};
enum { PLACES = sizeof places / sizeof *places };

static unsigned char text[SIZE];
static int first, second;

static void write_text(int place, const unsigned char *other, size_t len) {
  first = places[place][0], second = places[place][1];
  memset(text, 0x90, SIZE);
  memcpy(text + first, number_first, sizeof number_first);
  memcpy(text + second, other, len);
}

static unsigned char *map_text(void *at) {
  int fd = memfd_create("text", 0);
  write(fd, text, SIZE);
  unsigned char *code = mmap(at, SIZE, CODE, MAP_PRIVATE | (at ? MAP_FIXED : 0), fd, 0);
  close(fd);
  return code;
}

static int works(unsigned char *code, int times, long expected) {
  for (int i = 0; i < times; i++) {
    if (((Function *)(code + first))(0, 0, 0, 0, 0) != getpid()) return 0;
    long result = ((Function *)(code + second))(SYS_getppid, 0, 0, 0, 0);
    if (result != expected) return 0;
  }
  return 1;
}

static unsigned char *used_text(int place) {
  write_text(place, then_compared, sizeof then_compared);
  unsigned char *code = map_text(0);
  return works(code, ENOUGH, getppid()) ? code : 0;
}

static void *far_away(void) {
  unsigned char *room = mmap(0, 3UL << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                             -1, 0);
  munmap(room, 3UL << 30);
  return room;
}

// Page by page: what was rewritten may be a mapping of its own to the host.
static int move(unsigned char *from, unsigned char *to, int flags) {
  for (int at = 0; at < SIZE; at += PAGE)
    if (mremap(from + at, PAGE, PAGE, flags | MREMAP_MAYMOVE | MREMAP_FIXED, to + at) != to + at)
      return 0;
  return 1;
}

static int moved(int place) {
  unsigned char *code = used_text(place), *to = far_away();
  return move(code, to, 0) && works(to, ENOUGH, getppid());
}

static int moved_in_part(int place) {
  unsigned char *code = used_text(place), *to = far_away();
  map_text(to);
  mremap(code + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to + PAGE);
  return works(to, ENOUGH, getppid());
}

static int left_and_moved(int place) {
  unsigned char *code = used_text(place), *copy = far_away();
  return move(code, copy, MREMAP_DONTUNMAP) && works(copy, ENOUGH, getppid()) &&
         works(code, ENOUGH, getppid());
}

static int replaced_by_a_move(int place) {
  unsigned char *code = used_text(place);
  write_text(place, then_forgotten, sizeof then_forgotten);
  unsigned char *other = map_text(0);
  mremap(other, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, code);
  return works(code, ENOUGH, 77);
}

static int replaced_after_a_part(int place) {
  unsigned char *code = used_text(place);
  int untouched = (first < second ? second : first) < PAGE ? 2 : 0;
  mprotect(code + untouched * PAGE, PAGE, PROT_READ);
  munmap(code, SIZE);
  write_text(place, then_forgotten, sizeof then_forgotten);
  return map_text(code) == code && works(code, ENOUGH, 77);
}

static int half_given_back(int place) {
  unsigned char *code = used_text(place);
  madvise(code + PAGE, PAGE, MADV_DONTNEED);
  int one = works(code, ENOUGH, getppid());
  madvise(code + 2 * PAGE, PAGE, MADV_DONTNEED);
  return one && works(code, ENOUGH, getppid());
}

static int half_replaced(int place) {
  unsigned char *code = used_text(place), *other = map_text(0);
  mremap(other + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, code + PAGE);
  return works(code, ENOUGH, getppid());
}

static int half_renewed(int place) {
  unsigned char *code = used_text(place);
  int fd = memfd_create("text", 0);
  write(fd, text, SIZE);
  mmap(code + PAGE, PAGE, CODE, MAP_PRIVATE | MAP_FIXED, fd, PAGE);
  close(fd);
  return works(code, ENOUGH, getppid());
}

static int opened_and_read(int place) {
  unsigned char *code = used_text(place);
  mprotect(code, SIZE, DATA);
  int same = !memcmp(code, text, SIZE);
  mprotect(code, SIZE, CODE);
  return same && works(code, ENOUGH, getppid());
}

static int written_by_file(int place) {
  unsigned char *code = used_text(place);
  FILE *memory = fopen("/proc/self/mem", "r+");
  setvbuf(memory, 0, _IONBF, 0);
  write_text(place, then_forgotten, sizeof then_forgotten);
  // From within what was rewritten on.
  fseek(memory, (long)code + second + 16, SEEK_SET);
  fwrite(text + second + 16, 1, SIZE - second - 16, memory);
  fclose(memory);
  return works(code, ENOUGH, 77);
}

static unsigned char *shared_code;
static int word, is_waiting;

static void *wait_in_code(void *unused) {
  is_waiting = 1;
  return (void *)((Function *)(shared_code + second))(SYS_futex, &word, FUTEX_WAIT, 0, 0);
}

static int protected_while_one_waits(int place) {
  pthread_t thread;
  void *result;
  write_text(place, then_compared, sizeof then_compared);
  shared_code = map_text(0);
  word = is_waiting = 0;
  pthread_create(&thread, 0, wait_in_code, 0);
  while (!__atomic_load_n(&is_waiting, __ATOMIC_SEQ_CST)) sched_yield();
  for (int i = 0; i < 20; i++) sched_yield();
  int good = works(shared_code, ENOUGH, getppid());
  mprotect(shared_code, SIZE, CODE);
  word = 1;
  syscall(SYS_futex, &word, FUTEX_WAKE, 1);
  pthread_join(thread, &result);
  return good && (result == 0 || result == (void *)-11L) && works(shared_code, ENOUGH, getppid());
}

static int is_hole(unsigned char *at) {
  for (int page = 0; page < 4; page++)
    if (!msync(at + page * PAGE, PAGE, MS_ASYNC)) return 0;
  return 1;
}

// What nobody has mapped near the code is the program's to unmap, or rcoe's to refuse.
static int unmapped_nearby(int place) {
  // So few that no other call comes to be rewritten before.
  enum { MANY = 8, STEP = 1 << 20 };
  write_text(place, then_compared, sizeof then_compared);
  // Far from where stubs of the loader's calls may be, which would do.
  unsigned char *code = map_text(far_away()), *holes[MANY];
  int count = 0;
  for (int i = 1; i <= MANY; i++)
    if (is_hole(code - i * STEP)) holes[count++] = code - i * STEP;
  int good = works(code, ENOUGH, getppid());
  for (int i = 0; i < count; i++) {
    munmap(holes[i], 4 * PAGE);
    mprotect(holes[i], 4 * PAGE, PROT_READ);
    madvise(holes[i], 4 * PAGE, MADV_DONTNEED);
    mmap(holes[i], 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    mremap(holes[i], 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
  }
  return good && count && works(code, ENOUGH, getppid());
}

#define TELL(how)                                                             \
  for (int place = 0; place < PLACES; place++) {                              \
    printf(#how " at %d: %s\n", place, how(place) ? "works" : "goes astray"); \
    fflush(stdout);                                                           \
  }

int main(int argc, char **argv) {
  if (argc > 1) {
    int good = unmapped_nearby(0);
    printf("%s\n", good ? "works" : "goes astray");
    return !good;
  }
  TELL(moved)
  TELL(moved_in_part)
  TELL(left_and_moved)
  TELL(replaced_by_a_move)
  TELL(replaced_after_a_part)
  TELL(half_given_back)
  TELL(half_replaced)
  TELL(half_renewed)
  TELL(opened_and_read)
  TELL(written_by_file)
  TELL(protected_while_one_waits)
}
