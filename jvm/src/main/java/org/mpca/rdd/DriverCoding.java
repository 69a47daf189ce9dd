package org.mpca.rdd;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.mpca.reduce.ChunkPlan;
import org.mpca.reduce.Codec;
import org.mpca.reduce.EncodedPlan;
import org.mpca.reduce.KeptArray;
import org.mpca.reduce.SpareArrays;
import org.mpca.wire.Order;

/**
 * The driver's end of a run's codec: encodes broadcasts, decodes sums, and holds the bases, which executors that lack one fetch
 * here in full. Which base is named for what is decided in Python ({@code mpca/driver/coding.py}).
 *
 * <p>Concurrency: safe from any thread. Removals happen in the sweeper.
 */
final class DriverCoding {
    private final BlockNames names;
    private final HeldBases bases;
    private final SpareArrays broadcasts = new SpareArrays(2);
    /** Decoded chunks of sums, one at a time; chunks are of two lengths. */
    private final SpareArrays chunks = new SpareArrays(2);
    /** By cycle, the base that its parts are differences from. Guarded by this object. */
    private final TreeMap<Integer, KeptArray> ofCycles = new TreeMap<>();

    DriverCoding(BlockNames names, Sweeper sweeper) {
        this.names = names;
        this.bases = new HeldBases((name, vector) -> sweeper.remove(blocks(name, vector), vector::release));
    }

    private List<String> blocks(HeldBases.Name name, KeptArray vector) {
        return Pieces.names(names.base(name.shard, name.version, name.crc), vector.length);
    }

    /** What goes out, and the name of what comes out of it everywhere. */
    static final class Outgoing {
        final KeptArray data;
        final HeldBases.Name result;

        Outgoing(KeptArray data, HeldBases.Name result) {
            this.data = data;
            this.result = result;
        }
    }

    /** A joint state that goes out as float32, and is the first base of its shard. */
    HeldBases.Name first(int shard, long version, KeptArray vector) {
        HeldBases.Name name = HeldBases.Name.of(shard, version, vector);
        hold(name, vector);
        return name;
    }

    /**
     * Encodes a joint state as a difference from a base.
     *
     * @param base of the same shard
     * @param vector becomes what executors decode; one user of it is let go
     * @param makesBase whether that is the newest base
     * @throws IllegalArgumentException a difference is not finite
     * @throws IllegalStateException the base is not held
     */
    Outgoing encode(
            HeldBases.Name base, Codec codec, int parameters, long version, KeptArray vector, boolean makesBase) {
        KeptArray from = need(base);
        try {
            EncodedPlan plan = EncodedPlan.whole(codec, vector.length, parameters);
            KeptArray data = KeptArray.takeRoomy(broadcasts, plan.length());
            plan.encode(vector.data, from.data, null, null, data.data);
            plan.decode(data.data, from.data, vector.data);
            HeldBases.Name result = HeldBases.Name.of(base.shard, version, vector);
            if (makesBase) {
                hold(result, vector);
            }
            return new Outgoing(data, result);
        } finally {
            from.release();
            vector.release();
        }
    }

    private void hold(HeldBases.Name name, KeptArray vector) {
        if (bases.holds(name)) {
            return;
        }
        Pieces.put(names.base(name.shard, name.version, name.crc), vector.data, vector.length);
        bases.hold(name, vector);
    }

    /** The plan of an encoded sum. */
    static EncodedPlan sums(Order.Reduce reduce, ChunkPlan grid) {
        return new EncodedPlan(Codec.named(reduce.coded.codec).ofSums(), grid, reduce.coded.parameters);
    }

    /** Decodes chunk after chunk of one sum. */
    final class Sum {
        final EncodedPlan plan;
        private final KeptArray base;

        private Sum(Order.Reduce reduce, ChunkPlan grid) {
            this.plan = sums(reduce, grid);
            KeptArray frozen = frozenAgainst(reduce.cycle);
            this.base = frozen != null ? frozen : need(Coding.name(reduce.shard, reduce.coded));
        }

        /** Writes the chunk of the joint mean that an encoded chunk of the sum stands for; how many bytes that is. */
        long write(int chunk, ByteBuffer encoded, FileChannel to, long position) throws IOException {
            byte[] values = chunks.take(plan.elements(chunk) * Float.BYTES);
            plan.decode(chunk, encoded.duplicate(), base.data, values, 0);
            long written = Channels.write(to, position, ByteBuffer.wrap(values));
            chunks.give(values);
            return written;
        }

        void end() {
            base.release();
        }
    }

    Sum sum(Order.Reduce reduce, ChunkPlan grid) {
        return new Sum(reduce, grid);
    }

    /** A cycle is frozen against this base: it stays in use until the cycle is forgotten, whatever versions come meanwhile. */
    synchronized void frozen(int cycle, HeldBases.Name base) {
        if (!ofCycles.containsKey(cycle)) {
            ofCycles.put(cycle, need(base));
        }
    }

    /** No sum of this cycle and those before will be ordered. */
    synchronized void forget(int cycle) {
        Map<Integer, KeptArray> old = ofCycles.headMap(cycle, true);
        old.values().forEach(KeptArray::release);
        old.clear();
    }

    private synchronized KeptArray frozenAgainst(int cycle) {
        KeptArray base = ofCycles.get(cycle);
        return base != null && base.retain() ? base : null;
    }

    private KeptArray need(HeldBases.Name base) {
        KeptArray vector = bases.get(base);
        if (vector == null) {
            throw new IllegalStateException("the driver does not hold the " + base);
        }
        return vector;
    }

    /** The model is cut anew, or the run ends. */
    void clear() {
        forget(Integer.MAX_VALUE);
        bases.clear();
    }
}
