package org.mpca.rdd;

import java.util.BitSet;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.mpca.wire.Order;

/**
 * One broadcast on one executor, from its first mention by an order until it is forgotten.
 *
 * <p>Concurrency: owned by one thread, mpca-download. Network threads copy pieces into the array of {@link #data}, each piece
 * to its own offset; two of them that copy the same piece copy the same bytes, since its checksum is right.
 */
final class Download {
    /** What the newest order that named it says: where from, and for which agents of this executor. Immutable. */
    static final class Attempt {
        final int order;
        final BroadcastSource source;
        final List<Order.AgentRef> agents;

        Attempt(int order, BroadcastSource source, List<Order.AgentRef> agents) {
            this.order = order;
            this.source = source;
            this.agents = agents;
        }
    }

    final String run;
    final int term;
    final int broadcast;
    final int shard;
    final long version;
    final String mode;
    final int length;
    final double alpha;

    /** The newest. */
    Attempt attempt;
    /** When its first attempt began, in seconds of the driver's clock; null: not yet. */
    Double start;
    /** Spark's own broadcast is being read, by this attempt or an earlier one. */
    boolean reading;

    private byte[] data;
    private final BitSet here = new BitSet();
    private boolean whole;
    private long bytesIn;
    private long bytesFromDriver;
    private final Set<String> offered = new HashSet<>();

    Download(Order order, Order.Download what) {
        this.run = order.run;
        this.term = order.term;
        this.broadcast = (int) what.broadcast;
        this.shard = what.shard;
        this.version = what.version;
        this.mode = what.mode;
        this.length = what.length;
        this.alpha = what.alpha;
    }

    /** The array that pieces are copied into; each is there when {@link #here} says so. */
    byte[] data() {
        if (data == null) {
            data = new byte[length];
        }
        return data;
    }

    /** Takes the whole at once. */
    void adopt(byte[] all, long fromDriver) {
        data = all;
        bytesIn = all.length;
        bytesFromDriver = fromDriver;
        whole = true;
    }

    /** Whether it was taken {@link #adopt at once}. */
    boolean isWhole() {
        return whole;
    }

    /** A piece was copied in; false if it had been there already. */
    boolean arrived(int piece, int bytes, boolean fromDriver) {
        if (here.get(piece)) {
            return false;
        }
        here.set(piece);
        bytesIn += bytes;
        bytesFromDriver += fromDriver ? bytes : 0;
        return true;
    }

    /** Pieces that are here. */
    BitSet here() {
        return here;
    }

    /** True once for each agent and incarnation. */
    boolean offerOnce(Order.AgentRef agent) {
        return offered.add(agent.agent + "/" + agent.incarnation);
    }

    void takeBackOffer(Order.AgentRef agent) {
        offered.remove(agent.agent + "/" + agent.incarnation);
    }

    /** Bytes received, counted once: the first of an executor's acknowledgements carries them. */
    long takeBytesIn() {
        long bytes = bytesIn;
        bytesIn = 0;
        return bytes;
    }

    /** Those of them that the driver sent itself, counted once as well. */
    long takeBytesFromDriver() {
        long bytes = bytesFromDriver;
        bytesFromDriver = 0;
        return bytes;
    }
}
