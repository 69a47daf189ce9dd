package org.mpca.shm;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.channels.FileChannel;
import java.util.List;
import java.util.zip.CRC32;
import org.mpca.reduce.KeptArray;
import org.mpca.reduce.SpareArrays;
import org.mpca.shm.SlotDescriptor.Header;
import org.mpca.wire.ProtocolException;

/**
 * The executor's side of one agent's segment: reads snapshots, writes arrivals.
 *
 * <p>The segment is a memfd of the agent, opened through {@code /proc}. It is read and written by position and never
 * mapped here: nothing to unmap, no SIGBUS, and what was opened stays readable after the agent's death.
 *
 * <p>Concurrency: one thread, the agent's conductor.
 */
public final class AgentSegment implements Closeable {
    private static final int STEP_BYTES = 256 << 10;
    private static final int EXPONENT = 0x7F800000; // all its bits set: infinite or NaN

    private final RandomAccessFile file;
    private final FileChannel channel;
    private final long[] slots;
    private final long[] shardBytes;
    /** Direct, since positional I/O on heap buffers lets the JDK keep a hidden direct copy of any size per thread. */
    private final ByteBuffer step = ByteBuffer.allocateDirect(STEP_BYTES).order(ByteOrder.LITTLE_ENDIAN);

    private final ByteBuffer base = ByteBuffer.allocateDirect(STEP_BYTES).order(ByteOrder.LITTLE_ENDIAN);
    private final CRC32 crc = new CRC32();

    private AgentSegment(RandomAccessFile file, long[] slots, long[] shardBytes) {
        this.file = file;
        this.channel = file.getChannel();
        this.slots = slots;
        this.shardBytes = shardBytes;
    }

    /**
     * Opens what Hello announced.
     *
     * @param slots byte offset of each slot: snapshot, then the arrival slot of each shard
     * @param bounds shard edges in elements, one more than there are shards
     */
    public static AgentSegment open(int pid, int descriptor, long bytes, List<Long> slots, List<Long> bounds)
            throws IOException {
        return open("/proc/" + pid + "/fd/" + descriptor, bytes, slots, bounds);
    }

    static AgentSegment open(String path, long bytes, List<Long> slots, List<Long> bounds) throws IOException {
        int shards = bounds.size() - 1;
        if (shards < 1 || slots.size() != shards + 1) {
            throw new ProtocolException("slots and shards do not pair: slots=" + slots.size() + ", shards=" + shards);
        }
        long[] shardBytes = new long[shards];
        long largest = 0;
        for (int s = 0; s < shards; s++) {
            shardBytes[s] = (bounds.get(s + 1) - bounds.get(s)) * Float.BYTES;
            if (shardBytes[s] < 0 || shardBytes[s] > Integer.MAX_VALUE - 8) {
                throw new ProtocolException(
                        "shard is beyond 2 GiB or turned round: shard=" + s + ", bytes=" + shardBytes[s]);
            }
            largest = Math.max(largest, shardBytes[s]);
        }
        long[] offsets = new long[slots.size()];
        for (int i = 0; i < offsets.length; i++) {
            offsets[i] = slots.get(i);
            long end = offsets[i] + SlotDescriptor.HEADER_BYTES + (i == 0 ? largest : shardBytes[i - 1]);
            if (offsets[i] < 0 || end > bytes) {
                throw new ProtocolException(
                        "slot is outside the segment: slot=" + i + ", end=" + end + ", segment=" + bytes);
            }
        }
        RandomAccessFile file = new RandomAccessFile(path, "rw");
        if (file.length() < bytes) {
            long have = file.length();
            file.close();
            throw new ProtocolException("segment too small: need_bytes=" + bytes + ", have_bytes=" + have);
        }
        return new AgentSegment(file, offsets, shardBytes);
    }

    public int shards() {
        return shardBytes.length;
    }

    /** A snapshot as it was read. */
    public static final class Read {
        /** In use by the caller. */
        public final KeptArray data;

        public final long crc;
        /** No element is infinite or NaN. */
        public final boolean finite;
        /** Euclidean distance from the arrival slot: x_0, then the newest joint state. NaN if not finite. */
        public final double distance;

        Read(KeptArray data, long crc, boolean finite, double distance) {
            this.data = data;
            this.crc = crc;
            this.finite = finite;
            this.distance = distance;
        }
    }

    /**
     * Reads the snapshot slot in one pass: copy, CRC-32, whether all is finite, and how far it is from the last arrival.
     *
     * @param spare where the array comes from
     */
    public Read readSnapshot(int shard, long cycle, SpareArrays spare) throws IOException {
        Header before = header(slots[0]);
        if (before.shard != shard
                || before.version != cycle
                || before.mode != SlotDescriptor.SNAPSHOT
                || shard >= shardBytes.length
                || before.length != shardBytes[shard]) {
            throw new ProtocolException("snapshot slot holds something else: shard=" + before.shard + ", version="
                    + before.version + ", mode=" + before.mode + ", length=" + before.length + ", expected shard="
                    + shard
                    + ", version=" + cycle);
        }
        KeptArray kept = KeptArray.take(spare, (int) before.length);
        byte[] data = kept.data;
        crc.reset();
        boolean finite = true;
        double squares = 0;
        for (int at = 0; at < data.length; at += STEP_BYTES) {
            int size = Math.min(STEP_BYTES, data.length - at);
            fill(base, slots[1 + shard] + SlotDescriptor.HEADER_BYTES + at, size);
            fill(step, slots[0] + SlotDescriptor.HEADER_BYTES + at, size);
            finite &= allFinite(step.asIntBuffer());
            squares += squares(step.asFloatBuffer(), base.asFloatBuffer());
            step.get(data, at, size);
            crc.update(data, at, size);
        }
        Header after = header(slots[0]);
        if (before.seq % 2 != 0 || after.seq != before.seq) {
            throw new ProtocolException(
                    "snapshot slot was written while it was ours: seq=" + before.seq + ", then seq=" + after.seq);
        }
        return new Read(kept, crc.getValue(), finite, finite ? Math.sqrt(squares) : Double.NaN);
    }

    /** What the header of the snapshot slot says now. */
    public long snapshotVersion() throws IOException {
        return header(slots[0]).version;
    }

    /** Writes an arrival into the slot of its shard. The agent has said that it may be written, or never had it. */
    public void writeArrival(int shard, long version, String mode, byte[] data) throws IOException {
        if (shard < 0 || shard >= shardBytes.length || data.length != shardBytes[shard]) {
            throw new IllegalArgumentException(
                    "arrival does not fit its shard: shard=" + shard + ", bytes=" + data.length);
        }
        long slot = slots[1 + shard];
        long seq = lastSeq(slot);
        int code = SlotDescriptor.arrivalMode(mode);
        drain(slot, new Header(shard, seq + 1, version, 0, data.length, code).pack());
        drain(slot + SlotDescriptor.HEADER_BYTES, data);
        drain(slot, new Header(shard, seq + 2, version, 0, data.length, code).pack());
    }

    /** The even seq that the slot ended with; 0 in a slot that was never written, which holds zeros. */
    private long lastSeq(long slot) throws IOException {
        fill(step, slot, SlotDescriptor.HEADER_BYTES);
        return step.getInt(SlotDescriptor.MAGIC_AT) == 0 ? 0 : Header.unpack(step).seq & ~1L;
    }

    private Header header(long slot) throws IOException {
        fill(step, slot, SlotDescriptor.HEADER_BYTES);
        return Header.unpack(step);
    }

    /** Fills {@code to} with {@code size} bytes from {@code position} and flips it. */
    private void fill(ByteBuffer to, long position, int size) throws IOException {
        to.clear().limit(size);
        while (to.hasRemaining()) {
            if (channel.read(to, position + to.position()) < 0) {
                throw new EOFException("segment ended: position=" + (position + to.position()));
            }
        }
        to.flip();
    }

    private void drain(long position, byte[] data) throws IOException {
        for (int at = 0; at < data.length; at += STEP_BYTES) {
            step.clear();
            step.put(data, at, Math.min(STEP_BYTES, data.length - at)).flip();
            while (step.hasRemaining()) {
                channel.write(step, position + at + step.position());
            }
        }
    }

    private static boolean allFinite(IntBuffer elements) {
        boolean finite = true;
        for (int i = 0; i < elements.limit(); i++) {
            finite &= (elements.get(i) & EXPONENT) != EXPONENT;
        }
        return finite;
    }

    /** In double, where the square of no float is infinite; four sums, since one would wait for itself at each element. */
    private static double squares(FloatBuffer elements, FloatBuffer from) {
        double s0 = 0;
        double s1 = 0;
        double s2 = 0;
        double s3 = 0;
        int count = elements.limit();
        int i = 0;
        for (; i + 3 < count; i += 4) {
            double d0 = (double) elements.get(i) - from.get(i);
            double d1 = (double) elements.get(i + 1) - from.get(i + 1);
            double d2 = (double) elements.get(i + 2) - from.get(i + 2);
            double d3 = (double) elements.get(i + 3) - from.get(i + 3);
            s0 += d0 * d0;
            s1 += d1 * d1;
            s2 += d2 * d2;
            s3 += d3 * d3;
        }
        for (; i < count; i++) {
            double d = (double) elements.get(i) - from.get(i);
            s0 += d * d;
        }
        return s0 + s1 + s2 + s3;
    }

    @Override
    public void close() throws IOException {
        file.close();
    }
}
