package org.mpca.agent;

import java.io.Closeable;
import java.io.IOException;

/** Writes files for agents, which have no client of the cluster's storage themselves. May be called by any thread. */
public interface FileWrites {
    /**
     * Makes a file that its owner alone may read, in place of one that is there; missing folders above it too. A target belongs
     * to who made it.
     */
    Target create(String url) throws IOException;

    /** Removes a file, if it is there. */
    void delete(String url) throws IOException;

    /** A file that is being written. */
    interface Target extends Closeable {
        void write(byte[] from, int at, int length) throws IOException;

        /** Has the storage put what was written on its disks, where it can. */
        void sync() throws IOException;
    }
}
