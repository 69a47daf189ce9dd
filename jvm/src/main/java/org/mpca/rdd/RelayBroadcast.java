package org.mpca.rdd;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.mpca.reduce.ChunkPlan;
import org.mpca.reduce.KeptArray;
import org.mpca.reduce.SpareArrays;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Broadcast by relay: of K executors, number i gets pieces i mod K from the driver and the others from their owners. So
 * each piece leaves the driver once, where Spark's torrent sends it three or four times. An owner of m pieces sends them K - 1
 * times: all are of one size, and of one number for each of K owners, so that none sends more than the broadcast once.
 *
 * <p>Concurrency: safe from any thread; one call a broadcast at a time. Removals happen in the sweeper.
 */
final class RelayBroadcast implements Broadcaster {
    private static final Logger LOG = LoggerFactory.getLogger("mpca.transfer");
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
        /** Checksums of pieces. */
        final ByteBuffer[] trailers;
        /** Whether an order has named it: its executors are brought what they own. */
        final AtomicBoolean named = new AtomicBoolean();

        Cut(KeptArray data, int pieceBytes) {
            this.data = data;
            this.pieceBytes = pieceBytes;
            this.trailers = new ByteBuffer[pieces(data.length, pieceBytes)];
        }

        int bytes(int piece) {
            return Math.min(pieceBytes, data.length - piece * pieceBytes);
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
        Cut cut = new Cut(kept, pieceBytes(kept.length, owners, mostBytes));
        for (int p = 0; p < cut.trailers.length; p++) {
            cut.trailers[p] =
                    CheckedBlocks.put(names.pieces(broadcast) + p, kept.data, p * cut.pieceBytes, cut.bytes(p));
        }
        cuts.put(broadcast, cut);
    }

    @Override
    public BroadcastSource source(int broadcast, List<String> owners, PeerTable table, Peer driver) {
        Cut cut = cuts.get(broadcast);
        if (cut == null) {
            throw new IllegalArgumentException("no such broadcast, or withdrawn: broadcast=" + broadcast);
        }
        boolean brings = cut.named.compareAndSet(false, true);
        return new Source(names, table, owners, driver, cut.pieceBytes, brings);
    }

    /**
     * Brings an executor the pieces that it owns, in the batches in which it pushes them to others, if the order is the first one
     * that names the broadcast. Later ones name it for executors that have most of it, and ask.
     */
    @Override
    public void launched(int broadcast, BroadcastSource source, String executor) {
        Source from = (Source) source;
        Cut cut = cuts.get(broadcast);
        Integer owner = from.brings ? from.positions.get(executor) : null;
        if (owner == null || cut == null || !cut.data.retain()) { // withdrawn meanwhile
            return;
        }
        try {
            push(broadcast, cut, from, owner);
        } finally {
            cut.data.release();
        }
    }

    private void push(int broadcast, Cut cut, Source from, int owner) {
        Peer peer = from.peers.get(owner);
        int owners = from.peers.size();
        for (List<Integer> batch : Relay.batches(owner, owners, cut.trailers.length)) {
            ByteBuffer[] parts = new ByteBuffer[2 * batch.size()];
            int bytes = 0;
            for (int i = 0; i < batch.size(); i++) {
                int piece = batch.get(i);
                parts[2 * i] = ByteBuffer.wrap(cut.data.data, piece * cut.pieceBytes, cut.bytes(piece));
                parts[2 * i + 1] = cut.trailers[piece].duplicate();
                bytes += cut.bytes(piece) + CheckedBlocks.TRAILER_BYTES;
            }
            String name =
                    names.pushedPieces(broadcast, batch.get(0), owners, batch.size(), bytes, SparkInternals.DRIVER);
            Pushes.begin(peer, name, cut.data, cause -> told(peer, name, cause), parts);
        }
    }

    private static void told(Peer peer, String name, Throwable cause) {
        if (cause != null) {
            LOG.warn("not pushed, so it is asked for: {} to={} cause={}", name, peer, cause.toString());
        }
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
        /** Whether the driver pushes each owner its pieces, unasked. */
        final boolean brings;
        /** The owners and their positions, where it was made. */
        private final transient List<Peer> peers;

        private final transient Map<String, Integer> positions = new HashMap<>();

        Source(BlockNames names, PeerTable table, List<String> owners, Peer driver, int pieceBytes, boolean brings) {
            this.names = names;
            this.table = table;
            List<Long> packed = table.pack(owners);
            this.runs = packed.stream().mapToInt(Long::intValue).toArray();
            this.peers = table.unpack(packed);
            for (int i = 0; i < owners.size(); i++) {
                positions.put(owners.get(i), i);
            }
            this.driver = driver;
            this.pieceBytes = pieceBytes;
            this.brings = brings;
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
