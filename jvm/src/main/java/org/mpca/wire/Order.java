package org.mpca.wire;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/**
 * What the driver tells the executors: one Order a Spark job, carried packed in its closure. The twin of
 * {@code mpca/wire/orders.py}, which says in what sequence a task does the parts.
 *
 * <p>Concurrency: immutable.
 */
public final class Order {
    /** Serial number of the job, never reused in a run. */
    public final int order;

    public final String run;
    /** Attempt of the driver. */
    public final int term;

    public final int cycle;
    /** Seconds of the driver's monotonic clock: every wait on an executor ends before it. */
    public final double deadline;
    /** One task on each, in this sequence. */
    public final List<String> executors;

    public final String description;
    public final List<AgentRef> begin;
    public final List<Stop> stop;
    /** Yields and chunks of this cycle and before are dropped. */
    public final int forgetCycle;

    public final List<Long> forgetBroadcasts;
    public final List<Download> downloads;
    /** Null when nothing is summed. */
    public final Reduce reduce;
    /** Null when nothing is frozen. */
    public final Freeze freeze;
    /** Null when no agent needs them. */
    public final Readers readers;
    /** Null when nothing is cut. */
    public final Cut cut;
    /** Null when nothing is saved. */
    public final Save save;
    /** With {@link Freeze#carries}. */
    public final List<Carried> carried;
    /** What executors without any base of a shard fetch from the driver, in the background. */
    public final List<BaseInFull> bases;

    private Order(Fields fields) throws ProtocolException {
        order = fields.integer("order");
        run = fields.text("run");
        term = fields.integer("term");
        cycle = fields.integer("cycle");
        deadline = fields.real("deadline");
        executors = texts(fields, "executors");
        description = fields.text("description");
        begin = agents(fields, "begin");
        stop = stops(fields, "stop");
        forgetCycle = fields.integer("forget_cycle");
        forgetBroadcasts = Collections.unmodifiableList(fields.numbers("forget_broadcasts"));
        List<Download> all = new ArrayList<>();
        for (Object one : fields.list("downloads")) {
            all.add(new Download(Fields.parse("Order.downloads", one)));
        }
        downloads = Collections.unmodifiableList(all);
        reduce = fields.has("reduce")
                ? new Reduce(Fields.parse("Order.reduce", fields.asMap().get("reduce")))
                : null;
        freeze = fields.has("freeze")
                ? new Freeze(Fields.parse("Order.freeze", fields.asMap().get("freeze")))
                : null;
        readers = fields.has("readers")
                ? new Readers(Fields.parse("Order.readers", fields.asMap().get("readers")))
                : null;
        cut = fields.has("cut")
                ? new Cut(Fields.parse("Order.cut", fields.asMap().get("cut")))
                : null;
        save = fields.has("save")
                ? new Save(Fields.parse("Order.save", fields.asMap().get("save")))
                : null;
        List<Carried> newest = new ArrayList<>();
        for (Object one : fields.list("carried")) {
            newest.add(new Carried(one));
        }
        carried = Collections.unmodifiableList(newest);
        List<BaseInFull> wanted = new ArrayList<>();
        for (Object one : fields.list("bases")) {
            wanted.add(new BaseInFull(one));
        }
        bases = Collections.unmodifiableList(wanted);
    }

    /** Reads the packed form that {@code Order.pack} of Python makes. */
    public static Order unpack(byte[] packed) throws ProtocolException {
        return new Order(Fields.parse("Order", Msgpack.unpack(packed)));
    }

    /** Takes the fields of such a form that were unpacked already. */
    public static Order of(Map<String, Object> fields) throws ProtocolException {
        return new Order(Fields.parse("Order", fields));
    }

    /** One incarnation of an agent, and the executor where the driver believes it. */
    public static final class AgentRef {
        public final String executor;
        public final int agent;
        public final int incarnation;

        AgentRef(String executor, int agent, int incarnation) {
            this.executor = executor;
            this.agent = agent;
            this.incarnation = incarnation;
        }
    }

    /** An agent that is to finish, and why. */
    public static final class Stop {
        public final AgentRef agent;
        public final String reason;

        Stop(AgentRef agent, String reason) {
            this.agent = agent;
            this.reason = reason;
        }
    }

    /** What of a shard travels is a difference from this base, encoded ({@code org.mpca.reduce.Codec}), and not float32. */
    public static final class Coded {
        public final String codec;
        /** Of the base, which has the shard's number and the order's term. */
        public final long version;
        /** CRC-32 of the base. */
        public final long crc;
        /** Of the shard; the elements behind them are buffers. */
        public final int parameters;
        /** Bytes of the base. */
        public final int length;

        private Coded(Fields fields) throws ProtocolException {
            codec = fields.text("codec");
            version = fields.number("version");
            crc = fields.number("crc");
            parameters = fields.integer("parameters");
            length = fields.integer("length");
        }

        static Coded in(Fields fields, String owner) throws ProtocolException {
            return fields.has("coded")
                    ? new Coded(Fields.parse(owner, fields.asMap().get("coded")))
                    : null;
        }
    }

    /** A base that executors without any of its shard fetch from the driver. */
    public static final class BaseInFull {
        public final int shard;
        public final long version;
        public final long crc;
        /** Bytes. */
        public final int length;

        BaseInFull(Object value) throws ProtocolException {
            List<?> row = value instanceof List ? (List<?>) value : Collections.emptyList();
            if (row.size() != 4 || !row.stream().allMatch(one -> one instanceof Long)) {
                throw new ProtocolException("Order.bases holds no [shard, version, crc, length]: " + value);
            }
            shard = ((Long) row.get(0)).intValue();
            version = (Long) row.get(1);
            crc = (Long) row.get(2);
            length = ((Long) row.get(3)).intValue();
        }
    }

    /** The newest cycle whose sum the driver took with this executor's part, of the shard that the order freezes. */
    public static final class Carried {
        public final String executor;
        public final int cycle;

        Carried(Object value) throws ProtocolException {
            List<?> row = value instanceof List ? (List<?>) value : Collections.emptyList();
            if (row.size() != 2 || !(row.get(0) instanceof String) || !(row.get(1) instanceof Long)) {
                throw new ProtocolException("Order.carried holds no [executor, cycle]: " + value);
            }
            executor = (String) row.get(0);
            cycle = ((Long) row.get(1)).intValue();
        }
    }

    /** What one executor adds to a sum: the weighted mean of its own agents' shard, frozen before. */
    public static final class Part {
        public final String executor;
        /** Sum of {@link Freeze#weight} over its agents; 1.0 when x_0 is read. */
        public final double weight;

        Part(Fields fields) throws ProtocolException {
            executor = fields.text("executor");
            weight = fields.real("weight");
        }
    }

    /** R = sum_e (weight_e / sum weight) * part_e, parts added in the order given, float32 with float64 weights. */
    public static final class Reduce {
        public final int cycle;
        public final int shard;
        /** Bytes. */
        public final int length;

        public final List<Part> parts;
        /** Null when float32 travels. */
        public final Coded coded;
        /** The newest order of the shard whose sum the driver took: what its rounding left is added. */
        public final int after;

        Reduce(Fields fields) throws ProtocolException {
            cycle = fields.integer("cycle");
            shard = fields.integer("shard");
            length = fields.integer("length");
            List<Part> all = new ArrayList<>();
            for (Object one : fields.list("parts")) {
                all.add(new Part(Fields.parse("Order.reduce.parts", one)));
            }
            parts = Collections.unmodifiableList(all);
            coded = Coded.in(fields, "Order.reduce.coded");
            after = fields.integer("after");
        }
    }

    /** Materialise the yield of (cycle, shard) of these agents; those that do not answer by the deadline are late. */
    public static final class Freeze {
        public final int cycle;
        public final int shard;
        public final List<AgentRef> agents;
        /** "updates" or "equal": how much a snapshot counts in the sum. */
        public final String weights;
        /** Null when float32 travels. */
        public final Coded coded;
        /** "dropped", "answered" or "carried": what becomes of that which rounding leaves of an executor's part. */
        public final String rests;

        Freeze(Fields fields) throws ProtocolException {
            cycle = fields.integer("cycle");
            shard = fields.integer("shard");
            agents = agents(fields, "agents");
            weights = fields.text("weights");
            coded = Coded.in(fields, "Order.freeze.coded");
            rests = fields.text("rests");
        }

        /** Agents get it back with the next joint state. */
        public boolean answers() {
            return rests.equals("answered");
        }

        /** It is added to the executor's next part. */
        public boolean carries() {
            return rests.equals("carried");
        }

        /** Of a snapshot after {@code tau} updates; 0 after none, however snapshots count. */
        public double weight(int tau) {
            return weights.equals("updates") ? tau : Math.min(tau, 1);
        }
    }

    /** Who reads the data, for agents that have not been told this version. What it says is Python's alone. */
    public static final class Readers {
        public final int version;
        public final Map<?, ?> readers;
        public final List<AgentRef> agents;

        Readers(Fields fields) throws ProtocolException {
            version = fields.integer("version");
            readers = fields.map("readers");
            agents = agents(fields, "agents");
        }
    }

    /** Agents that have not begun: they cut the model into so many shards and say Hello anew. */
    public static final class Cut {
        public final int shards;
        public final List<AgentRef> agents;

        Cut(Fields fields) throws ProtocolException {
            shards = fields.integer("shards");
            agents = agents(fields, "agents");
        }
    }

    /** Agents that copy what is their own; their executors then write it to files, in the background. */
    public static final class Save {
        public final int number;
        public final List<AgentRef> agents;
        /** The file of each, in the same sequence. */
        public final List<String> urls;

        Save(Fields fields) throws ProtocolException {
            number = fields.integer("number");
            agents = agents(fields, "agents");
            urls = texts(fields, "urls");
            if (urls.size() != agents.size()) {
                throw new ProtocolException("Order.save has not one file for each agent: agents=" + agents.size()
                        + ", urls=" + urls.size());
            }
        }
    }

    /** A broadcast to fetch in the background and hand to agents between two of their batches. */
    public static final class Download {
        public final long broadcast;
        public final int shard;
        /** Exchange number of the shard. */
        public final long version;
        /** "install" or "replace". */
        public final String mode;
        /** Bytes. */
        public final int length;

        public final List<AgentRef> agents;
        /** Strength of the pull towards it; goes into Install. */
        public final double alpha;
        /** Null when float32 travels. */
        public final Coded coded;
        /** CRC-32 of what agents get, if it is a base from now on ({@link #makesBase}) or was encoded; else 0. */
        public final long result;

        Download(Fields fields) throws ProtocolException {
            broadcast = fields.number("broadcast");
            shard = fields.integer("shard");
            version = fields.number("version");
            mode = fields.text("mode");
            length = fields.integer("length");
            agents = agents(fields, "agents");
            alpha = fields.real("alpha");
            coded = Coded.in(fields, "Order.downloads.coded");
            result = fields.number("result");
        }

        /**
         * Whether what comes out is a base from now on. An executor that lacks the base of an encoded one then fetches this result
         * in full; else, since it is for agents that join, that base.
         */
        public boolean makesBase() {
            return result != 0 && (coded == null || !mode.equals("replace"));
        }
    }

    private static List<String> texts(Fields fields, String name) throws ProtocolException {
        List<String> texts = new ArrayList<>();
        for (Object one : fields.list(name)) {
            if (!(one instanceof String)) {
                throw new ProtocolException("Order." + name + " holds something that is not text: " + one);
            }
            texts.add((String) one);
        }
        return Collections.unmodifiableList(texts);
    }

    private static List<AgentRef> agents(Fields fields, String name) throws ProtocolException {
        List<AgentRef> agents = new ArrayList<>();
        for (Object one : fields.list(name)) {
            agents.add(agent(name, one, 3));
        }
        return Collections.unmodifiableList(agents);
    }

    private static List<Stop> stops(Fields fields, String name) throws ProtocolException {
        List<Stop> stops = new ArrayList<>();
        for (Object one : fields.list(name)) {
            AgentRef agent = agent(name, one, 4);
            stops.add(new Stop(agent, (String) ((List<?>) one).get(3)));
        }
        return Collections.unmodifiableList(stops);
    }

    /** From a row of `length` values; the one behind the incarnation is a reason. */
    private static AgentRef agent(String name, Object value, int length) throws ProtocolException {
        List<?> row = value instanceof List ? (List<?>) value : Collections.emptyList();
        if (row.size() != length
                || !(row.get(0) instanceof String)
                || !(row.get(1) instanceof Long)
                || !(row.get(2) instanceof Long)
                || (length > 3 && !(row.get(3) instanceof String))) {
            throw new ProtocolException("Order." + name + " holds no [executor, agent, incarnation"
                    + (length > 3 ? ", reason]: " : "]: ") + value);
        }
        return new AgentRef((String) row.get(0), ((Long) row.get(1)).intValue(), ((Long) row.get(2)).intValue());
    }
}
