package org.mpca.rdd;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * Carries out what a {@link Relay} decides: asks peers for pieces, stores own ones, and tells the other owners of them with a
 * mark of one byte. A peer's mark is looked for in this JVM's own block table; when it is there, the batch exists for sure.
 *
 * <p>Concurrency: owned by one thread, mpca-download. Peers are called in threads of a pool, since connecting may block; network
 * threads copy pieces into the download's array and report to the port.
 */
final class RelayFetch implements Fetch, Relay.Performer {
    private static final ExecutorService CALLERS = Threads.pool("mpca-relay");

    private final RelayBroadcast.Source source;
    private final Download download;
    private final Port port;
    private final int me;
    private final Relay relay;

    RelayFetch(RelayBroadcast.Source source, Download download, Port port) {
        this.source = source;
        this.download = download;
        this.port = port;
        this.me = indexOf(source.owners, ExecutorSide.get().self().executor);
        int pieces = RelayBroadcast.pieces(download.length, source.pieceBytes);
        this.relay = new Relay(source.owners.size(), me, pieces, download.here());
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
    public void doWork() {
        for (Relay.Batch batch : relay.awaited()) {
            if (SparkInternals.has(mark(batch.owner, batch.number))) {
                perform(relay.announced(batch.owner, batch.number));
            }
        }
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
        fetch(owner, source.owners.get(owner), pieces);
    }

    @Override
    public void announce(int batch, List<Integer> pieces) {
        for (int piece : pieces) {
            CheckedBlocks.put(name(piece), download.data(), piece * source.pieceBytes, size(piece));
        }
        for (int owner = 0; owner < source.owners.size(); owner++) {
            if (owner != me) {
                setMark(owner, mark(me, batch));
            }
        }
    }

    @Override
    public void blame(int owner, String why) {
        String culprit = source.owners.get(owner).executor;
        ExecutorSide.get()
                .tellDamage(
                        download.run,
                        culprit,
                        "executor " + culprit + " damages bytes: " + why + ", at executor "
                                + source.owners.get(me).executor);
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
        Receiver receiver = new Receiver(sender, download.data());
        call(sender, () -> CheckedBlocks.fetch(peer, names, receiver));
    }

    private void setMark(int owner, String mark) {
        call(
                owner,
                () -> SparkInternals.upload(source.owners.get(owner), mark, ByteBuffer.wrap(new byte[1]), failure -> {
                    if (failure != null) {
                        failed(owner, failure);
                    }
                }));
    }

    private void call(int peer, Runnable call) {
        CALLERS.execute(() -> {
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
        private final byte[] data;

        Receiver(int sender, byte[] data) {
            this.sender = sender;
            this.data = data;
        }

        @Override
        public void arrived(String name, ByteBuffer bytes) {
            int piece = BlockNames.number(name);
            int length = bytes.remaining();
            if (length != size(piece)) {
                failed(name, new IOException("piece of another length: bytes=" + length + ", expected=" + size(piece)));
                return;
            }
            bytes.get(data, piece * source.pieceBytes, length);
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

    private String mark(int owner, int batch) {
        return source.names.mark(download.broadcast, source.order, owner, batch);
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
