package org.mpca.rdd;

import java.util.List;
import org.mpca.reduce.KeptArray;

/** Carries a joint shard from the driver to the executors. Two implementations: relay (default) and torrent. */
interface Broadcaster {
    /** An array for a joint shard of so many bytes, with anything in it. */
    KeptArray take(int length);

    /** Makes a broadcast ready for download by `owners` executors, or about as many. `data` becomes this one's to release. */
    void publish(int broadcast, KeptArray data, int owners);

    /**
     * Where the executors of one order get a broadcast from; {@code owners}: those that download it, in the order's sequence,
     * all of them in {@code table}.
     */
    BroadcastSource source(int broadcast, List<String> owners, PeerTable table, Peer driver);

    /** An executor has been sent the task of an order that names the broadcast: it may have what it needs of it. */
    default void launched(int broadcast, BroadcastSource source, String executor) {}

    /** Frees a broadcast on the driver. */
    void withdraw(int broadcast);

    /** Frees all broadcasts. */
    void close();
}
