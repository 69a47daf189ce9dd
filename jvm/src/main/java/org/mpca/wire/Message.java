package org.mpca.wire;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A control message between this executor and an agent; the twin of {@code mpca/wire/messages.py}, where every field is
 * explained. The body of a frame is a msgpack array {@code [code, {field: value}]}.
 *
 * <p>One class for all kinds, unlike Python: the executor makes nine small ones and passes most fields of the others
 * on.
 *
 * <p>Concurrency: immutable.
 */
public final class Message {
    /** The kinds. Codes travel and are never reused: executor to agent from 1, agent to executor from 17. */
    public enum Kind {
        /** First message: who the agent is and what it is to do. The driver packs it. */
        START(
                1,
                "agent",
                "incarnation",
                "agents",
                "run",
                "seed",
                "shards",
                "layer_aligned",
                "method",
                "task",
                "payload",
                "device",
                "threads",
                "conf",
                "state"),
        /** x_0 is agreed: the first step may be taken. */
        BEGIN(2),
        /** Interrupt between two batches and publish one shard into the snapshot slot. */
        SNAPSHOT_REQUEST(3, "cycle", "shard"),
        /** The arrival slot of the shard holds a joint state. */
        INSTALL(4, "shard", "version", "mode", "alpha"),
        /** Finish. */
        STOP(5, "reason"),
        /** Who reads the data from now on. */
        READERS_CHANGED(6, "version", "readers"),
        /** What a FETCH asked for lies in the memory; on the agent's own pipe. */
        FETCHED(7, "number", "bytes", "error", "text"),
        /** Before BEGIN: cut the model into so many shards, and say HELLO anew. */
        CUT(8, "shards"),
        /** Copy what is the agent's own into memory, between two batches. */
        SAVE_STATE(9, "number"),
        /** The memory that STATE_SAVED named is open here. */
        STATE_TAKEN(10, "number"),
        /** attach was called; where the segment is. */
        HELLO(
                17,
                "agent",
                "incarnation",
                "pid",
                "python",
                "torch",
                "mpca",
                "x0_hash",
                "layout",
                "local",
                "tied",
                "bounds",
                "parameters",
                "segment_fd",
                "segment_bytes",
                "slots"),
        /** The snapshot slot holds the shard. */
        SNAPSHOT(18, "cycle", "shard", "updates", "start", "end"),
        /** The arrival slot of the shard may be written again. */
        INSTALLED(19, "shard", "version", "mode", "start", "end"),
        /** Counters. */
        PROGRESS(20, "steps", "samples", "train_s", "pause_s", "metrics", "data", "function", "bad", "bad_dropped"),
        /** The train function returned. */
        FINISHED(21, "returns"),
        /** The user's code raised. */
        FAILED(22, "error", "traceback"),
        /** The agent wants files read: where its pipes and its memory for that are. */
        FILES(23, "pid", "requests_fd", "answers_fd", "memory_fd", "memory_bytes"),
        /** Read a range of a file; on the agent's own pipe. */
        FETCH(24, "number", "url", "offset", "bytes"),
        /** The snapshot slot holds the shard for the server; the agent waits for an INSTALL of it. */
        EXCHANGE(25, "number", "shard", "updates", "version", "start", "end"),
        /** Where what SAVE_STATE asked for lies, or why there is none. */
        STATE_SAVED(26, "number", "fd", "bytes", "sha256", "error");

        public final int code;
        /** In the order in which they are packed. */
        public final List<String> names;

        Kind(int code, String... names) {
            this.code = code;
            this.names = Collections.unmodifiableList(Arrays.asList(names));
        }

        static Kind of(long code) throws ProtocolException {
            for (Kind kind : values()) {
                if (kind.code == code) {
                    return kind;
                }
            }
            throw new ProtocolException("unknown message: code=" + code);
        }
    }

    public final Kind kind;
    public final Fields fields;

    private Message(Kind kind, Fields fields) {
        this.kind = kind;
        this.fields = fields;
    }

    public static Message begin() {
        return of(Kind.BEGIN);
    }

    public static Message cut(int shards) {
        return of(Kind.CUT, shards);
    }

    public static Message snapshotRequest(int cycle, int shard) {
        return of(Kind.SNAPSHOT_REQUEST, cycle, shard);
    }

    public static Message install(int shard, long version, String mode, double alpha) {
        return of(Kind.INSTALL, shard, version, mode, alpha);
    }

    public static Message stop(String reason) {
        return of(Kind.STOP, reason);
    }

    public static Message readersChanged(int version, Map<?, ?> readers) {
        return of(Kind.READERS_CHANGED, version, readers);
    }

    public static Message fetched(long number, int bytes, String error, String text) {
        return of(Kind.FETCHED, number, bytes, error, text);
    }

    public static Message saveState(int number) {
        return of(Kind.SAVE_STATE, number);
    }

    public static Message stateTaken(int number) {
        return of(Kind.STATE_TAKEN, number);
    }

    private static Message of(Kind kind, Object... values) {
        Map<String, Object> fields = new LinkedHashMap<>();
        for (int i = 0; i < values.length; i++) {
            fields.put(kind.names.get(i), values[i]);
        }
        return new Message(kind, Fields.of(kind.name(), fields));
    }

    public byte[] pack() {
        Map<String, Object> ordered = new LinkedHashMap<>();
        for (String name : kind.names) {
            ordered.put(name, fields.asMap().get(name));
        }
        return Msgpack.pack(Arrays.asList(kind.code, ordered));
    }

    /** Reads a frame's body. Exactly the fields of its kind must be there. */
    public static Message unpack(byte[] body) throws ProtocolException {
        Object value = Msgpack.unpack(body);
        List<?> pair = value instanceof List ? (List<?>) value : Collections.emptyList();
        if (pair.size() != 2 || !(pair.get(0) instanceof Long)) {
            throw new ProtocolException("not a message [code, fields]: bytes=" + body.length);
        }
        Kind kind = Kind.of((Long) pair.get(0));
        Fields fields = Fields.parse(kind.name(), pair.get(1));
        if (!fields.asMap().keySet().equals(new HashSet<>(kind.names))) {
            throw new ProtocolException("fields of " + kind + " are not its own: fields="
                    + fields.asMap().keySet() + ", expected=" + kind.names);
        }
        return new Message(kind, fields);
    }

    @Override
    public String toString() {
        return kind.name();
    }
}
