package org.mpca.rdd;

import java.io.Serializable;

/** A block manager that can be fetched from and uploaded to: an executor, or the driver. Immutable. */
public final class Peer implements Serializable {
    private static final long serialVersionUID = 1;

    public final String executor;
    public final String host;
    public final int port;

    public Peer(String executor, String host, int port) {
        this.executor = executor;
        this.host = host;
        this.port = port;
    }

    @Override
    public String toString() {
        return "executor " + executor + " at " + host + ":" + port;
    }
}
