package org.mpca.rdd;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.mpca.reduce.KeptArray;
import org.mpca.reduce.Scattered;

/**
 * Carries out what a {@link Relay} decides: asks peers for pieces, stores own ones, and tells the other owners of them with a
 * mark, a word that wakes their download threads and that the driver never hears. When it comes, the batch exists for sure.
 *
 * <p>Concurrency: owned by one thread, mpca-download. Peers are called in threads of {@link Calls}, since connecting may block;
 * network threads copy pieces into the download's array and report to the port.
 */
final class RelayFetch implements Fetch, Relay.Performer {
    private static final Calls CALLS = new Calls("mpca-relay");

    private final RelayBroadcast.Source source;
    private final Download download;
    private final Port port;
    private final List<Peer> owners;
    private final int me;
    private final Relay relay;

    RelayFetch(RelayBroadcast.Source source, Download download, Port port) {
        this.source = source;
        this.download = download;
        this.port = port;
        this.owners = source.owners();
        this.me = indexOf(owners, ExecutorSide.get().self().executor);
        int pieces = RelayBroadcast.pieces(download.length, source.pieceBytes);
        this.relay = new Relay(owners.size(), me, pieces, download.here());
    }

    // ---- events
    // ---------------------------------------------------------------------------------------------------------

    @Override
    public void begin() {
        perform(relay.begin(nowMs()));
    }

    @Override
    public void arrived(int piece) {
        perform(relay.arrived(piece, nowMs()));
    }

    @Override
    public void marked(int owner, int batch) {
        perform(relay.announced(owner, batch));
    }

    @Override
    public void doWork() {
        perform(relay.tick(nowMs()));
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
    public void askOwner(int owner, List<Integer> pieces) {
        fetch(owner, owners.get(owner), pieces);
    }

    @Override
    public void announce(int batch, List<Integer> pieces) {
        for (int piece : pieces) {
            download.stored(name(piece));
            CheckedBlocks.put(name(piece), download.data().data, piece * source.pieceBytes, size(piece));
        }
        String mark = source.names.mark(download.broadcast, source.order, me, batch);
        // From the next one on, so that not all begin with the same.
        for (int step = 1; step < owners.size(); step++) {
            setMark((me + step) % owners.size(), mark);
        }
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
        call(sender, () -> CheckedBlocks.fetch(peer, names, receiver));
    }

    private void setMark(int owner, String mark) {
        call(
                owner,
                () -> SparkInternals.say(owners.get(owner), mark, failure -> {
                    if (failure != null) {
                        failed(owner, failure);
                    }
                }));
    }

    private void call(int peer, Runnable call) {
        CALLS.add(() -> {
            try {
                call.run();
            } catch (RuntimeException e) {
                failed(peer, e);
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

    private static int indexOf(List<Peer> owners, String executor) {
        for (int i = 0; i < owners.size(); i++) {
            if (owners.get(i).executor.equals(executor)) {
                return i;
            }
        }
        throw new IllegalArgumentException("executor " + executor + " is not among the owners " + owners);
    }
}
