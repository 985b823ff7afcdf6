// Finds the vDSO's functions as Go's runtime does, by the GNU hash table and by the old one, with
// their versions, and calls them; then checks every clock against the system call.
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static unsigned long base;
static Elf64_Sym *symbols;
static char *strings;
static unsigned short *versions;
static unsigned *old, *gnu;
static Elf64_Verdef *definitions;

static unsigned old_hash(const char *s) {
  unsigned h = 0, g;
  for (; *s; s++) {
    h = (h << 4) + *s;
    if ((g = h & 0xf0000000)) h ^= g >> 24;
    h &= ~g;
  }
  return h;
}

static unsigned gnu_hash(const char *s) {
  unsigned h = 5381;
  for (; *s; s++) h = h * 33 + (unsigned char)*s;
  return h;
}

static int version(const char *name, unsigned hash) {
  for (Elf64_Verdef *it = definitions;; it = (void *)((char *)it + it->vd_next)) {
    Elf64_Verdaux *aux = (void *)((char *)it + it->vd_aux);
    if (!(it->vd_flags & VER_FLG_BASE) && it->vd_hash == hash && !strcmp(strings + aux->vda_name, name))
      return it->vd_ndx & 0x7fff;
    if (!it->vd_next) return -1;
  }
}

static void *usable(Elf64_Sym *s, const char *name, int wanted, unsigned i) {
  int type = ELF64_ST_TYPE(s->st_info), bind = ELF64_ST_BIND(s->st_info);
  if (type != STT_FUNC || (bind != STB_GLOBAL && bind != STB_WEAK) || !s->st_shndx || !s->st_size) return 0;
  if (strcmp(strings + s->st_name, name) || (versions[i] & 0x7fff) != wanted) return 0;
  return (void *)(base + s->st_value);
}

static void *by_old(const char *name, int wanted) {
  unsigned buckets = old[0];
  for (unsigned i = old[2 + old_hash(name) % buckets]; i; i = old[2 + buckets + i]) {
    void *found = usable(&symbols[i], name, wanted, i);
    if (found) return found;
  }
  return 0;
}

static void *by_gnu(const char *name, int wanted) {
  unsigned buckets = gnu[0], offset = gnu[1], words = gnu[2], hash = gnu_hash(name);
  unsigned *bucket = gnu + 4 + words * 2, *chain = bucket + buckets;
  unsigned i = bucket[hash % buckets];
  if (i < offset) return 0;
  for (;; i++) {
    if ((chain[i - offset] | 1) == (hash | 1)) {
      void *found = usable(&symbols[i], name, wanted, i);
      if (found) return found;
    }
    if (chain[i - offset] & 1) return 0;
  }
}

static int listed(struct dl_phdr_info *info, size_t size, void *of) {
  int *found = of;
  if (info->dlpi_addr != base) return 0;
  for (int i = 0; i < info->dlpi_phnum; i++) *found |= info->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME;
  return 0;
}

int main(void) {
  base = getauxval(AT_SYSINFO_EHDR);
  Elf64_Ehdr *header = (void *)base;
  if (!base || memcmp(header->e_ident, ELFMAG, SELFMAG) || header->e_type != ET_DYN) return puts("no vDSO"), 1;
  Elf64_Phdr *segments = (void *)(base + header->e_phoff);
  Elf64_Dyn *dynamic = 0;
  int notes = 0;
  for (int i = 0; i < header->e_phnum; i++) {
    if (segments[i].p_type == PT_DYNAMIC) dynamic = (void *)(base + segments[i].p_vaddr);
    notes += segments[i].p_type == PT_NOTE;
  }
  for (; dynamic->d_tag; dynamic++) {
    void *at = (void *)(base + dynamic->d_un.d_ptr);
    switch (dynamic->d_tag) {
      case DT_STRTAB: strings = at; break;
      case DT_SYMTAB: symbols = at; break;
      case DT_HASH: old = at; break;
      case DT_GNU_HASH: gnu = at; break;
      case DT_VERSYM: versions = at; break;
      case DT_VERDEF: definitions = at; break;
    }
  }
  int wanted = version("LINUX_2.6", 0x3ae75f6);
  const char *names[] = {"clock_gettime", "gettimeofday", "time", "clock_getres", "getcpu"};
  int all = 0;
  for (int i = 0; i < 5; i++) {
    char name[32];
    sprintf(name, "__vdso_%s", names[i]);
    void *a = by_gnu(name, wanted), *b = by_old(name, wanted);
    all += a && a == b && by_gnu(names[i], wanted) == a && by_old(names[i], wanted) == a;
  }
  int unwindable = 0;
  dl_iterate_phdr(listed, &unwindable);
  printf("functions %d, notes %d, versions %d, unwinding %d\n", all, notes > 0, wanted > 0, unwindable);

  int (*read)(int, struct timespec *) = by_gnu("__vdso_clock_gettime", wanted);
  int (*day)(struct timeval *, void *) = by_gnu("__vdso_gettimeofday", wanted);
  long (*seconds)(long *) = by_gnu("__vdso_time", wanted);
  int (*resolution)(int, struct timespec *) = by_gnu("__vdso_clock_getres", wanted);
  int (*cpu)(unsigned *, unsigned *, void *) = by_gnu("__vdso_getcpu", wanted);
  for (int clock = -8; clock < 12; clock++) {
    struct timespec a, b, c, d;
    int before = syscall(SYS_clock_gettime, clock, &a) ? -errno : 0;
    int here = read(clock, &b);
    int after = syscall(SYS_clock_gettime, clock, &c) ? -errno : 0;
    long low = a.tv_sec * 1000000000 + a.tv_nsec, is = b.tv_sec * 1000000000 + b.tv_nsec;
    long high = c.tv_sec * 1000000000 + c.tv_nsec;
    // The coarse clocks go on at ticks; the others never go back.
    int between = before || (low <= is && is <= high && b.tv_nsec >= 0 && b.tv_nsec < 1000000000);
    int same = before == here && here == after && between;
    int fine = resolution(clock, &d) == (syscall(SYS_clock_getres, clock, &a) ? -errno : 0);
    if (!same || !fine) printf("clock %d: %d %d %d, %ld %ld %ld\n", clock, before, here, after, low, is, high);
  }
  struct timespec a, b;
  struct timeval tv;
  struct timezone zone = {77, 77};
  long stored = 0, now;
  read(CLOCK_REALTIME, &a);
  int r = day(&tv, 0), z = day(&tv, &zone), n = day(0, 0);
  read(CLOCK_REALTIME, &b);
  long us = tv.tv_sec * 1000000 + tv.tv_usec;
  printf("day %d %d %d, %d, zone %d\n", r, z, n, us >= a.tv_sec * 1000000 + a.tv_nsec / 1000 && us <= b.tv_sec * 1000000 + b.tv_nsec / 1000, zone.tz_minuteswest != 77);
  now = seconds(&stored);
  printf("time %d\n", now == stored && now >= a.tv_sec - 1 && seconds(0) >= now);
  unsigned on = 77777, node = 77777;
  int got = cpu(&on, &node, 0);
  printf("cpu %d %d\n", got, on != 77777 && node != 77777);
  return 0;
}
