package org.mpca.rdd;

import java.io.IOException;
import java.io.Serializable;

/** Where an executor gets a broadcast from: what the closure of an order carries instead of the bytes. */
interface BroadcastSource extends Serializable {
  /**
   * Fetches what is missing, in the executor's download thread, and serves peers what they expect of this executor.
   * Called again for a download that is whole when an order names it once more, with other peers perhaps.
   *
   * @throws IOException it could not be had now; it is tried again
   * @throws Download.Abandoned nobody wants it any more, or a newer order names other peers
   */
  void fetch(Download download, Download.Attempt attempt) throws IOException, Download.Abandoned, InterruptedException;
}
