package org.mpca.wire;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What the task of one executor answers to an {@link Order}. The twin of {@code Answer} in {@code mpca/wire/orders.py}.
 *
 * <p>Concurrency: filled by one thread, then packed.
 */
public final class Answer {
    public String executor = "";
    public String host = "";
    /** In agent order. */
    public final List<Frozen> frozen = new ArrayList<>();
    /** Agent to the reason why it is not in the part. */
    public final Map<Integer, Late> late = new LinkedHashMap<>();
    /** Sum of the weights of the finite yields that this executor's part holds. */
    public double weight;
    /** In seconds of the driver's monotonic clock; 0 when the order had no reduce. */
    public double reduceStart;

    public double reduceEnd;
    /** Bytes fetched for the reduction. */
    public long bytesIn;
    /** Bytes pushed to the driver. */
    public long bytesOut;

    public byte[] pack() {
        List<Object> rows = new ArrayList<>();
        for (Frozen one : frozen) {
            rows.add(one.toMap());
        }
        Map<Integer, Object> reasons = new LinkedHashMap<>();
        late.forEach((agent, reason) -> reasons.put(agent, reason.row()));
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("executor", executor);
        fields.put("host", host);
        fields.put("frozen", rows);
        fields.put("late", reasons);
        fields.put("weight", weight);
        fields.put("reduce_start", reduceStart);
        fields.put("reduce_end", reduceEnd);
        fields.put("bytes_in", bytesIn);
        fields.put("bytes_out", bytesOut);
        return Msgpack.pack(fields);
    }

    /** One agent's frozen yield, without its bytes. */
    public static final class Frozen {
        public final int agent;
        public final int incarnation;
        public final int tau;
        /** CRC-32 of the shard's float32 bytes, little-endian. */
        public final long crc;

        public final boolean finite;
        /** Euclidean distance from the newest joint state that the agent was handed, or from x_0; NaN if not finite. */
        public final double distance;
        /** The interruption, in seconds of the driver's monotonic clock. */
        public final double start;

        public final double end;

        public Frozen(
                int agent,
                int incarnation,
                int tau,
                long crc,
                boolean finite,
                double distance,
                double start,
                double end) {
            this.agent = agent;
            this.incarnation = incarnation;
            this.tau = tau;
            this.crc = crc;
            this.finite = finite;
            this.distance = distance;
            this.start = start;
            this.end = end;
        }

        private Map<String, Object> toMap() {
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("agent", agent);
            fields.put("incarnation", incarnation);
            fields.put("tau", tau);
            fields.put("crc", crc);
            fields.put("finite", finite);
            fields.put("distance", distance);
            fields.put("start", start);
            fields.put("end", end);
            return fields;
        }
    }
}
