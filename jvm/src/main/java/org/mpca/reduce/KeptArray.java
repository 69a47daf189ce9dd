package org.mpca.reduce;

/**
 * The bytes of a shard, and how many still use them. When the last has let go, the array may be overwritten: it goes to the spare
 * ones. Who cannot say when it has finished never lets go, and the array is garbage like any other.
 *
 * <p>Concurrency: safe from any thread.
 */
public final class KeptArray {
    /** More than two shards differ by (`ShardPlan.equal` of {@code mpca/algorithm/sharding.py}), of up to 32 shards. */
    private static final int ROOM = 8192;

    public final byte[] data;
    /** So many of the array's bytes, from its start on, are the shard's: all, but for {@link #takeRoomy}. */
    public final int length;

    private final SpareArrays from;
    private int users = 1;

    private KeptArray(byte[] data, int length, SpareArrays from) {
        this.data = data;
        this.length = length;
        this.from = from;
    }

    /** A spare array, with anything in it, in use by the caller. */
    public static KeptArray take(SpareArrays from, int length) {
        return new KeptArray(from.take(length), length, from);
    }

    /**
     * The same, with some bytes behind that are nobody's: one array then serves all shards in turn, of which the last is a little
     * smaller.
     */
    public static KeptArray takeRoomy(SpareArrays from, int length) {
        return new KeptArray(from.take(length, ROOM), length, from);
    }

    /** One that is never used again. */
    public static KeptArray of(byte[] data) {
        return new KeptArray(data, data.length, null);
    }

    /** Adds a user; false: the last one has let go already, and the bytes are gone. */
    public synchronized boolean retain() {
        users += users > 0 ? 1 : 0;
        return users > 0;
    }

    /** A user has finished with the bytes. */
    public synchronized void release() {
        if (users == 0) {
            throw new IllegalStateException("let go once too often: bytes=" + length);
        }
        if (--users == 0 && from != null) {
            from.give(data);
        }
    }
}
