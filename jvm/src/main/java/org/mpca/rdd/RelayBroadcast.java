package org.mpca.rdd;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.mpca.reduce.ChunkPlan;

/**
 * Broadcast by relay: of K executors, number i takes pieces i mod K from the driver and the others from their owners. So
 * each piece leaves the driver once, where Spark's torrent sends it three or four times.
 *
 * <p>Concurrency: safe from any thread; one call a broadcast at a time. Removals happen in the sweeper.
 */
final class RelayBroadcast implements Broadcaster {
    private final BlockNames names;
    private final Sweeper sweeper;
    private final int mostBytes;
    private final Map<Integer, Integer> lengths = new ConcurrentHashMap<>();

    RelayBroadcast(BlockNames names, Sweeper sweeper, int mostBytes) {
        this.names = names;
        this.sweeper = sweeper;
        this.mostBytes = mostBytes;
    }

    /** From the length alone, since who takes part is known only later: eight owners get eight pieces each. */
    private int pieceBytes(int length) {
        return Math.max(ChunkPlan.MIN_BYTES, Math.min(mostBytes, length / 64));
    }

    static int pieces(int length, int piece) {
        return (length + piece - 1) / piece;
    }

    @Override
    public void publish(int broadcast, byte[] data) {
        int piece = pieceBytes(data.length);
        for (int p = 0; p < pieces(data.length, piece); p++) {
            CheckedBlocks.put(names.pieces(broadcast) + p, data, p * piece, Math.min(piece, data.length - p * piece));
        }
        lengths.put(broadcast, data.length);
    }

    @Override
    public BroadcastSource source(int broadcast, int order, List<Peer> owners, Peer driver) {
        Integer length = lengths.get(broadcast);
        if (length == null) {
            throw new IllegalArgumentException("no such broadcast, or withdrawn: broadcast=" + broadcast);
        }
        return new Source(names, order, new ArrayList<>(owners), driver, pieceBytes(length));
    }

    @Override
    public void withdraw(int broadcast) {
        Integer length = lengths.remove(broadcast);
        if (length != null) {
            sweeper.remove(BlockNames.numbered(names.pieces(broadcast), 0, pieces(length, pieceBytes(length))), false);
        }
    }

    @Override
    public void close() {
        new ArrayList<>(lengths.keySet()).forEach(this::withdraw);
    }

    /** Who owns which pieces in one order. */
    static final class Source implements BroadcastSource {
        private static final long serialVersionUID = 1;

        final BlockNames names;
        final int order;
        final ArrayList<Peer> owners;
        final Peer driver;
        final int pieceBytes;

        Source(BlockNames names, int order, ArrayList<Peer> owners, Peer driver, int pieceBytes) {
            this.names = names;
            this.order = order;
            this.owners = owners;
            this.driver = driver;
            this.pieceBytes = pieceBytes;
        }

        @Override
        public Fetch open(Download download, Fetch.Port port) {
            return new RelayFetch(this, download, port);
        }
    }
}
