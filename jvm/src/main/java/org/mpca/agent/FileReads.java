package org.mpca.agent;

import java.io.Closeable;
import java.io.IOException;

/** Reads files for agents, which have no client of the cluster's storage themselves. May be called by any thread. */
public interface FileReads {
    /** Opens a file; a source belongs to who opened it. */
    Source open(String url) throws IOException;

    /** An open file. */
    interface Source extends Closeable {
        /** Reads up to {@code length} bytes from {@code offset} on; fewer at the end of the file, -1 behind it. */
        int read(long offset, byte[] into, int at, int length) throws IOException;

        /** How many of the bytes that were read until now came from another host. */
        long remoteBytes();
    }
}
