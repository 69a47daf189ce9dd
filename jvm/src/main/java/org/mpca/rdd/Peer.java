package org.mpca.rdd;

import java.io.Serializable;

/** A block manager that can be fetched from and uploaded to: an executor, or the driver. Immutable. */
public final class Peer implements Serializable {
    private static final long serialVersionUID = 1;

    public final String executor;
    public final String host;
    public final int port;
    /** How many files its JVM may open, as it said itself; -1: nobody said. */
    final long files;

    public Peer(String executor, String host, int port) {
        this(executor, host, port, -1);
    }

    Peer(String executor, String host, int port, long files) {
        this.executor = executor;
        this.host = host;
        this.port = port;
        this.files = files;
    }

    @Override
    public String toString() {
        return "executor " + executor + " at " + host + ":" + port;
    }
}
