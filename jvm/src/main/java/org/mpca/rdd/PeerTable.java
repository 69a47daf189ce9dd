package org.mpca.rdd;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.mpca.wire.Msgpack;
import org.mpca.wire.ProtocolException;

/**
 * Executors of a run and their addresses, by position. Orders name executors by position and bring a handle of the table; the
 * table itself is one of Spark's broadcasts, which an executor reads once and which changes only when executors come or go.
 *
 * <p>Concurrency: immutable. On an executor the newest table is kept for all tasks.
 */
final class PeerTable implements Serializable {
    private static final long serialVersionUID = 1;

    /** On an executor: the table that was read last, and which one it is. Immutable. */
    private static final class Known {
        final long id;
        final List<Peer> peers;
        final Map<String, Peer> byName;

        Known(long id, List<Peer> peers) {
            this.id = id;
            this.peers = Collections.unmodifiableList(peers);
            Map<String, Peer> names = new HashMap<>();
            peers.forEach(peer -> names.put(peer.executor, peer));
            this.byName = Collections.unmodifiableMap(names);
        }
    }

    private static volatile Known newest;

    private final Broadcast<byte[]> packed;
    private transient Known known;
    private transient Map<String, Integer> positions;

    private PeerTable(Broadcast<byte[]> packed, List<Peer> peers) {
        this.packed = packed;
        this.known = new Known(packed.id(), peers);
        this.positions = new HashMap<>();
        for (int i = 0; i < peers.size(); i++) {
            positions.put(peers.get(i).executor, i);
        }
    }

    /**
     * A table with all of `needed`; this one if it has them. What is known already keeps its sequence, so that an order that
     * names all executors names one stretch of positions; who is gone leaves.
     *
     * @param before the newest one, or null
     * @param now all executors that there are
     * @throws IllegalStateException if it is the first one, and one of its JVMs may open too few files for so many
     */
    static PeerTable with(SparkContext context, PeerTable before, Collection<Peer> needed, Map<String, Peer> now) {
        if (before != null && needed.stream().allMatch(before::has)) {
            return before;
        }
        List<Peer> peers = new ArrayList<>();
        Map<String, Integer> seen = new HashMap<>();
        if (before != null) {
            for (Peer peer : before.known.peers) {
                if (same(now.get(peer.executor), peer) && seen.putIfAbsent(peer.executor, 0) == null) {
                    peers.add(peer);
                }
            }
        }
        for (Peer peer : needed) {
            if (seen.putIfAbsent(peer.executor, 0) == null) {
                peers.add(peer);
            }
        }
        List<Object> rows = new ArrayList<>();
        for (Peer peer : peers) {
            List<Object> row = new ArrayList<>();
            Collections.addAll(row, peer.executor, peer.host, peer.port);
            rows.add(row);
        }
        Descriptors.check(peers.size(), true);
        if (before == null) { // who comes later, to a run that goes on, is warned alone
            Descriptors.refuse(peers, SparkInternals.self());
        }
        return new PeerTable(SparkInternals.broadcast(context, Msgpack.pack(rows)), peers);
    }

    private static boolean same(Peer one, Peer other) {
        return one != null && one.host.equals(other.host) && one.port == other.port;
    }

    private boolean has(Peer peer) {
        return same(known.byName.get(peer.executor), peer);
    }

    /** Frees it everywhere; on the driver. */
    void destroy() {
        packed.destroy();
    }

    /** Positions of these executors, packed. */
    List<Long> pack(Collection<String> executors) {
        List<Integer> numbers = new ArrayList<>();
        executors.forEach(executor -> numbers.add(positions.get(executor)));
        return Runs.pack(numbers, 1);
    }

    /** Reads the table where it was not read before, which may wait for the network: in a task's thread. */
    void read() throws ProtocolException {
        if (known != null) {
            return;
        }
        Known last = newest;
        if (last == null || last.id != packed.id()) {
            List<Peer> peers = new ArrayList<>();
            for (Object one : (List<?>) Msgpack.unpack(packed.value())) {
                List<?> row = (List<?>) one;
                peers.add(new Peer((String) row.get(0), (String) row.get(1), ((Number) row.get(2)).intValue()));
            }
            last = new Known(packed.id(), peers);
            newest = last;
            Descriptors.check(peers.size(), false);
        }
        known = last;
    }

    /** The peers at packed positions, after {@link #read}. */
    List<Peer> unpack(List<?> runs) {
        List<Peer> some = new ArrayList<>();
        Runs.unpack(runs, 1).forEach(position -> some.add(known.peers.get(position)));
        return some;
    }

    /** All of them by executor, after {@link #read}. */
    Map<String, Peer> byName() {
        return known.byName;
    }
}
