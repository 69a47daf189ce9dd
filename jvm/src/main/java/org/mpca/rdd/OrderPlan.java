package org.mpca.rdd;

import java.io.Serializable;
import java.util.Map;
import org.mpca.reduce.ChunkPlan;
import org.mpca.wire.Order;
import org.mpca.wire.ProtocolException;

/**
 * An order with what its tasks need beside it and the driver's Python need not know: addresses, which earlier order
 * froze which part, how shards are cut, and where broadcasts come from. Travels in the closure of a job; immutable.
 */
final class OrderPlan implements Serializable {
    private static final long serialVersionUID = 1;

    private final byte[] packed;
    /** Block managers of the order's executors and of those that hold a part, by executor id. */
    final Map<String, Peer> peers;

    final Peer driver;
    /** The order that froze each part of the reduce, by position; empty without a reduce. */
    final int[] partOrders;
    /** In how many ranges the shards of the reduce and of the freeze are cut: the same for all parts of one cycle. */
    private final int reduceRanges;

    private final int freezeRanges;
    private final int chunkBytes;
    /** By position in {@code Order.downloads}. */
    final BroadcastSource[] sources;

    OrderPlan(
            byte[] packed,
            Map<String, Peer> peers,
            Peer driver,
            int[] partOrders,
            int reduceRanges,
            int freezeRanges,
            int chunkBytes,
            BroadcastSource[] sources) {
        this.packed = packed;
        this.peers = peers;
        this.driver = driver;
        this.partOrders = partOrders;
        this.reduceRanges = reduceRanges;
        this.freezeRanges = freezeRanges;
        this.chunkBytes = chunkBytes;
        this.sources = sources;
    }

    /** How the shard of the reduce was cut when it was frozen. */
    ChunkPlan reduceGrid(int length) {
        return ChunkPlan.of(length, reduceRanges, chunkBytes);
    }

    /** How the shard of the freeze is cut. */
    ChunkPlan freezeGrid(int length) {
        return ChunkPlan.of(length, freezeRanges, chunkBytes);
    }

    Order order() throws ProtocolException {
        return Order.unpack(packed);
    }
}
