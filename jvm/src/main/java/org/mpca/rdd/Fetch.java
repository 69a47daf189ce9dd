package org.mpca.rdd;

import java.io.IOException;

/**
 * One attempt to get one broadcast.
 *
 * <p>Concurrency: its methods are called by one thread, mpca-download, and none of them waits.
 */
interface Fetch {
    /** Where a fetch reports. May be called from any thread; the download thread handles the reports in the order of the calls. */
    interface Port {
        /** A piece was copied into the download's array. */
        void arrived(int piece, int bytes, boolean fromDriver);

        /** The whole is here at once. */
        void arrived(byte[] whole, long fromDriver);

        /** Any other event, to be run in the download thread. */
        void happened(Runnable event);

        /** All is here, and peers have been told what they wait for. */
        void done();

        /** It failed, and is tried again later. */
        void failed(IOException cause);
    }

    /** Called once, first. */
    void begin();

    /** A piece is here that was not before: asked for by this attempt or by an earlier one. */
    void arrived(int piece);

    /** An executor has pushed pieces of the broadcast, each with its checksum behind it. */
    default void pushed(PushName what, byte[] bytes) {}

    /** Whether peers have all that this executor owes them of the broadcast. */
    default boolean hasSent() {
        return true;
    }

    /**
     * Looks at what no event tells, the time that has passed; called after events, and a few times a second.
     *
     * @param heardMs when bytes last came that the driver pushes, in milliseconds of System.nanoTime
     */
    void doWork(long heardMs);

    /** Ends the attempt: the broadcast was forgotten, or a newer order names other peers. */
    void abandon();
}
