package org.mpca.rdd;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.Partition;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.scheduler.Task;
import org.apache.spark.scheduler.TaskDescription;
import org.mpca.reduce.ChunkPlan;
import org.mpca.reduce.Scattered;
import org.mpca.wire.Answer;
import org.mpca.wire.Event;
import org.mpca.wire.Msgpack;
import org.mpca.wire.Order;
import scala.Tuple2;

/**
 * Executors that answer without computing, for {@code mpca bench scale} alone: K of them in one JVM beside the driver's, over
 * Spark's own RPC. To the driver they are executors: they register, take the tasks that Spark's scheduler gives them, and
 * say what ours would say, in as many messages. What they leave out: agents, bytes between executors, and heartbeats.
 *
 * <p>An agent takes four updates between two snapshots of a shard. Sums are zeros, pushed as ours are. The closure of a job is read
 * once from the driver, and each other executor says and asks what it would if it had read it from a peer.
 *
 * <p>Concurrency: tasks run in a few threads; tables are concurrent.
 */
public final class FakeExecutors {
    private static final int CORES = 2;
    private static final int TAU = 4;
    private static final int THREADS = 4;
    private static final long PROGRESS_EVERY = 500;
    /** Python's None, pickled. */
    private static final byte[] NONE = {(byte) 0x80, 5, 'N', '.'};

    /** Messages of our plug-in, whose classes are its own. */
    public interface Plugin {
        Serializable hello(Peer self);

        Serializable packed(String run, byte[] event);
    }

    /** One agent that is said to train. */
    private static final class Agent {
        final String run;
        final int number;
        final int incarnation;
        volatile boolean begun;
        volatile int steps;

        Agent(String run, int number, int incarnation) {
            this.run = run;
            this.number = number;
            this.incarnation = incarnation;
        }
    }

    private final SparkEnv env;
    private final FakeWire wire;
    private final Plugin plugin;
    private final int count;
    private final int elements;
    private final int shards;
    private final Map<Integer, Agent> agents = new ConcurrentHashMap<>();
    /** By run, broadcast and first piece. */
    private final Map<String, Arriving> arriving = new ConcurrentHashMap<>();

    private final Map<Long, byte[]> closures = new ConcurrentHashMap<>();
    private final ExecutorService threads = Executors.newFixedThreadPool(THREADS, work -> Threads.daemon("fake", work));
    private final ScheduledExecutorService clock =
            Executors.newSingleThreadScheduledExecutor(work -> Threads.daemon("fake-clock", work));
    private final AtomicLong taskBytes = new AtomicLong();
    private final AtomicLong closureBytes = new AtomicLong();
    private final AtomicLong tasks = new AtomicLong();

    /**
     * @param conf of the driver's session
     * @param count how many
     * @param elements of the model that their agents are said to have
     */
    public FakeExecutors(SparkConf conf, Plugin plugin, int count, int elements, int shards) {
        this.env = FakeWire.env(conf);
        this.wire = new FakeWire(env);
        this.plugin = plugin;
        this.count = count;
        this.elements = elements;
        this.shards = shards;
    }

    /** Registers them, and says hello for each. */
    public void start() throws Exception {
        Peer self = SparkInternals.self();
        SparkInternals.take(this::pushed);
        for (int i = 1; i <= count; i++) {
            String executor = Integer.toString(i);
            Peer peer = new Peer(executor, "host-" + i, 7000);
            wire.register(peer, CORES, data -> threads.execute(() -> run(peer, data)));
            wire.plugin(plugin.hello(new Peer(executor, self.host, self.port))); // where the driver pushes to
        }
        clock.scheduleAtFixedRate(this::progress, PROGRESS_EVERY, PROGRESS_EVERY, TimeUnit.MILLISECONDS);
    }

    /** Totals since the start, by name. */
    public Map<String, Object> totals() {
        Map<String, Object> all = new LinkedHashMap<>(wire.totals());
        all.put("tasks", tasks.get());
        all.put("task_bytes", taskBytes.get());
        all.put("closure_bytes", closureBytes.get());
        return all;
    }

    private void progress() {
        for (Agent agent : agents.values()) {
            if (agent.begun) {
                agent.steps++;
                Map<String, Object> fields = new HashMap<>();
                fields.put("steps", agent.steps);
                fields.put("samples", agent.steps);
                fields.put("train_s", 0.5 * agent.steps);
                fields.put("pause_s", 0.0);
                fields.put("metrics", Collections.emptyMap());
                tell(agent.run, Event.agentProgress(agent.number, agent.incarnation, fields));
            }
        }
    }

    private void tell(String run, Event event) {
        wire.plugin(plugin.packed(run, event.pack()));
    }

    // ---- tasks
    // --------------------------------------------------------------------------------------------------------

    private void run(Peer here, ByteBuffer data) {
        try {
            taskBytes.addAndGet(data.remaining());
            tasks.incrementAndGet();
            TaskDescription what = TaskDescription.decode(data);
            String job = what.properties().getProperty(JobWatch.TOKEN);
            String run = job.substring(0, job.indexOf('/'));
            String[] token = job.substring(run.length() + 1).split("/");
            wire.running(here.executor, what.taskId());
            if (token[0].equals("hold")) {
                hold(here, new Agent(run, Integer.parseInt(token[1]), Integer.parseInt(token[2])));
                return;
            }
            Task<?> task = wire.task(what.serializedTask());
            Broadcast<?> closure = (Broadcast<?>) SparkInternals.held(task, Task.class, Broadcast.class);
            byte[] said = token[0].equals("order") ? order(here, task, closure) : Msgpack.pack(Collections.emptyList());
            wire.finished(here.executor, what.taskId(), task, said);
        } catch (Exception e) {
            e.printStackTrace();
        }
    }

    private void hold(Peer here, Agent agent) {
        agents.put(agent.number, agent);
        Map<String, Object> hello = new LinkedHashMap<>();
        hello.put("agent", agent.number);
        hello.put("incarnation", agent.incarnation);
        hello.put("pid", 1000 + agent.number);
        for (String version : new String[] {"python", "torch", "mpca"}) {
            hello.put(version, "0");
        }
        hello.put("x0_hash", "x0");
        List<Object> row = new ArrayList<>();
        Collections.addAll(row, "w", new int[] {elements}, "parameter", 0);
        hello.put("layout", Collections.singletonList(row));
        hello.put("local", Collections.emptyMap());
        hello.put("tied", Collections.emptyMap());
        int[] bounds = new int[shards + 1];
        for (int s = 0; s <= shards; s++) {
            bounds[s] = (int) ((long) elements * s / shards);
        }
        hello.put("bounds", bounds);
        hello.put("parameters", elements);
        hello.put("segment_fd", 3);
        hello.put("segment_bytes", 4096);
        hello.put("slots", new int[0]);
        tell(agent.run, Event.agentHello(here.executor, here.host, hello));
    }

    private byte[] closure(Peer here, Broadcast<?> closure) {
        if (closure instanceof CarriedClosures.Carried) {
            byte[] bytes = (byte[]) closure.value();
            closureBytes.addAndGet(bytes.length);
            return bytes;
        }
        boolean[] first = new boolean[1];
        byte[] bytes = closures.computeIfAbsent(closure.id(), id -> {
            first[0] = true;
            return (byte[]) closure.value();
        });
        if (!first[0]) {
            wire.reads(here, closure.id(), bytes.length);
        }
        closureBytes.addAndGet(bytes.length);
        closures.keySet().removeIf(id -> id < closure.id() - 8);
        return bytes;
    }

    private byte[] order(Peer here, Task<?> task, Broadcast<?> closure) throws Exception {
        Tuple2<?, ?> both = (Tuple2<?, ?>) wire.read(ByteBuffer.wrap(closure(here, closure)));
        OrderPlan plan = ((ModelStateRDD) both._1()).plan();
        plan.enter(PinnedRDD.brings((Partition) SparkInternals.held(task, Task.class, Partition.class)));
        Order order = plan.order();
        order.begin.forEach(agent -> agents.get(agent.agent).begun = true);
        for (Order.Stop stop : order.stop) {
            agents.get(stop.agent.agent).begun = false;
            tell(order.run, Event.agentFinished(here.executor, stop.agent.agent, stop.agent.incarnation, NONE));
        }
        for (int d = 0; d < order.downloads.size(); d++) {
            download(here, order, order.downloads.get(d), plan.sources[d]);
        }
        Answer answer = new Answer();
        answer.executor = here.executor;
        answer.host = here.host;
        if (order.reduce != null) {
            answer.reduceStart = RunDriver.now();
            answer.bytesOut = push(here, order, plan);
            answer.reduceEnd = RunDriver.now();
        }
        if (order.freeze != null) {
            for (Order.AgentRef agent : order.freeze.agents) {
                // Nobody has made an update before all have begun: x_0 is read so.
                int tau = agents.get(agent.agent).begun ? TAU : 0;
                double now = RunDriver.now();
                answer.frozen.add(new Answer.Frozen(agent.agent, agent.incarnation, tau, 7, true, 1.0, now, now));
                answer.weight += order.freeze.weight(tau);
            }
        }
        return OrderJob.seal(order.order, answer.pack());
    }

    private void download(Peer here, Order order, Order.Download what, BroadcastSource source) {
        if (what.agents.isEmpty()) {
            return;
        }
        double start = RunDriver.now();
        List<String> own = ((RelayBroadcast.Source) source).ownPieces((int) what.broadcast, what.length, here.executor);
        Runnable said = () -> {
            for (Order.AgentRef agent : what.agents) {
                tell(
                        order.run,
                        Event.acknowledged(
                                what.broadcast, here.executor, agent, start, RunDriver.now(), what.length, 0));
            }
        };
        if (own.isEmpty()) {
            said.run();
            return;
        }
        if (((RelayBroadcast.Source) source).brings) {
            int first = BlockNames.number(own.get(0));
            String key = BlockNames.ofRun(order.run) + what.broadcast + "/" + first;
            arriving(key).whole(own.size(), () -> {
                arriving.remove(key);
                threads.execute(said);
            });
            return;
        }
        AtomicLong missing = new AtomicLong(own.size());
        CheckedBlocks.fetch(((RelayBroadcast.Source) source).driver, own, new SparkInternals.FetchListener() {
            @Override
            public void arrived(String name, Scattered bytes) {
                if (missing.decrementAndGet() == 0) {
                    threads.execute(said);
                }
            }

            @Override
            public void failed(String name, Throwable cause) {
                cause.printStackTrace();
            }
        });
    }

    /** Pieces that the driver pushes for one of the executors, by its key. */
    private Arriving arriving(String key) {
        return arriving.computeIfAbsent(key, name -> new Arriving());
    }

    /** All executors are reached at one address: the first piece says for whom a push is. */
    private Uploads.Sink pushed(String stream) {
        PushName name = PushName.of(stream);
        return name == null
                ? null
                : new Uploads.Sink() {
                    @Override
                    public void come(ByteBuffer bytes) {}

                    @Override
                    public void end() {
                        int owner = name.pieces().get(0) % name.step();
                        arriving(name.run + name.broadcast() + "/" + owner)
                                .come(name.pieces().size());
                    }
                };
    }

    /** Counts pieces, in any order with the task that says how many there are. */
    private static final class Arriving {
        private int here;
        private int pieces;
        private Runnable then;

        synchronized void come(int more) {
            here += more;
            tell();
        }

        synchronized void whole(int number, Runnable next) {
            pieces = number;
            then = next;
            tell();
        }

        private void tell() {
            if (then != null && here >= pieces) {
                then.run();
                then = null;
            }
        }
    }

    /** Pushes zeros for this executor's range of the sum, as {@link RangesStep} does; how many bytes. */
    private long push(Peer here, Order order, OrderPlan plan) throws InterruptedException {
        ChunkPlan grid = plan.reduceGrid(order.reduce.length);
        int me = order.executors.indexOf(here.executor);
        int first = (int) ((long) grid.chunks() * me / order.executors.size());
        int end = (int) ((long) grid.chunks() * (me + 1) / order.executors.size());
        long bytes = 0;
        CountDownLatch pushed = new CountDownLatch(end - first);
        for (int chunk = first; chunk < end; chunk++) {
            byte[] zeros = new byte[grid.length(chunk) + CheckedBlocks.TRAILER_BYTES];
            bytes += grid.length(chunk);
            CheckedBlocks.stream(
                    plan.driver,
                    new BlockNames(order.run, order.term).sum(order.order) + chunk,
                    zeros,
                    failure -> pushed.countDown());
        }
        pushed.await();
        return bytes;
    }
}
