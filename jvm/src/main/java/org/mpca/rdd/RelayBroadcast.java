package org.mpca.rdd;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.mpca.reduce.ChunkPlan;
import org.mpca.reduce.KeptArray;
import org.mpca.reduce.SpareArrays;

/**
 * Broadcast by relay: of K executors, number i takes pieces i mod K from the driver and the others from their owners. So
 * each piece leaves the driver once, where Spark's torrent sends it three or four times. An owner of m pieces sends them K - 1
 * times: all are of one size, and of one number for each of K owners, so that none sends more than the broadcast once.
 *
 * <p>Concurrency: safe from any thread; one call a broadcast at a time. Removals happen in the sweeper.
 */
final class RelayBroadcast implements Broadcaster {
    private static final int PIECES = 8;

    private final BlockNames names;
    private final Sweeper sweeper;
    private final int mostBytes;
    private final Map<Integer, Cut> cuts = new ConcurrentHashMap<>();
    /** One is published while the one before is on its way, or becomes a base; the next one gets its array, or an older base's. */
    private final SpareArrays spare = new SpareArrays(1);

    RelayBroadcast(BlockNames names, Sweeper sweeper, int mostBytes) {
        this.names = names;
        this.sweeper = sweeper;
        this.mostBytes = mostBytes;
    }

    /** How a broadcast is cut; for good, so that what an earlier attempt brought stays of use. Immutable. */
    private static final class Cut {
        final KeptArray data;
        final int pieceBytes;

        Cut(KeptArray data, int pieceBytes) {
            this.data = data;
            this.pieceBytes = pieceBytes;
        }
    }

    /**
     * Each owner gets as many pieces as any other: eight, or more where they would be larger than `most` bytes, or fewer where
     * they would be smaller than {@link ChunkPlan#MIN_BYTES}. Of a broadcast below that, for each owner, some own nothing.
     */
    static int pieceBytes(int length, int owners, int most) {
        int share = pieces(length, owners);
        int each = Math.max(Math.max(1, Math.min(PIECES, share / ChunkPlan.MIN_BYTES)), pieces(share, most));
        return Math.max(ChunkPlan.MIN_BYTES, pieces(share, each));
    }

    static int pieces(int length, int piece) {
        return (int) (((long) length + piece - 1) / piece);
    }

    @Override
    public KeptArray take(int length) {
        return KeptArray.takeRoomy(spare, length);
    }

    @Override
    public void publish(int broadcast, KeptArray kept, int owners) {
        int piece = pieceBytes(kept.length, owners, mostBytes);
        for (int p = 0; p < pieces(kept.length, piece); p++) {
            int at = p * piece;
            CheckedBlocks.put(names.pieces(broadcast) + p, kept.data, at, Math.min(piece, kept.length - at));
        }
        cuts.put(broadcast, new Cut(kept, piece));
    }

    @Override
    public BroadcastSource source(int broadcast, List<String> owners, PeerTable table, Peer driver) {
        Cut cut = cuts.get(broadcast);
        if (cut == null) {
            throw new IllegalArgumentException("no such broadcast, or withdrawn: broadcast=" + broadcast);
        }
        return new Source(names, table, table.pack(owners), driver, cut.pieceBytes);
    }

    @Override
    public void withdraw(int broadcast) {
        Cut cut = cuts.remove(broadcast);
        if (cut != null) {
            int pieces = pieces(cut.data.length, cut.pieceBytes);
            sweeper.remove(BlockNames.numbered(names.pieces(broadcast), 0, pieces), cut.data::release);
        }
    }

    @Override
    public void close() {
        new ArrayList<>(cuts.keySet()).forEach(this::withdraw);
    }

    /** Who owns which pieces in one order. */
    static final class Source implements BroadcastSource {
        private static final long serialVersionUID = 1;

        final BlockNames names;
        private final PeerTable table;
        private final int[] runs;
        final Peer driver;
        final int pieceBytes;

        Source(BlockNames names, PeerTable table, List<Long> owners, Peer driver, int pieceBytes) {
            this.names = names;
            this.table = table;
            this.runs = owners.stream().mapToInt(Long::intValue).toArray();
            this.driver = driver;
            this.pieceBytes = pieceBytes;
        }

        /** In the order's sequence; on an executor, whose task has read the table. */
        List<Peer> owners() {
            return table.unpack(Arrays.stream(runs).boxed().collect(Collectors.toList()));
        }

        /** Names of the pieces that an executor owns. */
        List<String> ownPieces(int broadcast, int length, String executor) {
            List<String> own = new ArrayList<>();
            List<Peer> owners = owners();
            for (int piece = 0; piece < pieces(length, pieceBytes); piece++) {
                if (owners.get(piece % owners.size()).executor.equals(executor)) {
                    own.add(names.pieces(broadcast) + piece);
                }
            }
            return own;
        }

        @Override
        public Fetch open(Download download, Fetch.Port port) {
            return new RelayFetch(this, download, port);
        }
    }
}
