package org.mpca.rdd;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;
import java.util.zip.CRC32;
import org.mpca.reduce.KeptArray;

/**
 * The states that one process takes differences from: the two newest versions of each shard, by a rule that driver and executors
 * share, so that nobody is told to forget. The twin of {@code mpca/algorithm/bases.py}. One object belongs to one attempt of the
 * driver.
 *
 * <p>Concurrency: safe from any thread.
 */
final class HeldBases {
    static final int KEPT = 2;

    /** Names a base of an attempt; the same name means the same bytes. Immutable. */
    static final class Name {
        final int shard;
        final long version;
        final long crc;

        Name(int shard, long version, long crc) {
            this.shard = shard;
            this.version = version;
            this.crc = crc;
        }

        /** The name that these bytes have. */
        static Name of(int shard, long version, byte[] vector) {
            return of(shard, version, vector, vector.length);
        }

        static Name of(int shard, long version, KeptArray vector) {
            return of(shard, version, vector.data, vector.length);
        }

        private static Name of(int shard, long version, byte[] vector, int length) {
            CRC32 crc = new CRC32();
            crc.update(vector, 0, length);
            return new Name(shard, version, crc.getValue());
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Name && toString().equals(other.toString());
        }

        @Override
        public int hashCode() {
            return (int) (31 * crc + version);
        }

        @Override
        public String toString() {
            return "base of shard " + shard + ", version " + version + ", crc " + crc;
        }
    }

    private static final class Held {
        final Name name;
        final KeptArray vector;

        Held(Name name, KeptArray vector) {
            this.name = name;
            this.vector = vector;
        }
    }

    private final BiConsumer<Name, KeptArray> dropped;
    /** By shard, the newest version last. */
    private final Map<Integer, List<Held>> shards = new HashMap<>();

    /** @param dropped lets go of the array of a base that is held no more; must not block */
    HeldBases(BiConsumer<Name, KeptArray> dropped) {
        this.dropped = dropped;
    }

    /**
     * Takes a base in; its oldest version beyond two is dropped.
     *
     * @param vector has one user more from now on, as long as it is held
     * @return whether it is held now; false: it is older than two others
     */
    synchronized boolean hold(Name name, KeptArray vector) {
        List<Held> mine = shards.computeIfAbsent(name.shard, key -> new ArrayList<>());
        if (holds(name)) {
            return true;
        }
        int at = mine.size();
        while (at > 0 && mine.get(at - 1).name.version > name.version) {
            at--;
        }
        if (mine.size() - at >= KEPT || !vector.retain()) {
            return false;
        }
        mine.add(at, new Held(name, vector));
        while (mine.size() > KEPT) {
            drop(mine.remove(0));
        }
        return true;
    }

    synchronized boolean holds(Name name) {
        return shards.getOrDefault(name.shard, new ArrayList<>()).stream().anyMatch(one -> one.name.equals(name));
    }

    /** Whether a base of this shard is held. */
    synchronized boolean holdsAny(int shard) {
        return !shards.getOrDefault(shard, new ArrayList<>()).isEmpty();
    }

    /** The bytes of a base, of which the caller is one more user; null: it is not held. */
    synchronized KeptArray get(Name name) {
        for (Held one : shards.getOrDefault(name.shard, new ArrayList<>())) {
            if (one.name.equals(name) && one.vector.retain()) {
                return one.vector;
            }
        }
        return null;
    }

    /** The model is cut anew, or the attempt is over. */
    synchronized void clear() {
        shards.values().forEach(mine -> mine.forEach(this::drop));
        shards.clear();
    }

    private void drop(Held held) {
        dropped.accept(held.name, held.vector);
    }
}
