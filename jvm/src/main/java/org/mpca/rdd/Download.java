package org.mpca.rdd;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.mpca.reduce.Codec;
import org.mpca.reduce.EncodedPlan;
import org.mpca.reduce.KeptArray;
import org.mpca.reduce.SpareArrays;
import org.mpca.wire.Order;

/**
 * One broadcast on one executor, from its first mention by an order until it is forgotten.
 *
 * <p>Concurrency: owned by one thread, mpca-download; the sweeper lets it go. Network threads copy pieces into the array of
 * {@link #data}, each piece to its own offset; two of them that copy the same piece copy the same bytes, since its checksum is
 * right. Each request is a user of the array until all that it asked for has come; one that fails is a user for good.
 */
final class Download {
    /** What the newest order that named it says: where from, and for which agents of this executor. Immutable. */
    static final class Attempt {
        final int order;
        final BroadcastSource source;
        final Peer driver;
        final List<Order.AgentRef> agents;

        Attempt(int order, BroadcastSource source, Peer driver, List<Order.AgentRef> agents) {
            this.order = order;
            this.source = source;
            this.driver = driver;
            this.agents = agents;
        }
    }

    /** Shards are of two lengths where elements do not divide evenly: one of each, and one that comes back late. */
    private static final SpareArrays SPARE = new SpareArrays(3);

    final String run;
    final int term;
    final int broadcast;
    final int shard;
    final long version;
    final String mode;
    /** Bytes that travel. */
    final int length;

    final double alpha;
    /** What the driver says of its codec; both as in the order. */
    final Order.Coded coded;

    final long result;
    /** Whether what comes out of it is a base. */
    final boolean makesBase;
    /** What agents get of an encoded broadcast, once it is decoded. The download is one of its users. */
    private KeptArray decoded;

    /** The newest. */
    Attempt attempt;
    /** When its first attempt began, in seconds of the driver's clock; null: not yet. */
    Double start;
    /** The source of which a fetch was made last. */
    BroadcastSource opened;
    /** Spark's own broadcast is being read, by this attempt or an earlier one. */
    boolean reading;

    private KeptArray data;
    private final BitSet here = new BitSet();
    private boolean whole;
    private long bytesIn;
    private long bytesFromDriver;
    private final Set<String> offered = new HashSet<>();
    /** Names of pieces that are stored here for others. */
    private final List<String> stored = new ArrayList<>();

    Download(Order order, Order.Download what) {
        this.run = order.run;
        this.term = order.term;
        this.broadcast = (int) what.broadcast;
        this.shard = what.shard;
        this.version = what.version;
        this.mode = what.mode;
        this.length = what.coded != null
                ? EncodedPlan.whole(Codec.named(what.coded.codec), what.length, what.coded.parameters)
                        .length()
                : what.length;
        this.alpha = what.alpha;
        this.coded = what.coded;
        this.result = what.result;
        this.makesBase = what.makesBase();
    }

    /** The array that pieces are copied into; each is there when {@link #here} says so. The download is one of its users. */
    KeptArray data() {
        if (data == null) {
            data = KeptArray.take(SPARE, length);
        }
        return data;
    }

    /** What agents get; null: it is not decoded yet. */
    KeptArray vector() {
        return coded != null ? decoded : data();
    }

    /** Takes what came out of the codec; the download becomes a user in the caller's place. */
    void decoded(KeptArray vector) {
        decoded = vector;
    }

    /** It was forgotten, and its blocks are gone. Called once. */
    void letGo() {
        if (data != null) {
            data.release();
        }
        if (decoded != null) {
            decoded.release();
        }
    }

    /** Takes the whole at once. */
    void adopt(byte[] all, long fromDriver) {
        data = KeptArray.of(all);
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

    /** A piece is stored here for others, by this attempt or an earlier one. */
    void stored(String name) {
        stored.add(name);
    }

    List<String> stored() {
        return stored;
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
