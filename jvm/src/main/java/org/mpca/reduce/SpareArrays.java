package org.mpca.reduce;

import java.lang.ref.SoftReference;
import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.function.Predicate;

/**
 * Arrays that are used again: a new one of a mebibyte costs more than the sum that is made in it, in cleared memory and in pages
 * that the kernel has to find. Who gives one back must be the last who knows it. One that is never given back is garbage.
 *
 * <p>Concurrency: safe from any thread.
 */
public final class SpareArrays {
    private static final int MOST = Integer.MAX_VALUE - 8; // bytes that Java allows in an array

    private final int most;
    /** The newest first. Softly: before memory is short, they are garbage. */
    private final ArrayDeque<SoftReference<Object>> idle = new ArrayDeque<>();

    /** @param most how many lie here unused; beyond that the oldest is dropped */
    public SpareArrays(int most) {
        this.most = most;
    }

    /** An array of this length, with anything in it. */
    public byte[] take(int length) {
        byte[] found = (byte[]) poll(one -> one instanceof byte[] && ((byte[]) one).length == length);
        return found == null ? new byte[length] : found;
    }

    /** An array of at least this length, with anything in it; it serves for lengths that differ by up to `room`, too. */
    public byte[] take(int length, int room) {
        byte[] found = (byte[]) poll(one ->
                one instanceof byte[] && ((byte[]) one).length >= length && ((byte[]) one).length - length <= 2 * room);
        return found == null ? new byte[(int) Math.min((long) length + room, MOST)] : found;
    }

    public void give(byte[] array) {
        push(array);
    }

    /** An array of so many elements, with anything in it. */
    float[] takeFloats(int length) {
        float[] found = (float[]) poll(one -> one instanceof float[] && ((float[]) one).length == length);
        return found == null ? new float[length] : found;
    }

    void give(float[] array) {
        push(array);
    }

    private synchronized Object poll(Predicate<Object> fits) {
        for (Iterator<SoftReference<Object>> all = idle.iterator(); all.hasNext(); ) {
            Object one = all.next().get();
            if (one == null) {
                all.remove();
            } else if (fits.test(one)) {
                all.remove();
                return one;
            }
        }
        return null;
    }

    private synchronized void push(Object array) {
        idle.addFirst(new SoftReference<>(array));
        if (idle.size() > most) {
            idle.removeLast();
        }
    }
}
