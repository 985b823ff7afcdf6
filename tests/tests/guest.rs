//! What a program finds inside a replica: its own world, no more and no less.

use rcoe_tests::launch::Ended;
use rcoe_tests::rcoe::Scene;

/// Runs a program as two and three replicas; it must exit with 0 and rcoe may only warn.
#[track_caller]
fn agrees(scene: &Scene, program: &str) -> [rcoe_tests::launch::Outcome; 2] {
    ["2", "3"].map(|replicas| {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--", program]);
        let (out, errors) = (outcome.out(), outcome.err());
        assert_eq!(
            outcome.ended,
            Ended::Exit(0),
            "-n {replicas}: {out} {errors}"
        );
        outcome
    })
}

#[test]
fn name_arguments_environment_and_place_are_its_own() {
    let scene = Scene::new();
    let source = "#include <stdio.h>\n#include <unistd.h>\nextern char **environ;\n
int main(int argc, char **argv) {
  char exe[500] = {0}, cwd[500];
  for (int i = 0; i < argc; i++) puts(argv[i]);
  for (char **e = environ; *e; e++) puts(*e);
  readlink(\"/proc/self/exe\", exe, 499);
  printf(\"%s %s\\n\", exe, getcwd(cwd, 500));
  return 0;
}";
    let program = scene.compile("self", source, &[]);
    for script in [
        "exec \"$@\"",
        "A=1 B='x y' exec \"$@\"",
        "exec env -i C=3 \"$@\"",
    ] {
        scene.like_native(script, &[&program, "a b", "", "--help"]);
    }
    scene.like_native("exec \"$@\"", &["./self"]);
}

#[test]
fn capabilities_are_read_and_dropped_by_every_name_of_oneself() {
    let scene = Scene::new();
    let source = "#include <errno.h>\n#include <linux/capability.h>\n#include <stdio.h>\n
#include <sys/syscall.h>\n#include <unistd.h>\n
static struct __user_cap_data_struct data[2];
static void get(const char *name, unsigned version, int pid) {
  struct __user_cap_header_struct header = {version, pid};
  data[0].permitted = 7;
  long result = syscall(SYS_capget, &header, data);
  printf(\"%s %ld %d %x\", name, result, result ? errno : 0, header.version);
  printf(\" %x\\n\", data[0].permitted);
}
int main(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, getpid()};
  get(\"nobody\", _LINUX_CAPABILITY_VERSION_3, 0);
  get(\"own\", _LINUX_CAPABILITY_VERSION_3, getpid());
  get(\"thread\", _LINUX_CAPABILITY_VERSION_3, syscall(SYS_gettid));
  get(\"version\", 7, 0);
  get(\"other\", _LINUX_CAPABILITY_VERSION_3, 0x3fffff);
  syscall(SYS_capget, &header, data);
  data[0].permitted = data[0].effective = data[0].inheritable = 0;
  header.pid = 0;
  printf(\"set %ld\\n\", syscall(SYS_capset, &header, data));
  get(\"dropped\", _LINUX_CAPABILITY_VERSION_3, 0);
  return 0;
}";
    let program = scene.compile("caps", source, &[]);
    scene.like_native("exec \"$@\"", &[&program]);
}

#[test]
fn process_ids_are_those_of_rcoe() {
    let scene = Scene::new();
    let source = "#include <stdio.h>\n#include <unistd.h>\n
int main(void) { printf(\"%d %d\\n\", getpid(), getppid()); return 0; }";
    let program = scene.compile("ids", source, &[]);
    for replicas in ["1", "2", "3"] {
        let script = "echo $$; exec \"$@\"";
        let outcome = scene.rcoe_by(script, &["run", "-n", replicas, "--", &program]);
        let own = std::process::id();
        let expected = outcome.out().lines().next().unwrap_or_default().to_owned();
        assert_eq!(
            outcome.out(),
            format!("{expected}\n{expected} {own}\n"),
            "{}",
            outcome.err()
        );
    }
}

#[test]
fn raw_system_calls_are_caught() {
    let source = "static long raw(long n, long a, long b, long c) {
  long r;
  __asm__ volatile(\"syscall\" : \"=a\"(r)
    : \"a\"(n), \"D\"(a), \"S\"(b), \"d\"(c) : \"rcx\", \"r11\", \"memory\");
  return r;
}
static void text(const char *s) { long n = 0; while (s[n]) n++; raw(1, 1, (long)s, n); }
void _start(void) {
  for (int i = 0; i < 100; i++) { text(\"raw\\n\"); raw(39, 0, 0, 0); }
  text(raw(9999, 0, 0, 0) == -38 ? \"ENOSYS\\n\" : \"other\\n\");
  raw(231, 9, 0, 0);
  for (;;) {}
}";
    let scene = Scene::new();
    let flags = [
        "-static",
        "-nostdlib",
        "-ffreestanding",
        "-fno-stack-protector",
    ];
    let program = scene.compile("raw", source, &flags);
    let native = scene.run(&[&program]);
    for replicas in ["1", "2", "3"] {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--", &program]);
        assert_eq!(outcome.out(), native.out(), "{}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(9), "{}", outcome.err());
        assert_eq!(
            outcome.err().matches("9999").count(),
            1,
            "{}",
            outcome.err()
        );
    }
}

#[test]
fn a_system_call_across_a_page_boundary_is_caught() {
    let source =
        "#define _GNU_SOURCE\n#include <stdio.h>\n#include <string.h>\n#include <sys/mman.h>\n
int main(void) {
  char *p = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char code[] = \"\\xb8\\x6e\\x00\\x00\\x00\\x0f\\x05\\x48\\x3d\\x01\\xf0\\xff\\xff\\xc3\";
  memcpy(p + 4096 - 6, code, sizeof code);
  if (mprotect(p, 8192, PROT_READ | PROT_EXEC)) return 1;
  long first = ((long (*)(void))(p + 4096 - 6))(), sum = 0;
  for (int i = 0; i < 1000; i++) sum += ((long (*)(void))(p + 4096 - 6))() == first;
  printf(\"%ld\\n\", sum);
  return first <= 0;
}";
    let scene = Scene::new();
    let program = scene.compile("straddle", source, &[]);
    let native = scene.like_native("exec \"$@\"", &[&program]);
    assert_eq!(native.out(), "1000\n");
}

#[test]
fn the_agents_memory_is_out_of_reach_of_system_calls() {
    let source =
        "#define _GNU_SOURCE\n#include <errno.h>\n#include <fcntl.h>\n#include <stdio.h>\n\
#include <sys/mman.h>\n#include <unistd.h>\n
int main(void) {
  void *agent = (void *)0x6f0000000000;
  char *mine = mmap(0, 8192, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int zero = open(\"/dev/zero\", O_RDONLY);
  int got = 0;
  got |= (mmap(agent, 4096, 3, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) << 0;
  got |= (mmap(agent - 4096, 8192, 3, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
          == MAP_FAILED) << 1;
  got |= (munmap(agent, 4096) == -1) << 2;
  got |= (mprotect(agent, 4096, PROT_NONE) == -1) << 3;
  got |= (mremap(mine, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, agent) == MAP_FAILED) << 4;
  got |= (madvise(agent, 4096, MADV_DONTNEED) == -1) << 5;
  got |= (read(zero, agent, 4096) == -1) << 6;
  printf(\"%x\\n\", got);
  return 0;
}";
    let scene = Scene::new();
    let program = scene.compile("trespasser", source, &[]);
    for outcome in agrees(&scene, &program) {
        assert_eq!(outcome.out(), "7f\n", "{}", outcome.err());
        assert!(outcome.err().contains("agent"), "{}", outcome.err());
    }
}

#[test]
fn what_a_call_wrote_before_memory_that_can_only_be_read_is_alike() {
    let source =
        "#define _GNU_SOURCE\n#include <errno.h>\n#include <stdio.h>\n#include <string.h>\n\
#include <sys/mman.h>\n#include <sys/socket.h>\n#include <sys/sysinfo.h>\n#include <unistd.h>\n
static char *end;
/* It fails; what it would write is compared first. */
static void show(const char *name, long result) {
  printf(\"%s %ld %d\\n\", name, result, result < 0 ? errno : 0);
  pwrite(-1, end - 4096, 8192, 0);
}
int main(void) {
  int pair[2];
  char much[8192];
  end = 4096 + (char *)mmap(0, 8192, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(end, 4096, PROT_READ);
  memset(much, 7, sizeof much);
  for (int size = 1; size < 112; size++) show(\"sysinfo\", sysinfo((void *)(end - size)));
  for (int type = SOCK_STREAM; type <= SOCK_DGRAM; type++) {
    socketpair(AF_UNIX, type, 0, pair);
    for (int size = 1; size < 4096; size += 500) {
      if (write(pair[1], much, 4096) != 4096) return 1;
      show(\"recv\", recv(pair[0], end - size, 8192, MSG_DONTWAIT));
    }
  }
  return 0;
}";
    let scene = Scene::new();
    let program = scene.compile("readonly", source, &[]);
    scene.like_native("exec \"$@\"", &[&program]);
    agrees(&scene, &program);
}

#[test]
fn a_mapping_that_fits_nowhere_is_refused_in_silence() {
    let source = "#define _GNU_SOURCE\n#include <errno.h>\n#include <stdio.h>\n\
#include <sys/mman.h>\n
int main(void) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void *at = mmap(0, 0x7f0000000000, 3, flags, -1, 0);
  printf(\"%d %d\\n\", at == MAP_FAILED, errno == ENOMEM);
  char *wished = mmap((void *)0x6f0000000000, 8192, 3, flags, -1, 0);
  printf(\"%d\\n\", wished[4096]);
  return 0;
}";
    let scene = Scene::new();
    let program = scene.compile("huge", source, &[]);
    scene.like_native("exec \"$@\"", &[&program]);
}

#[test]
fn a_fixed_mapping_elsewhere_is_granted() {
    let source = "#define _GNU_SOURCE\n#include <stdio.h>\n#include <sys/mman.h>\n
int main(void) {
  void *wish = (void *)0x200000000000;
  printf(\"%p\\n\", mmap(wish, 4096, 3, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  printf(\"%d\\n\", munmap(wish, 4096));
  return 0;
}";
    let scene = Scene::new();
    let program = scene.compile("fixed", source, &[]);
    scene.like_native("exec \"$@\"", &[&program]);
}

#[test]
fn counters_and_processor_facts_are_equal_in_all_replicas() {
    let source = "#include <cpuid.h>\n#include <stdio.h>\n#include <x86intrin.h>\n
__attribute__((target(\"rdrnd,rdseed,rdpid\"))) int main(void) {
  unsigned a, b, c, d, aux;
  unsigned long long last = 0, seed = 0;
  for (int i = 0; i < 200; i++) {
    unsigned long long now = i % 2 ? __rdtsc() : __rdtscp(&aux);
    if (now < last) return 1;
    last = now;
    if (i % 20 == 0) printf(\"%llu %u\\n\", now, aux);
  }
  for (unsigned leaf = 0; leaf < 0x20; leaf++) {
    __cpuid_count(leaf, 0, a, b, c, d);
    printf(\"%x %x %x %x %x\\n\", leaf, a, b, c, d);
  }
  __cpuid(1, a, b, c, d);
  if (c & bit_RDRND) return 2;
  for (int i = 0; i < 20; i++) {
    int ok = _rdrand64_step(&seed);
    printf(\"%d %llu\\n\", ok, ok ? seed : 0);
  }
  return 0;
}";
    let scene = Scene::new();
    let program = scene.compile("counters", source, &[]);
    for outcome in agrees(&scene, &program) {
        assert_eq!(outcome.err(), "");
    }
}

#[test]
fn registers_of_zeroes_are_unused_however_they_became_so() {
    // All are zero, and one of them was loaded: many a processor calls that used until the process
    // has left it once.
    let source = "#include <cpuid.h>\n#include <stdio.h>\n
char area[4096] __attribute__((aligned(64)));
const char zeroes[16];
unsigned long noted(char *area);
__asm__(\".globl noted\\nnoted:\\n\"
  \".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\\n pxor %xmm\\\\n,%xmm\\\\n\\n.endr\\n\"
  \"movdqu zeroes(%rip),%xmm3\\n mov $3,%eax\\n xor %edx,%edx\\n\"
  \"xsave64 64(%rdi)\\n mov 576(%rdi),%rax\\n ret\\n\");
int main(void) {
  unsigned a, b, c, d;
  __cpuid_count(0xd, 1, a, b, c, d);
  printf(\"%x\", a & 15);
  for (int i = 0; i < 20; i++) printf(\" %lx\", noted(area - 64));
  puts(\"\");
  return 0;
}";
    let scene = Scene::new();
    let program = scene.compile("noted", source, &["-mno-avx"]);
    let told = format!("0{}\n", " 1".repeat(20));
    for outcome in agrees(&scene, &program) {
        assert_eq!(
            (outcome.out(), outcome.err()),
            (told.clone(), String::new())
        );
    }
}

#[test]
fn code_that_nobody_has_seen_asks_no_processor() {
    let faults = std::fs::read_to_string("/proc/cpuinfo").expect("readable");
    if !faults.contains("cpuid_fault") {
        eprintln!("skipped: this machine cannot make cpuid fault");
        return;
    }
    // push %rbx; mov %edi, %eax; xor %ecx, %ecx; cpuid; mov %ecx, (%rsi); mov %ebx, 4(%rsi);
    // pop %rbx; ret
    let source = "#include <stdio.h>\n#include <string.h>\n#include <sys/mman.h>\n
static const char code[] =
  \"\\x53\\x89\\xf8\\x31\\xc9\\x0f\\xa2\\x89\\x0e\\x89\\x5e\\x04\\x5b\\xc3\";
int main(void) {
  for (int round = 0; round < 3; round++) {
    void *at = mmap(0, 4096, PROT_READ | PROT_WRITE | (round ? PROT_EXEC : 0),
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(at, code, sizeof code);
    if (!round && mprotect(at, 4096, PROT_READ | PROT_EXEC)) return 1;
    unsigned told[2];
    ((void (*)(unsigned, unsigned *))at)(1, told);
    if (told[0] >> 30 & 1) return 2;
    if (told[1] >> 24) return 3;
  }
  return 0;
}";
    let scene = Scene::new();
    let program = scene.compile("unseen", source, &[]);
    agrees(&scene, &program);
}

#[test]
fn code_is_looked_through_anew_when_its_file_has_changed() {
    // A file is known only when it has not changed for two seconds.
    let source = "#include <fcntl.h>\n#include <stdio.h>\n#include <string.h>\n\
#include <sys/mman.h>\n#include <sys/stat.h>\n#include <time.h>\n#include <unistd.h>\n
// xor %eax, %eax; rdrand %rcx; setc %al; ret
static const char draw[] = \"\\x31\\xc0\\x48\\x0f\\xc7\\xf1\\x0f\\x92\\xc0\\xc3\";
static char code[8192];
static int tries(int file, const char *what) {
  char *at = mmap(0, sizeof code, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
  if (at == MAP_FAILED) return 1;
  for (int i = 0; i < 40; i++)
    if (((int (*)(void))(at + 256))() || ((int (*)(void))(at + 5000))()) return 2;
  printf(\"%s: no random numbers\\n\", what);
  return munmap(at, sizeof code);
}
static void grow_old(int file) {
  struct stat s;
  for (fstat(file, &s); time(0) < s.st_ctime + 3;) usleep(100000);
}
static void put(int file, int at, const char *bytes, int len) {
  memset(code + at, 0x90, 64);
  memcpy(code + at, bytes, len);
  pwrite(file, code, sizeof code, 0);
}
int main(void) {
  int file = open(\"code\", O_RDWR | O_CREAT | O_TRUNC, 0700);
  memset(code, 0x90, sizeof code);
  put(file, 5000, \"\\x31\\xc0\\xc3\", 3);
  put(file, 256, draw, sizeof draw - 1);
  if (tries(file, \"new\")) return 3;
  grow_old(file);
  if (tries(file, \"old\") || tries(file, \"known\")) return 4;
  put(file, 5000, draw, sizeof draw - 1);
  if (tries(file, \"changed\")) return 5;
  grow_old(file);
  return tries(file, \"changed long ago\") || tries(file, \"known anew\") ? 6 : 0;
}";
    let scene = Scene::new();
    let program = scene.compile("draws", source, &[]);
    for outcome in agrees(&scene, &program) {
        assert_eq!(outcome.out().lines().count(), 6, "{}", outcome.out());
    }
}

#[test]
fn clocks_and_random_bytes_are_equal_in_all_replicas() {
    let source = "#include <stdio.h>\n#include <sys/auxv.h>\n#include <sys/random.h>\n\
#include <sys/time.h>\n#include <time.h>\n#include <unistd.h>\n
int main(void) {
  struct timespec t; struct timeval v; unsigned long r[4];
  for (int i = 0; i < 50; i++) {
    clock_gettime(i % 2 ? CLOCK_MONOTONIC : CLOCK_REALTIME, &t);
    gettimeofday(&v, 0);
    if (getrandom(r, sizeof r, 0) != sizeof r) return 1;
    printf(\"%ld.%ld %ld.%ld %ld %lx\\n\", t.tv_sec, t.tv_nsec, v.tv_sec, v.tv_usec, time(0), r[3]);
  }
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  printf(\"%ld %lx\\n\", t.tv_nsec, *(unsigned long *)getauxval(AT_RANDOM));
  printf(\"%p %p %p\\n\", (void *)&t, (void *)main, sbrk(0));
  return 0;
}";
    let scene = Scene::new();
    let program = scene.compile("clocks", source, &[]);
    for outcome in agrees(&scene, &program) {
        assert_eq!(outcome.err(), "");
    }
}

#[test]
fn an_unsupported_call_is_refused_with_one_warning() {
    let source = "#define _GNU_SOURCE\n#include <errno.h>\n#include <stdio.h>\n\
#include <sys/syscall.h>\n#include <unistd.h>\n
int main(void) {
  for (int i = 0; i < 3; i++) {
    if (syscall(SYS_vmsplice, 1, 0, 0, 0) != -1) _exit(1);
    printf(\"%d\\n\", errno == ENOSYS);
  }
  return 0;
}";
    let scene = Scene::new();
    let program = scene.compile("splicer", source, &[]);
    for outcome in agrees(&scene, &program) {
        assert_eq!(outcome.out(), "1\n1\n1\n");
        let errors = outcome.err();
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(
            errors.starts_with("rcoe: ") && errors.contains("vmsplice"),
            "{errors}"
        );
    }
}

#[test]
fn strict_ends_the_run_at_an_unsupported_call() {
    let source = "#define _GNU_SOURCE\n#include <sys/syscall.h>\n#include <unistd.h>\n
int main(void) {
  write(1, \"before\\n\", 7);
  syscall(SYS_vmsplice, 1, 0, 0, 0);
  write(1, \"after\\n\", 6);
  return 0;
}";
    let scene = Scene::new();
    let program = scene.compile("splicer", source, &[]);
    for replicas in ["1", "2", "3"] {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--strict", "--", &program]);
        assert_eq!(outcome.out(), "before\n", "{}", outcome.err());
        assert_eq!(outcome.ended, Ended::Exit(125), "{}", outcome.err());
        assert!(outcome.err().contains("vmsplice"), "{}", outcome.err());
    }
}

#[test]
fn bad_pointers_are_the_kernels_errors() {
    let source =
        "#include <errno.h>\n#include <fcntl.h>\n#include <stdio.h>\n#include <sys/stat.h>\n\
#include <unistd.h>\n
int main(void) {
  struct stat s;
  char *bad[] = { (char *)8, (char *)-8, (char *)0x7ffffffff000, (char *)0x123456789000 };
  for (int i = 0; i < 4; i++) {
    printf(\"%zd %d \", write(1, bad[i], 4), errno);
    printf(\"%d %d \", open(bad[i], O_RDONLY), errno);
    printf(\"%d %d \", stat(\"/\", (struct stat *)bad[i]), errno);
    printf(\"%zd %d\\n\", read(open(\"/dev/zero\", 0), bad[i], 4), errno);
  }
  return stat(\"/\", &s);
}";
    let scene = Scene::new();
    let program = scene.compile("pointers", source, &[]);
    let native = scene.like_native("exec \"$@\"", &[&program]);
    assert_eq!(native.ended, Ended::Exit(0));
}

#[test]
fn faults_can_be_handled() {
    let source = "#include <setjmp.h>\n#include <signal.h>\n#include <stdio.h>\n
static sigjmp_buf back;
static void on(int number, siginfo_t *info, void *context) { (void)context;
  siglongjmp(back, number); }
int main(void) {
  struct sigaction a = { .sa_sigaction = on, .sa_flags = SA_SIGINFO };
  sigaction(SIGSEGV, &a, 0);
  sigaction(SIGFPE, &a, 0);
  volatile int zero = 0;
  for (volatile int i = 0; i < 6; i++) {
    int number = sigsetjmp(back, 1);
    if (number) { printf(\"caught %d\\n\", number); continue; }
    if (i % 2) *(volatile int *)(long)(16 * i) = 1; else zero = 7 / zero;
  }
  return 0;
}";
    let scene = Scene::new();
    let program = scene.compile("catcher", source, &[]);
    let native = scene.like_native("exec \"$@\"", &[&program]);
    assert_eq!(native.out().lines().count(), 6);
}

#[test]
fn scheduling_is_shown_as_the_program_has_set_it() {
    let source = "#define _GNU_SOURCE\n#include <errno.h>\n#include <pthread.h>\n\
#include <sched.h>\n#include <stdio.h>\n#include <sys/resource.h>\n#include <sys/wait.h>\n\
#include <sys/syscall.h>\n#include <time.h>\n#include <unistd.h>\n
static int count(void) { cpu_set_t s; sched_getaffinity(0, sizeof s, &s); return CPU_COUNT(&s); }
static int may_use(int cpu) {
  cpu_set_t s;
  return sched_getaffinity(0, sizeof s, &s) == 0 && CPU_ISSET(cpu, &s);
}
static int last;
static void *other(void *unused) {
  printf(\"thread %d %d\\n\", count(), may_use(last));
  return unused;
}
int main(void) {
  cpu_set_t set;
  struct timespec t, u;
  pthread_t thread;
  clockid_t clock;
  sched_getaffinity(0, sizeof set, &set);
  for (int i = 0; i < CPU_SETSIZE; i++) if (CPU_ISSET(i, &set)) last = i;
  CPU_ZERO(&set);
  printf(\"none %d %d\\n\", sched_setaffinity(0, sizeof set, &set), errno == EINVAL);
  CPU_SET(last, &set);
  printf(\"one %d %d %d\\n\", sched_setaffinity(0, sizeof set, &set), count(), may_use(last));
  printf(\"cpu %d\\n\", sched_getcpu() == last);
  printf(\"nobody %d %d\\n\", sched_setaffinity(-1, sizeof set, &set), errno == ESRCH);
  printf(\"nobody %d %d\\n\", sched_getaffinity(-1, sizeof set, &set), errno == ESRCH);
  pthread_create(&thread, 0, other, 0);
  pthread_join(thread, 0);
  fflush(stdout);
  if (fork() == 0) { printf(\"child %d %d\\n\", count(), may_use(last)); return 0; }
  wait(0);
  printf(\"own %d %d\\n\", sched_getscheduler(getpid()), sched_getscheduler(getppid()));
  printf(\"priority %d %d\\n\", getpriority(0, getpid()), getpriority(0, getppid()));
  printf(\"wrong %d %d\\n\", setpriority(3, 0, 5), errno == EINVAL);
  printf(\"io %ld \", syscall(SYS_ioprio_set, 1, 0, 3 << 13));
  printf(\"%ld %ld\\n\", syscall(SYS_ioprio_get, 1, 0), syscall(SYS_ioprio_get, 1, getppid()));
  printf(\"interval %d\\n\", sched_rr_get_interval(getpid(), &t));
  printf(\"clock %d\\n\", pthread_getcpuclockid(pthread_self(), &clock));
  printf(\"read %d %d\\n\", clock_gettime(clock, &t), clock_getres(clock, &u));
  printf(\"clock %d \", clock_getcpuclockid(getpid(), &clock));
  printf(\"%d\\n\", clock_gettime(clock, &u));
  printf(\"later %d\\n\", u.tv_sec > t.tv_sec || u.tv_nsec >= t.tv_nsec);
  return 0;
}";
    let scene = Scene::new();
    let program = scene.compile("scheduling", source, &["-pthread"]);
    scene.like_native("exec \"$@\"", &[&program]);
}

/// Of an own user and an own group, since else it would be told to change processes that are none
/// of its own.
#[test]
fn priorities_of_groups_and_users_stay_as_they_are() {
    let source = "#include <errno.h>\n#include <stdio.h>\n#include <sys/resource.h>\n\
#include <sys/wait.h>\n#include <unistd.h>\n
int main(void) {
  if (getuid() == 0 && setuid(61234)) return 2;
  if (fork() == 0) {
    setpgid(0, 0);
    for (int nice = 1; nice < 20; nice++) {
      int own = getuid() == 61234, changed = own ? setpriority(PRIO_USER, 0, nice) : -1;
      printf(\"%d %d \", changed, !own || errno == ESRCH);
      printf(\"%d %d \", setpriority(PRIO_PGRP, 0, nice), errno == ESRCH);
      printf(\"%d \", getpriority(PRIO_PGRP, 0) < 20 && getpriority(PRIO_USER, 0) < 20);
      setpriority(PRIO_PROCESS, 0, nice);
      printf(\"%d\\n\", getpriority(PRIO_PROCESS, 0) - nice);
    }
    return 0;
  }
  wait(0);
  return 0;
}";
    let scene = Scene::new();
    let program = scene.compile("priorities", source, &[]);
    let expected = "-1 1 -1 1 1 0\n".repeat(19);
    for replicas in ["1", "2", "3"] {
        let outcome = scene.rcoe(&["run", "-n", replicas, "--", &program]);
        assert_eq!(outcome.out(), expected, "{}", outcome.err());
    }
}

#[test]
fn its_status_file_speaks_of_the_program() {
    let source =
        "#define _GNU_SOURCE\n#include <fcntl.h>\n#include <pthread.h>\n#include <sched.h>\n\
#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
#include <unistd.h>\n
static void on(int number) { (void)number; }
static void *waits(void *unused) { for (;;) pause(); return unused; }
static void look(const char *path) {
  char line[4096];
  FILE *file = fopen(path, \"r\");
  while (fgets(line, sizeof line, file)) {
    if (!strncmp(line, \"Pid:\", 4)) printf(\"pid %d\\n\", atoi(line + 4) == getpid());
    if (!strncmp(line, \"Tgid:\", 5)) printf(\"tgid %d\\n\", atoi(line + 5) == getpid());
    if (!strncmp(line, \"PPid:\", 5)) printf(\"ppid %d\\n\", atoi(line + 5) == getppid());
    if (!strncmp(line, \"NSsid:\", 6)) printf(\"sid %d\\n\", atoi(line + 6) == getsid(0));
    if (!strncmp(line, \"NSpgid:\", 7)) printf(\"pgid %d\\n\", atoi(line + 7) == getpgrp());
    if (!strncmp(line, \"Threads\", 7) || !strncmp(line, \"Cpus\", 4)) fputs(line, stdout);
    if (strncmp(line, \"SigQ\", 4) && (!strncmp(line, \"Sig\", 3) || !strncmp(line, \"Shd\", 3)))
      fputs(line, stdout);
  }
  int fd = fileno(file);
  printf(\"%x %d %d\\n\", fcntl(fd, F_GETFL) & O_ACCMODE, fcntl(fd, F_GETFD), write(fd, line, 1));
  fclose(file);
}
int main(void) {
  char path[64];
  cpu_set_t all, one;
  sigset_t set;
  pthread_t thread;
  look(\"/proc/self/status\");
  signal(SIGUSR1, on);
  signal(SIGUSR2, SIG_IGN);
  signal(SIGTERM, on);
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGCHLD);
  sigprocmask(SIG_BLOCK, &set, 0);
  raise(SIGTERM);
  sched_getaffinity(0, sizeof all, &all);
  CPU_ZERO(&one);
  for (int i = CPU_SETSIZE - 1; i >= 0; i--)
    if (CPU_ISSET(i, &all) && !CPU_COUNT(&one)) CPU_SET(i, &one);
  sched_setaffinity(0, sizeof one, &one);
  pthread_create(&thread, 0, waits, 0);
  sprintf(path, \"/proc/%d/status\", getpid());
  look(path);
  return 0;
}";
    let scene = Scene::new();
    let program = scene.compile("looker", source, &["-pthread"]);
    scene.like_native("exec \"$@\"", &[&program]);
}
