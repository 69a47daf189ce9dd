package org.mpca.rdd;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.mpca.reduce.KeptArray;
import org.mpca.reduce.Scattered;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Carries out what a {@link Relay} decides: takes pieces from the driver, stores own ones, and pushes them to the other owners.
 *
 * <p>Concurrency: owned by one thread, mpca-download. Peers are called in threads of {@link Calls}, since connecting may block;
 * network threads copy pieces into the download's array and report to the port.
 */
final class RelayFetch implements Fetch, Relay.Performer {
    private static final Logger LOG = LoggerFactory.getLogger("mpca.transfer");
    private static final Calls CALLS = new Calls("mpca-relay");

    private final RelayBroadcast.Source source;
    private final Download download;
    private final Port port;
    private final List<Peer> owners;
    /** Of the owners, by executor. */
    private final Map<String, Integer> positions = new HashMap<>();

    private final int me;
    private final Relay relay;
    /** Whether the driver pushes own pieces here; it does so once. */
    private final boolean bringing;
    /** Pushes that have not arrived. */
    private int underWay;

    RelayFetch(RelayBroadcast.Source source, Download download, Port port) {
        this.source = source;
        this.download = download;
        this.port = port;
        this.owners = source.owners();
        for (int i = 0; i < owners.size(); i++) {
            positions.put(owners.get(i).executor, i);
        }
        this.me = positions.get(ExecutorSide.get().self().executor);
        this.bringing = source.brings && download.opened != source;
        download.opened = source;
        int pieces = RelayBroadcast.pieces(download.length, source.pieceBytes);
        this.relay = new Relay(owners.size(), me, pieces, download.here());
    }

    // ---- events
    // ---------------------------------------------------------------------------------------------------------

    @Override
    public void begin() {
        perform(relay.begin(bringing, nowMs()));
    }

    @Override
    public void arrived(int piece) {
        perform(relay.arrived(piece, nowMs()));
    }

    @Override
    public void pushed(PushName what, byte[] bytes) {
        int sender = positions.getOrDefault(what.executor, Relay.DRIVER);
        if (sender == Relay.DRIVER && !what.isFromDriver()) {
            return; // of another order, whose owners were others
        }
        int at = 0;
        for (int piece : what.pieces()) {
            if (piece < 0 || (long) piece * source.pieceBytes >= download.length) {
                return; // the name is damaged
            }
            int length = size(piece) + CheckedBlocks.TRAILER_BYTES;
            boolean right = at + length <= bytes.length
                    && CheckedBlocks.open(name(piece), ByteBuffer.wrap(bytes, at, length)) != null;
            if (right) {
                System.arraycopy(bytes, at, download.data().data, piece * source.pieceBytes, size(piece));
                port.arrived(piece, size(piece), sender == Relay.DRIVER);
            } else {
                fetchAgain(sender, piece);
            }
            at += length;
        }
    }

    private void fetchAgain(int sender, int piece) {
        Peer peer = sender == Relay.DRIVER ? source.driver : owners.get(sender);
        LOG.warn("damaged on its way, and fetched: block={} from={}", name(piece), peer);
        relay.damaged(sender);
        Receiver receiver = new Receiver(sender, download.data(), Collections.singletonList(piece));
        call(sender, peer, () -> CheckedBlocks.fetchOnce(peer, name(piece), receiver));
    }

    @Override
    public void doWork(long heardMs) {
        perform(relay.tick(heardMs, nowMs()));
    }

    @Override
    public void abandon() {
        relay.abandon();
    }

    private void perform(List<Relay.Instruction> instructions) {
        instructions.forEach(instruction -> instruction.perform(this));
    }

    private static long nowMs() {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime());
    }

    // ---- instructions
    // ---------------------------------------------------------------------------------------------------

    @Override
    public void askDriver(List<Integer> pieces) {
        fetch(Relay.DRIVER, source.driver, pieces);
    }

    @Override
    public void push(List<Integer> pieces) {
        KeptArray data = download.data();
        ByteBuffer[] parts = new ByteBuffer[2 * pieces.size()];
        int bytes = 0;
        for (int i = 0; i < pieces.size(); i++) {
            int piece = pieces.get(i);
            int at = piece * source.pieceBytes;
            download.stored(name(piece));
            parts[2 * i] = ByteBuffer.wrap(data.data, at, size(piece));
            parts[2 * i + 1] = CheckedBlocks.put(name(piece), data.data, at, size(piece));
            bytes += size(piece) + CheckedBlocks.TRAILER_BYTES;
        }
        String name = source.names.pushedPieces(
                download.broadcast, pieces.get(0), owners.size(), pieces.size(), bytes, owners.get(me).executor);
        // From the next one on, so that not all begin with the same.
        for (int step = 1; step < owners.size(); step++) {
            int owner = (me + step) % owners.size();
            ByteBuffer[] own = Arrays.stream(parts).map(ByteBuffer::duplicate).toArray(ByteBuffer[]::new);
            underWay++;
            Pushes.begin(owners.get(owner), name, data, cause -> port.happened(() -> sent(owner, cause)), own);
        }
    }

    private void sent(int owner, Throwable cause) {
        underWay--;
        if (cause != null) {
            failed(owner, cause);
        }
    }

    @Override
    public boolean hasSent() {
        return underWay == 0 && relay.hasPushed();
    }

    @Override
    public void blame(int owner, String why) {
        String culprit = owners.get(owner).executor;
        ExecutorSide.get()
                .tellDamage(
                        download.run,
                        culprit,
                        "executor " + culprit + " damages bytes: " + why + ", at executor " + owners.get(me).executor);
    }

    @Override
    public void done() {
        port.done();
    }

    @Override
    public void fail(String why) {
        port.failed(new IOException(
                "pieces of broadcast " + download.broadcast + " could not be had from the driver: " + why));
    }

    // ---- calls
    // ----------------------------------------------------------------------------------------------------------

    private void fetch(int sender, Peer peer, List<Integer> pieces) {
        List<String> names = new ArrayList<>(pieces.size());
        pieces.forEach(piece -> names.add(name(piece)));
        Receiver receiver = new Receiver(sender, download.data(), pieces);
        call(sender, peer, () -> CheckedBlocks.fetch(peer, names, receiver));
    }

    private void call(int sender, Peer peer, Runnable call) {
        CALLS.add(peer, () -> {
            try {
                call.run();
            } catch (RuntimeException e) {
                failed(sender, e);
            }
        });
    }

    private void failed(int peer, Throwable cause) {
        boolean damage = cause instanceof CheckedBlocks.Damaged;
        String why = damage ? cause.getMessage() : cause.toString();
        port.happened(() -> perform(relay.failed(peer, damage, why)));
    }

    /** Copies what a peer sends into the download; in network threads. */
    private final class Receiver implements SparkInternals.FetchListener {
        private final int sender;
        private final KeptArray data;
        private final Set<Integer> awaited;

        Receiver(int sender, KeptArray data, List<Integer> pieces) {
            this.sender = sender;
            this.data = data;
            this.awaited = new HashSet<>(pieces);
            data.retain();
        }

        @Override
        public synchronized void arrived(String name, Scattered bytes) {
            int piece = BlockNames.number(name);
            int length = bytes.length();
            if (length != size(piece)) {
                failed(name, new IOException("piece of another length: bytes=" + length + ", expected=" + size(piece)));
                return;
            }
            if (!awaited.remove(piece)) {
                return;
            }
            bytes.copyTo(data.data, piece * source.pieceBytes);
            if (awaited.isEmpty()) {
                data.release();
            }
            port.arrived(piece, length, sender == Relay.DRIVER);
        }

        @Override
        public void damaged(String name) {
            port.happened(() -> relay.damaged(sender));
        }

        @Override
        public void failed(String name, Throwable cause) {
            RelayFetch.this.failed(sender, cause);
        }
    }

    private String name(int piece) {
        return source.names.pieces(download.broadcast) + piece;
    }

    private int size(int piece) {
        return Math.min(source.pieceBytes, download.length - piece * source.pieceBytes);
    }
}
