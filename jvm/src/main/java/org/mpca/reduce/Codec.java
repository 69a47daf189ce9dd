package org.mpca.reduce;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Codecs for what travels in place of float32. The twin of {@code mpca/algorithm/codecs.py}, which has the formats, the arithmetic
 * and the edge cases; both write the bytes of {@code tests/golden/wire/codecs.json}.
 *
 * <p>Concurrency: immutable; any thread.
 */
public enum Codec {
    /** The upper half of a float32, rounded half to even. */
    BF16("bf16", 0),
    /** Codes in -127..127, one scale a block. */
    INT8("int8", 127),
    /** Codes in -7..7, two a byte, one scale a block. */
    INT4("int4", 7);

    /** Parameters that share a scale. */
    public static final int BLOCK = 256;

    private static final int SHORT = 0x7F; // bits of a float32 that a scale does not have

    private final String text;
    /** The largest code. */
    private final int most;

    Codec(String text, int most) {
        this.text = text;
        this.most = most;
    }

    /** The codec of this name, as in the key {@code cluster.codec}. */
    public static Codec named(String text) {
        for (Codec one : values()) {
            if (one.text.equals(text)) {
                return one;
            }
        }
        throw new IllegalArgumentException("no such codec: " + text);
    }

    /** The codec of a sum of what this one wrote. */
    public Codec ofSums() {
        return this == BF16 ? BF16 : INT8;
    }

    /**
     * Bytes of an encoded chunk.
     *
     * @param elements of the chunk
     * @param parameters how many of them, from the first on, are parameters; the others are buffers
     */
    public int size(int elements, int parameters) {
        if (parameters < 0 || parameters > elements) {
            throw new IllegalArgumentException(
                    "parameters must lie in 0..n: parameters=" + parameters + ", n=" + elements);
        }
        int buffers = Float.BYTES * (elements - parameters);
        switch (this) {
            case BF16:
                return Short.BYTES * parameters + buffers;
            case INT8:
                return Float.BYTES * blocks(parameters) + parameters + buffers;
            default:
                return Float.BYTES * blocks(parameters) + (parameters + 1) / 2 + buffers;
        }
    }

    /**
     * Writes a chunk.
     *
     * @param values has the chunk's elements from {@code from} on
     * @param out a heap buffer; takes {@link #size} bytes at its position, which moves behind them
     * @throws IllegalArgumentException a parameter is not finite; then {@code out} holds nothing of use
     */
    public void encode(float[] values, int from, int elements, int parameters, ByteBuffer out) {
        int end = out.position() + size(elements, parameters);
        byte[] bytes = out.array();
        int start = out.arrayOffset() + out.position();
        int exact = start + size(parameters, parameters);
        ByteBuffer numbers = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        int codes = start + Float.BYTES * blocks(parameters);
        for (int first = 0; first < parameters; first += BLOCK) {
            int count = Math.min(BLOCK, parameters - first);
            float largest = largest(values, from + first, count);
            if (this == BF16) {
                toBf16(values, from + first, count, bytes, start + Short.BYTES * first);
                continue;
            }
            float scale = scale(largest);
            numbers.putFloat(start + first / BLOCK * Float.BYTES, scale);
            if (this == INT8) {
                toInt8(values, from + first, count, scale, bytes, codes + first);
            } else {
                toInt4(values, from + first, count, scale, bytes, codes + first / 2);
            }
        }
        for (int i = parameters; i < elements; i++) {
            numbers.putFloat(exact + (i - parameters) * Float.BYTES, values[from + i]);
        }
        out.position(end);
    }

    /**
     * Reads a chunk.
     *
     * @param in has {@link #size} bytes at its position, which moves behind them
     * @param values takes the chunk's elements from {@code from} on
     */
    public void decode(ByteBuffer in, float[] values, int from, int elements, int parameters) {
        int length = size(elements, parameters);
        byte[] bytes;
        int start;
        if (in.hasArray()) {
            bytes = in.array();
            start = in.arrayOffset() + in.position();
        } else {
            bytes = new byte[length];
            start = 0;
            in.duplicate().get(bytes);
        }
        ByteBuffer numbers = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        int codes = start + Float.BYTES * blocks(parameters);
        for (int first = 0; first < parameters; first += BLOCK) {
            int count = Math.min(BLOCK, parameters - first);
            if (this == BF16) {
                ofBf16(bytes, start + Short.BYTES * first, values, from + first, count);
                continue;
            }
            float scale = numbers.getFloat(start + first / BLOCK * Float.BYTES);
            if (this == INT8) {
                ofInt8(bytes, codes + first, scale, values, from + first, count);
            } else {
                ofInt4(bytes, codes + first / 2, scale, values, from + first, count);
            }
        }
        int exact = start + size(parameters, parameters);
        for (int i = parameters; i < elements; i++) {
            values[from + i] = numbers.getFloat(exact + (i - parameters) * Float.BYTES);
        }
        in.position(in.position() + length);
    }

    private static int blocks(int parameters) {
        return (parameters + BLOCK - 1) / BLOCK;
    }

    /** The largest magnitude. Of floats without their sign the bits have the same order, NaN and infinity last. */
    private static float largest(float[] values, int from, int count) {
        int most = 0;
        for (int i = from; i < from + count; i++) {
            most = Math.max(most, Float.floatToRawIntBits(values[i]) & Integer.MAX_VALUE);
        }
        float largest = Float.intBitsToFloat(most);
        if (!(largest <= Float.MAX_VALUE)) {
            throw new IllegalArgumentException("not finite: " + largest);
        }
        return largest;
    }

    /** The largest magnitude over the largest code, rounded up to 17 bits so that every product with a code is exact. */
    private float scale(float largest) {
        int bits = Float.floatToRawIntBits(largest / most) + SHORT & ~SHORT;
        if (Float.isInfinite(Float.intBitsToFloat(bits) * most)) {
            bits -= SHORT + 1;
        }
        float scale = Float.intBitsToFloat(bits);
        return scale < Float.MIN_NORMAL ? 0f : scale;
    }

    // One loop for each codec, over arrays: the compiler makes little of one that asks what it is, or of a buffer's
    // puts.

    private static void toBf16(float[] values, int from, int count, byte[] bytes, int at) {
        for (int i = 0; i < count; i++) {
            int bits = Float.floatToRawIntBits(values[from + i]);
            int upper = bits + 0x7FFF + (bits >>> 16 & 1) >>> 16;
            upper -= (upper & 0x7FFF) == 0x7F80 ? 1 : 0; // no further than to the largest number
            bytes[at + 2 * i] = (byte) upper;
            bytes[at + 2 * i + 1] = (byte) (upper >>> 8);
        }
    }

    private static void toInt8(float[] values, int from, int count, float scale, byte[] bytes, int at) {
        double divisor = divisor(scale);
        for (int i = 0; i < count; i++) {
            int code = code(values[from + i] / divisor);
            bytes[at + i] = (byte) code;
        }
    }

    private static void toInt4(float[] values, int from, int count, float scale, byte[] bytes, int at) {
        double divisor = divisor(scale);
        for (int i = 0; i < count; i += 2) {
            int low = code(values[from + i] / divisor);
            int high = i + 1 < count ? code(values[from + i + 1] / divisor) : 0;
            bytes[at + i / 2] = (byte) (low & 15 | high << 4);
        }
    }

    private static void ofBf16(byte[] bytes, int at, float[] values, int from, int count) {
        for (int i = 0; i < count; i++) {
            values[from + i] = Float.intBitsToFloat((bytes[at + 2 * i] & 0xFF | bytes[at + 2 * i + 1] << 8) << 16);
        }
    }

    private static void ofInt8(byte[] bytes, int at, float scale, float[] values, int from, int count) {
        for (int i = 0; i < count; i++) {
            values[from + i] = bytes[at + i] * scale;
        }
    }

    private static void ofInt4(byte[] bytes, int at, float scale, float[] values, int from, int count) {
        for (int i = 0; i < count; i += 2) {
            int pair = bytes[at + i / 2];
            values[from + i] = (pair << 28 >> 28) * scale;
            if (i + 1 < count) {
                values[from + i + 1] = (pair >> 4) * scale;
            }
        }
    }

    private static double divisor(float scale) {
        return scale > 0f ? scale : Double.POSITIVE_INFINITY;
    }

    /** {@code Math.rint} of a number of few bits, half to even: behind this sum a double has no bits for a fraction. */
    private static int code(double quotient) {
        return (byte) Double.doubleToRawLongBits(quotient + 0x1.8p52);
    }
}
