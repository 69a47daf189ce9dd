package org.mpca.reduce;

/**
 * The bytes of a shard, and how many still use them. When the last has let go, the array may be overwritten: it goes to the spare
 * ones. Who cannot say when it has finished never lets go, and the array is garbage like any other.
 *
 * <p>Concurrency: safe from any thread.
 */
public final class KeptArray {
    public final byte[] data;
    private final SpareArrays from;
    private int users = 1;

    private KeptArray(byte[] data, SpareArrays from) {
        this.data = data;
        this.from = from;
    }

    /** A spare array, with anything in it, in use by the caller. */
    public static KeptArray take(SpareArrays from, int length) {
        return new KeptArray(from.take(length), from);
    }

    /** One that is never used again. */
    public static KeptArray of(byte[] data) {
        return new KeptArray(data, null);
    }

    /** Adds a user; false: the last one has let go already, and the bytes are gone. */
    public synchronized boolean retain() {
        users += users > 0 ? 1 : 0;
        return users > 0;
    }

    /** A user has finished with the bytes. */
    public synchronized void release() {
        if (users == 0) {
            throw new IllegalStateException("let go once too often: bytes=" + data.length);
        }
        if (--users == 0 && from != null) {
            from.give(data);
        }
    }
}
