package org.mpca.rdd;

import java.io.IOException;

/**
 * One attempt to get one broadcast.
 *
 * <p>Concurrency: its methods are called by one thread, mpca-download, and none of them waits.
 */
interface Fetch {
  /** Where it reports. May be called from any thread; what comes of it happens in the download thread, and in this order. */
  interface Port {
    /** A piece was copied into the download's array. */
    void arrived(int piece, int bytes, boolean fromDriver);

    /** The whole is here at once. */
    void arrived(byte[] whole, long fromDriver);

    /** Something else happened. */
    void happened(Runnable event);

    /** All is here, and peers have been told what they wait for. */
    void done();

    /** It could not be had now: it is tried again. */
    void failed(IOException cause);
  }

  /** Called once, first. */
  void begin();

  /** A piece is here that was not before: asked for by this attempt or by an earlier one. */
  void arrived(int piece);

  /** Looks for what no event tells; called after events, and every few milliseconds. */
  void doWork();

  /** Nobody wants it any more, or a newer order names other peers. */
  void abandon();
}
