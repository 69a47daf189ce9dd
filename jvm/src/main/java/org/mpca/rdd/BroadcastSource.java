package org.mpca.rdd;

import java.io.Serializable;

/** Where an executor gets a broadcast from: what the closure of an order carries instead of the bytes. */
interface BroadcastSource extends Serializable {
    /**
     * An attempt to fetch what is missing and to serve peers what they expect of this executor. Made again for a download that is
     * whole when an order names it once more, with other peers perhaps.
     */
    Fetch open(Download download, Fetch.Port port);
}
