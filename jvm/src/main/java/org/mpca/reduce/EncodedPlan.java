package org.mpca.reduce;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/**
 * How a shard lies that is encoded chunk by chunk: each chunk of a {@link ChunkPlan} for itself, one behind the other. What is
 * encoded are differences: parameters less those of a base, and buffers as they are.
 *
 * <p>Vectors are float32, little-endian. Concurrency: immutable.
 */
public final class EncodedPlan {
    private static final SpareArrays SPARE = new SpareArrays(8);

    private final Codec codec;
    private final ChunkPlan chunks;
    private final int parameters;
    /** Byte offset of each encoded chunk, and their length at the end. */
    private final int[] offsets;

    /** @param parameters of the shard; the elements behind them are buffers */
    public EncodedPlan(Codec codec, ChunkPlan chunks, int parameters) {
        this.codec = codec;
        this.chunks = chunks;
        this.parameters = parameters;
        this.offsets = new int[chunks.chunks() + 1];
        for (int chunk = 0; chunk < chunks.chunks(); chunk++) {
            offsets[chunk + 1] = offsets[chunk] + codec.size(elements(chunk), parameters(chunk));
        }
    }

    /** The plan of a whole shard of so many bytes, which nobody takes apart. */
    public static EncodedPlan whole(Codec codec, int length, int parameters) {
        return new EncodedPlan(codec, ChunkPlan.of(length, 1, ChunkPlan.MAX_BYTES), parameters);
    }

    /** Bytes of the encoded shard. */
    public int length() {
        return offsets[offsets.length - 1];
    }

    public int chunks() {
        return chunks.chunks();
    }

    /** Byte offsets of all encoded chunks, and the length of the encoded shard at the end. */
    public int[] edges() {
        return offsets.clone();
    }

    /** Byte offset of an encoded chunk. */
    public int offset(int chunk) {
        return offsets[chunk];
    }

    /** Bytes of an encoded chunk. */
    public int length(int chunk) {
        return offsets[chunk + 1] - offsets[chunk];
    }

    /** The first element of a chunk. */
    public int first(int chunk) {
        return chunks.offset(chunk) / Float.BYTES;
    }

    public int elements(int chunk) {
        return chunks.length(chunk) / Float.BYTES;
    }

    /** How many of a chunk's elements, from the first on, are parameters. */
    public int parameters(int chunk) {
        return Math.max(0, Math.min(elements(chunk), parameters - first(chunk)));
    }

    public Codec codec() {
        return codec;
    }

    /**
     * Encodes a shard.
     *
     * @param values the shard
     * @param base of the same length
     * @param before added to the differences, if there is any: what an earlier part has left
     * @param rest takes what rounding leaves, if anybody wants it: differences less what is decoded; 0 for buffers
     * @param into takes {@link #length()} bytes
     * @throws IllegalArgumentException a difference is not finite; then `into` holds nothing of use
     */
    public void encode(byte[] values, byte[] base, float[] before, float[] rest, byte[] into) {
        ByteBuffer from = ByteBuffer.wrap(values).order(ByteOrder.LITTLE_ENDIAN);
        ByteBuffer less = ByteBuffer.wrap(base).order(ByteOrder.LITTLE_ENDIAN);
        ByteBuffer out = ByteBuffer.wrap(into);
        for (int chunk = 0; chunk < chunks(); chunk++) {
            int first = first(chunk);
            float[] some = SPARE.takeFloats(elements(chunk));
            for (int i = 0; i < some.length; i++) {
                float value = from.getFloat((first + i) * Float.BYTES);
                some[i] = i < parameters(chunk) ? value - less.getFloat((first + i) * Float.BYTES) : value;
            }
            encode(chunk, some, before, first, rest, first, out);
            SPARE.give(some);
        }
    }

    /**
     * Encodes one chunk of differences.
     *
     * @param values of the chunk, which are overwritten
     * @param before as above, from element `beforeFirst` on
     * @param rest as above, from element `restFirst` on
     * @param out takes {@link #length(int)} bytes at its position, which moves behind them
     */
    public void encode(
            int chunk, float[] values, float[] before, int beforeFirst, float[] rest, int restFirst, ByteBuffer out) {
        int elements = elements(chunk);
        int share = parameters(chunk);
        if (before != null) {
            for (int i = 0; i < share; i++) {
                values[i] += before[beforeFirst + i];
            }
        }
        int start = out.position();
        codec.encode(values, 0, elements, share, out);
        if (rest != null) {
            ByteBuffer written = out.duplicate();
            written.position(start);
            codec.decode(written, rest, restFirst, elements, share);
            for (int i = 0; i < share; i++) {
                rest[restFirst + i] = values[i] - rest[restFirst + i];
            }
            Arrays.fill(rest, restFirst + share, restFirst + elements, 0f);
        }
    }

    /**
     * Decodes a shard and adds the base.
     *
     * @param data what {@link #encode(byte[], byte[], float[], float[], byte[])} wrote
     * @param into takes the shard
     */
    public void decode(byte[] data, byte[] base, byte[] into) {
        for (int chunk = 0; chunk < chunks(); chunk++) {
            decode(chunk, ByteBuffer.wrap(data, offsets[chunk], length(chunk)), base, into, chunks.offset(chunk));
        }
    }

    /** Decodes the chunk at the position of `data`, adds the base, and writes the result from byte `at` of `into` on. */
    public void decode(int chunk, ByteBuffer data, byte[] base, byte[] into, int at) {
        ByteBuffer plus = ByteBuffer.wrap(base).order(ByteOrder.LITTLE_ENDIAN);
        ByteBuffer out = ByteBuffer.wrap(into).order(ByteOrder.LITTLE_ENDIAN);
        int first = first(chunk);
        int share = parameters(chunk);
        float[] some = SPARE.takeFloats(elements(chunk));
        codec.decode(data, some, 0, some.length, share);
        for (int i = 0; i < some.length; i++) {
            float value = i < share ? some[i] + plus.getFloat((first + i) * Float.BYTES) : some[i];
            out.putFloat(at + i * Float.BYTES, value);
        }
        SPARE.give(some);
    }
}
