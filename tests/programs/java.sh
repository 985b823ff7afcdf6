# OpenJDK: compiles and runs a program of several threads.
. "$SCENES/prelude.sh"
cat >Main.java <<'J'
import java.nio.file.*;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;

public class Main {
    static String hash(int n) throws Exception {
        byte[] h = ("" + n).getBytes();
        for (int i = 0; i < 3000; i++) h = MessageDigest.getInstance("SHA-256").digest(h);
        return HexFormat.of().formatHex(h, 0, 8);
    }
    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        List<Future<String>> found = new ArrayList<>();
        for (int i = 0; i < 8; i++) { int n = i; found.add(pool.submit(() -> hash(n))); }
        for (Future<String> f : found) System.out.println(f.get());
        pool.shutdown();
        System.out.println(IntStream.range(0, 100000).parallel().mapToLong(i -> (long) i * i).sum());
        int[] counter = {0};
        Thread[] threads = new Thread[4];
        for (int i = 0; i < 4; i++) {
            threads[i] = new Thread(() -> { for (int j = 0; j < 1000; j++) synchronized (counter) { counter[0]++; } });
            threads[i].start();
        }
        for (Thread t : threads) t.join();
        System.out.println(counter[0]);
        List<byte[]> garbage = new ArrayList<>();
        for (int i = 0; i < 200; i++) { garbage.add(new byte[1 << 20]); if (i % 10 == 9) garbage.clear(); }
        Files.writeString(Path.of("out/file"), "written\n");
        Process child = new ProcessBuilder("sh", "-c", "echo child; exit 3").start();
        System.out.print(new String(child.getInputStream().readAllBytes()));
        System.out.println(child.waitFor());
    }
}
J
"${run[@]}" javac -J-Xmx256m -d . Main.java
"${run[@]}" java -Xmx256m -cp . Main
