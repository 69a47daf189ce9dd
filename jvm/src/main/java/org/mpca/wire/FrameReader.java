package org.mpca.wire;

import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;

/**
 * Reads frames: a four-byte big-endian length and as many bytes.
 *
 * <p>Concurrency: one thread.
 */
public final class FrameReader {
    /** Bytes of a frame's body. Bulk never travels in frames; a train function with data in its closure might. */
    public static final int MAX_BYTES = Msgpack.MAX_BYTES;

    private final DataInputStream in;

    public FrameReader(InputStream in) {
        this.in = new DataInputStream(in);
    }

    /**
     * The next frame's body, or null when the stream ended between two frames.
     *
     * @throws EOFException the stream ended inside a frame
     * @throws ProtocolException the length is beyond the limit
     */
    public byte[] read() throws IOException {
        int first = in.read();
        if (first < 0) {
            return null;
        }
        long length = ((long) first << 24) | (in.readUnsignedByte() << 16) | in.readUnsignedShort();
        if (length > MAX_BYTES) {
            throw new ProtocolException("frame too large: bytes=" + length + ", limit=" + MAX_BYTES);
        }
        byte[] body = new byte[(int) length];
        in.readFully(body);
        return body;
    }
}
