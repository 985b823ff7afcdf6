import java.util.HashMap;
import java.util.zip.Deflater;

/** Packs text that it makes, for ever; each round must have the result of the first one. */
class Work {
    static int round() {
        var counts = new HashMap<Integer, String>();
        byte[] text = new byte[1 << 18];
        byte[] packed = new byte[1 << 19];
        int seed = 1;
        for (int i = 0; i < text.length; i++) {
            seed = (int) (seed * 48271L % 2147483647L);
            text[i] = (byte) (seed & 31);
            if (i % 64 == 0) {
                counts.put(seed % 997, "n" + seed);
            }
        }
        var deflater = new Deflater(9);
        deflater.setInput(text);
        deflater.finish();
        int length = deflater.deflate(packed);
        deflater.end();
        return length + counts.size();
    }

    public static void main(String[] arguments) {
        int first = round();
        while (round() == first) {
        }
        System.out.println("a round had another result");
        System.exit(1);
    }
}
