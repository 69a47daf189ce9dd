package org.mpca.rdd;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import org.apache.spark.SparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.mpca.reduce.KeptArray;

/**
 * Spark's own broadcast, the paper's and the yardstick: every executor takes pieces in an order of its own from whoever
 * has them. Destroyed once and never unpersisted before: that would leave the pieces of a running download behind.
 *
 * <p>Concurrency: safe from any thread; one call a broadcast at a time.
 */
final class TorrentBroadcast implements Broadcaster {
    private static final ExecutorService READER = Threads.one("mpca-fetch");

    private final SparkContext context;
    private final Map<Integer, Broadcast<byte[]>> broadcasts = new ConcurrentHashMap<>();

    TorrentBroadcast(SparkContext context) {
        this.context = context;
        // Its pieces carry Spark's own checksums; what is damaged is fetched again by the download's next try.
        if (!context.getConf().getBoolean("spark.broadcast.checksum", true)) {
            throw new IllegalArgumentException(
                    "spark.broadcast.checksum = false: nobody would notice damaged pieces; leave it true, or take broadcast = relay");
        }
    }

    @Override
    public KeptArray take(int length) {
        return KeptArray.of(new byte[length]); // Spark does not say that it keeps nothing of it
    }

    @Override
    public void publish(int broadcast, KeptArray data, int owners) {
        broadcasts.put(broadcast, SparkInternals.broadcast(context, data.data));
    }

    @Override
    public BroadcastSource source(int broadcast, List<String> owners, PeerTable table, Peer driver) {
        Broadcast<byte[]> handle = broadcasts.get(broadcast);
        if (handle == null) {
            throw new IllegalArgumentException("no such broadcast, or withdrawn: broadcast=" + broadcast);
        }
        return new Source(handle, owners.size());
    }

    @Override
    public void withdraw(int broadcast) {
        Broadcast<byte[]> handle = broadcasts.remove(broadcast);
        if (handle != null) {
            handle.destroy();
        }
    }

    @Override
    public void close() {
        new ArrayList<>(broadcasts.keySet()).forEach(this::withdraw);
    }

    /**
     * Spark does not say where pieces came from. Expected: the c-th to ask for a piece finds c holders and picks one at
     * random, so that of K copies 1 + 1/2 + ... + 1/K come from the driver.
     */
    private static long expectedFromDriver(int length, int owners) {
        double copies = 0;
        for (int c = 1; c <= owners; c++) {
            copies += 1.0 / c;
        }
        return (long) (length * copies / owners);
    }

    private static final class Source implements BroadcastSource {
        private static final long serialVersionUID = 1;

        private final Broadcast<byte[]> handle;

        private final int owners;

        Source(Broadcast<byte[]> handle, int owners) {
            this.handle = handle;
            this.owners = owners;
        }

        @Override
        public Fetch open(Download download, Fetch.Port port) {
            return new TorrentFetch(this, download, port);
        }
    }

    /** Waits for Spark. What an earlier attempt has begun to read is waited for rather than read again. */
    private static final class TorrentFetch implements Fetch {
        private final Source source;
        private final Download download;
        private final Port port;

        TorrentFetch(Source source, Download download, Port port) {
            this.source = source;
            this.download = download;
            this.port = port;
        }

        @Override
        public void begin() {
            doWork(0);
        }

        @Override
        public void doWork(long heardMs) {
            if (download.isWhole()) {
                port.done();
            } else if (!download.reading) {
                download.reading = true;
                READER.execute(this::read);
            }
        }

        private void read() {
            try {
                byte[] whole = source.handle.value();
                port.arrived(whole, expectedFromDriver(whole.length, source.owners));
            } catch (Exception e) { // Scala's method throws IOException without declaring it.
                port.happened(() -> download.reading = false);
                port.failed(e instanceof IOException ? (IOException) e : new IOException(e));
            }
        }

        @Override
        public void arrived(int piece) {
            throw new IllegalStateException("pieces of Spark's own broadcast are Spark's: piece=" + piece);
        }

        @Override
        public void abandon() {
            // Spark goes on reading; what it brings is the download's.
        }
    }
}
