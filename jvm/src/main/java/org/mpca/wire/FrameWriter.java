package org.mpca.wire;

import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.OutputStream;

/**
 * Writes frames; see {@link FrameReader}.
 *
 * <p>Concurrency: one thread.
 */
public final class FrameWriter {
    private final DataOutputStream out;

    public FrameWriter(OutputStream out) {
        this.out = new DataOutputStream(new BufferedOutputStream(out));
    }

    /** Writes one frame and flushes it. */
    public void write(byte[] body) throws IOException {
        if (body.length > FrameReader.MAX_BYTES) {
            throw new ProtocolException("frame too large: bytes=" + body.length + ", limit=" + FrameReader.MAX_BYTES
                    + "; a train function that carries data in its closure should read it from a file instead");
        }
        out.writeInt(body.length);
        out.write(body);
        out.flush();
    }
}
