package org.mpca.rdd;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.mpca.reduce.ChunkPlan;
import org.mpca.wire.Msgpack;
import org.mpca.wire.Order;
import org.mpca.wire.ProtocolException;

/**
 * An order with what its tasks need beside it and the driver's Python need not know: addresses, which earlier order
 * froze which part, how shards are cut, and where broadcasts come from.
 *
 * <p>Spark brings the closure of a job to every executor, and each partition to its own alone. So what names agents travels
 * in partitions, each with its executor's agents; the closure names executors by their position in a {@link PeerTable}. All
 * that grows in it with the executors is the weight of each part.
 *
 * <p>Concurrency: each task has a copy of its own, which knows its order when it has been {@link #enter entered}.
 */
final class OrderPlan implements Serializable {
    private static final long serialVersionUID = 1;

    /** Fields of an order that are rows of [executor, ...]. */
    private static final List<String> ROWS = Arrays.asList("begin", "stop", "carried");
    /** Those that hold such rows under "agents". */
    private static final List<String> WITH_AGENTS = Arrays.asList("freeze", "readers", "cut", "save");

    /** The order without its agents, and with positions for executors. */
    private final byte[] common;

    private final PeerTable table;
    final Peer driver;
    /** In how many ranges the shards of the reduce and of the freeze are cut: the same for all parts of one cycle. */
    private final int reduceRanges;

    private final int freezeRanges;
    private final int chunkBytes;
    /** By position in {@code Order.downloads}. */
    final BroadcastSource[] sources;

    private transient Order order;
    /** Block managers of the order's executors and of those that hold a part, by executor id. */
    transient Map<String, Peer> peers;
    /** The order that froze each part of the reduce, by position; empty without a reduce. */
    transient int[] partOrders;
    /** On the driver: what each executor's partition brings. */
    private transient Map<String, byte[]> own;

    /**
     * @param order what `packed` says
     * @param peers all executors that the order names as its own or as holding a part
     * @param table has all of them
     */
    OrderPlan(
            Order order,
            byte[] packed,
            Map<String, Peer> peers,
            PeerTable table,
            Peer driver,
            int[] partOrders,
            int reduceRanges,
            int freezeRanges,
            int chunkBytes,
            BroadcastSource[] sources)
            throws ProtocolException {
        if (order.freeze != null) {
            Set<String> asked = new HashSet<>(order.executors);
            for (Order.AgentRef agent : order.freeze.agents) {
                if (!asked.contains(agent.executor)) {
                    throw new IllegalArgumentException(
                            "order " + order.order + " freezes agent " + agent.agent + " of executor " + agent.executor
                                    + ", which is not among its executors " + order.executors);
                }
            }
        }
        this.order = order;
        this.peers = peers;
        this.table = table;
        this.driver = driver;
        this.partOrders = partOrders;
        this.reduceRanges = reduceRanges;
        this.freezeRanges = freezeRanges;
        this.chunkBytes = chunkBytes;
        this.sources = sources;
        Map<String, Map<String, Object>> shares = new HashMap<>();
        peers.keySet().forEach(executor -> shares.put(executor, new LinkedHashMap<>()));
        this.common = Msgpack.pack(split(packed, shares));
        this.own = new HashMap<>();
        shares.forEach((executor, share) -> own.put(executor, Msgpack.pack(share)));
    }

    // ---- on the driver: what goes where
    // -----------------------------------------------------------------------------------

    private Map<String, Object> split(byte[] packed, Map<String, Map<String, Object>> shares) throws ProtocolException {
        Map<String, Object> fields = copy(Msgpack.unpack(packed));
        fields.put("executors", table.pack(order.executors));
        for (String name : ROWS) {
            deal(name, (List<?>) fields.put(name, Collections.emptyList()), shares);
        }
        for (String name : WITH_AGENTS) {
            if (fields.get(name) != null) {
                Map<String, Object> some = copy(fields.get(name));
                List<?> rows = (List<?>) some.put("agents", Collections.emptyList());
                if (some.containsKey("urls")) { // one for each agent
                    rows = with(rows, (List<?>) some.put("urls", Collections.emptyList()));
                }
                deal(name, rows, shares);
                fields.put(name, some);
            }
        }
        List<Object> downloads = new ArrayList<>();
        for (Object one : (List<?>) fields.get("downloads")) {
            Map<String, Object> some = copy(one);
            deal("download" + downloads.size(), (List<?>) some.put("agents", Collections.emptyList()), shares);
            downloads.add(some);
        }
        fields.put("downloads", downloads);
        if (order.reduce != null) {
            Map<String, Object> some = copy(fields.get("reduce"));
            List<String> holders = new ArrayList<>();
            List<Object> weights = new ArrayList<>();
            for (Order.Part part : order.reduce.parts) {
                holders.add(part.executor);
                // Mostly a number of updates; a whole number is shorter, and is read as the same real one.
                weights.add(part.weight == (int) part.weight ? (Object) (int) part.weight : (Object) part.weight);
            }
            some.put("parts", table.pack(holders));
            some.put("weights", weights);
            some.put("orders", Runs.pack(Arrays.stream(partOrders).boxed().collect(Collectors.toList()), 0));
            fields.put("reduce", some);
        }
        return fields;
    }

    /** Gives each executor the rows that name it first. One that gets no task hears nothing. */
    private static void deal(String name, List<?> rows, Map<String, Map<String, Object>> shares) {
        for (Object row : rows) {
            Map<String, Object> share = shares.get((String) ((List<?>) row).get(0));
            if (share != null) {
                rows(share.computeIfAbsent(name, some -> new ArrayList<>())).add(row);
            }
        }
    }

    private static List<Object> with(List<?> rows, List<?> last) {
        List<Object> longer = new ArrayList<>();
        for (int i = 0; i < rows.size(); i++) {
            List<Object> row = new ArrayList<>((List<?>) rows.get(i));
            row.add(last.get(i));
            longer.add(row);
        }
        return longer;
    }

    /** What the partition of an executor brings to {@link #enter}. */
    byte[] own(String executor) {
        return own.get(executor);
    }

    // ---- on an executor
    // ---------------------------------------------------------------------------------------------------

    /** Makes this copy the one of the executor whose partition brought `own`: its order names that executor's agents alone. */
    void enter(byte[] own) throws ProtocolException {
        table.read();
        peers = table.byName();
        Map<String, Object> share = copy(Msgpack.unpack(own));
        Map<String, Object> fields = copy(Msgpack.unpack(common));
        fields.put("executors", names((List<?>) fields.get("executors")));
        for (String name : ROWS) {
            fields.put(name, share.getOrDefault(name, Collections.emptyList()));
        }
        for (String name : WITH_AGENTS) {
            if (fields.get(name) != null) {
                Map<String, Object> some = copy(fields.get(name));
                List<Object> agents = rows(share.getOrDefault(name, new ArrayList<>()));
                if (some.containsKey("urls")) {
                    some.put(
                            "urls",
                            agents.stream().map(row -> ((List<?>) row).get(3)).collect(Collectors.toList()));
                    agents = agents.stream()
                            .map(row -> ((List<?>) row).subList(0, 3))
                            .collect(Collectors.toList());
                }
                some.put("agents", agents);
                fields.put(name, some);
            }
        }
        List<Object> downloads = new ArrayList<>();
        for (Object one : (List<?>) fields.get("downloads")) {
            Map<String, Object> some = copy(one);
            some.put("agents", share.getOrDefault("download" + downloads.size(), Collections.emptyList()));
            downloads.add(some);
        }
        fields.put("downloads", downloads);
        partOrders = new int[0];
        if (fields.get("reduce") != null) {
            Map<String, Object> some = copy(fields.get("reduce"));
            List<String> holders = names((List<?>) some.get("parts"));
            List<?> weights = (List<?>) some.get("weights");
            List<Object> parts = new ArrayList<>();
            for (int p = 0; p < holders.size(); p++) {
                Map<String, Object> part = new LinkedHashMap<>();
                part.put("executor", holders.get(p));
                part.put("weight", weights.get(p));
                parts.add(part);
            }
            some.put("parts", parts);
            fields.put("reduce", some);
            partOrders = Runs.unpack((List<?>) some.get("orders"), 0).stream()
                    .mapToInt(Integer::intValue)
                    .toArray();
        }
        order = Order.of(fields);
    }

    private List<String> names(List<?> runs) {
        return table.unpack(runs).stream().map(peer -> peer.executor).collect(Collectors.toList());
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> copy(Object map) {
        return new LinkedHashMap<>((Map<String, Object>) map);
    }

    @SuppressWarnings("unchecked")
    private static List<Object> rows(Object list) {
        return (List<Object>) list;
    }

    // ---- what it says
    // -----------------------------------------------------------------------------------------------------

    /** How the shard of the reduce was cut when it was frozen. */
    ChunkPlan reduceGrid(int length) {
        return ChunkPlan.of(length, reduceRanges, chunkBytes);
    }

    /** How the shard of the freeze is cut. */
    ChunkPlan freezeGrid(int length) {
        return ChunkPlan.of(length, freezeRanges, chunkBytes);
    }

    /** On the driver the whole order; on an executor, after {@link #enter}, with that executor's agents alone. */
    Order order() {
        return order;
    }
}
