package org.mpca.shm;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.mpca.wire.ProtocolException;

/**
 * Layout of the segment between an agent and its executor. Offsets only; nothing here moves bytes.
 *
 * <p>The agent makes the segment (a memfd, fully allocated). Slot 0 carries snapshots, slot {@code 1 + s} arrivals of
 * shard s. Each slot is a header of 64 bytes and then float32 elements, little-endian:
 *
 * <pre>
 *   0        4        6        8        16         24         32        40      44        64
 *   +--------+--------+--------+--------+----------+----------+---------+-------+---------+------------------
 *   | magic  | layout | shard  | seq    | version  | updates  | length  | mode  | zero    | float32 elements
 *   +--------+--------+--------+--------+----------+----------+---------+-------+---------+------------------
 *     u32      u16      u16      u64      u64        u64        u64       u32
 * </pre>
 *
 * seq is odd while the slot is being written. version is the cycle of a snapshot or the exchange number of an arrival.
 * updates is tau (snapshots only). length is in bytes, without the header. The snapshot slot is written by the agent
 * and read by the executor; arrival slots the other way round. A slot belongs to its writer until the message that
 * names it was sent, then to its reader until the answer (the executor's next SnapshotRequest; the agent's Installed). Before its
 * Hello all are the agent's, which lays x_0 into the arrival slots: from what lies there the executor measures how far a
 * snapshot has moved. Nobody unlinks the segment: it has no name. The Python twin is {@code mpca/wire/slots.py}; both read the same bytes from
 * {@code tests/golden/wire/slots.json}.
 *
 * <p>Concurrency: stateless.
 */
public final class SlotDescriptor {
    public static final int MAGIC = 0x4C53504D;
    public static final int LAYOUT = 1;
    public static final int HEADER_BYTES = 64;

    public static final int MAGIC_AT = 0;
    public static final int LAYOUT_AT = 4;
    public static final int SHARD_AT = 6;
    public static final int SEQ_AT = 8;
    public static final int VERSION_AT = 16;
    public static final int UPDATES_AT = 24;
    public static final int LENGTH_AT = 32;
    public static final int MODE_AT = 40;

    public static final int SNAPSHOT = 0;
    public static final int INSTALL = 1;
    public static final int REPLACE = 2;

    private SlotDescriptor() {}

    /** Code of an arrival's mode. */
    public static int arrivalMode(String mode) {
        switch (mode) {
            case "install":
                return INSTALL;
            case "replace":
                return REPLACE;
            default:
                throw new IllegalArgumentException("not a mode of an arrival: " + mode);
        }
    }

    /** One slot header; see the diagram. */
    public static final class Header {
        public final int shard;
        public final long seq;
        public final long version;
        public final long updates;
        public final long length;
        public final int mode;

        public Header(int shard, long seq, long version, long updates, long length, int mode) {
            this.shard = shard;
            this.seq = seq;
            this.version = version;
            this.updates = updates;
            this.length = length;
            this.mode = mode;
        }

        public byte[] pack() {
            ByteBuffer bytes = ByteBuffer.allocate(HEADER_BYTES).order(ByteOrder.LITTLE_ENDIAN);
            bytes.putInt(MAGIC_AT, MAGIC);
            bytes.putShort(LAYOUT_AT, (short) LAYOUT);
            bytes.putShort(SHARD_AT, (short) shard);
            bytes.putLong(SEQ_AT, seq);
            bytes.putLong(VERSION_AT, version);
            bytes.putLong(UPDATES_AT, updates);
            bytes.putLong(LENGTH_AT, length);
            bytes.putInt(MODE_AT, mode);
            return bytes.array();
        }

        /** Reads the header at the position of {@code bytes}, which stays. */
        public static Header unpack(ByteBuffer bytes) throws ProtocolException {
            ByteBuffer at = bytes.slice().order(ByteOrder.LITTLE_ENDIAN);
            if (at.remaining() < HEADER_BYTES) {
                throw new ProtocolException("slot header cut short: bytes=" + at.remaining());
            }
            int magic = at.getInt(MAGIC_AT);
            int layout = at.getShort(LAYOUT_AT) & 0xFFFF;
            if (magic != MAGIC || layout != LAYOUT) {
                throw new ProtocolException("not a slot of layout " + LAYOUT + ": magic=0x" + Integer.toHexString(magic)
                        + ", layout=" + layout);
            }
            return new Header(
                    at.getShort(SHARD_AT) & 0xFFFF,
                    at.getLong(SEQ_AT),
                    at.getLong(VERSION_AT),
                    at.getLong(UPDATES_AT),
                    at.getLong(LENGTH_AT),
                    at.getInt(MODE_AT));
        }
    }
}
