package org.mpca.reduce;

/**
 * How one shard is cut into chunks. Not for who sums which of them: that is {@code RangesStep}.
 *
 * <p>For K executors there are K ranges, of the elements floor(e n / K) .. floor((e + 1) n / K); a range is cut into chunks
 * of equal size but for its last. A chunk is what travels and what is summed at a time: small enough that sums start
 * early (eight a range or more where the shard allows), large enough that the calls do not count.
 *
 * <p>Concurrency: immutable.
 */
public final class ChunkPlan {
    /**
     * Measured with 200 MiB and K = 4: larger chunks, of 512 KiB and 1 MiB, cost executors at most a tenth less CPU, which noise
     * may be, and the driver's JVM, which takes sums in them, 30 to 50 % more and 0.3 models more memory.
     */
    public static final int DEFAULT_BYTES = 256 << 10;

    public static final int MIN_BYTES = 16 << 10;
    public static final int MAX_BYTES = 1 << 20;
    private static final int ELEMENT = 4;
    private static final int CHUNKS_A_RANGE = 8;

    private final int length;
    /** Byte offset of each chunk, and the length of the shard at the end. */
    private final int[] offsets;

    private ChunkPlan(int length, int[] offsets) {
        this.length = length;
        this.offsets = offsets;
    }

    /** The plan with chunks of the default size. */
    public static ChunkPlan of(int length, int executors) {
        return of(length, executors, DEFAULT_BYTES);
    }

    /**
     * @param length bytes of the shard, whole float32 elements
     * @param executors how many sum
     * @param wanted bytes of a chunk, made smaller where a range would get fewer than eight
     */
    public static ChunkPlan of(int length, int executors, int wanted) {
        if (length < 0 || length % ELEMENT != 0) {
            throw new IllegalArgumentException("shard is not whole float32 elements: length=" + length);
        }
        if (executors < 1) {
            throw new IllegalArgumentException("nobody sums: executors=" + executors);
        }
        int chunk = chunkBytes(length, executors, wanted);
        long elements = length / ELEMENT;
        int[] firsts = new int[executors + 1];
        for (int e = 0; e < executors; e++) {
            int range = edge(elements, e + 1, executors) - edge(elements, e, executors);
            firsts[e + 1] = firsts[e] + (range + chunk - 1) / chunk;
        }
        int[] offsets = new int[firsts[executors] + 1];
        for (int e = 0; e < executors; e++) {
            for (int c = firsts[e]; c < firsts[e + 1]; c++) {
                offsets[c] = edge(elements, e, executors) + (c - firsts[e]) * chunk;
            }
        }
        offsets[firsts[executors]] = length;
        return new ChunkPlan(length, offsets);
    }

    private static int chunkBytes(int length, int executors, int wanted) {
        // Of the longest range, and upwards: less would leave a ninth chunk, of a few elements.
        int eighth = upwards(upwards(length / ELEMENT, executors), CHUNKS_A_RANGE) * ELEMENT;
        int most = Math.max(MIN_BYTES, Math.min(MAX_BYTES, wanted / ELEMENT * ELEMENT));
        return Math.max(MIN_BYTES, Math.min(most, eighth));
    }

    private static int upwards(int all, int parts) {
        return all / parts + (all % parts == 0 ? 0 : 1);
    }

    /** Byte offset of an executor's range. */
    private static int edge(long elements, int executor, int executors) {
        return (int) (elements * executor / executors * ELEMENT);
    }

    public int length() {
        return length;
    }

    public int chunks() {
        return offsets.length - 1;
    }

    /** Byte offsets of all chunks, and the length of the shard at the end. */
    public int[] edges() {
        return offsets.clone();
    }

    /** Byte offset of a chunk in the shard. */
    public int offset(int chunk) {
        return offsets[chunk];
    }

    /** Bytes of a chunk. */
    public int length(int chunk) {
        return offsets[chunk + 1] - offsets[chunk];
    }
}
