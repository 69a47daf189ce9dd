package org.mpca.bridge;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.mpca.agent.FilePipe;
import org.mpca.agent.FileReads;
import org.mpca.agent.LaunchSpec;
import org.mpca.rdd.HadoopClients;
import org.mpca.rdd.HadoopReads;
import org.mpca.rdd.RunDriver;
import org.mpca.wire.Msgpack;
import org.mpca.wire.ProtocolException;

/**
 * The whole door for Python, one object a run: plain types in and out, one typed method of {@code mpca/spark/jvm/bridge.py}
 * for each of these. Structured values travel as msgpack; bulk lies in memory files of the Python driver, which are opened by
 * their paths under /proc, and never passes through py4j.
 *
 * <p>May be called from any thread; only {@link #poll} waits.
 */
public final class MpcaBridge {
    private final String run;
    private final Inbox inbox;
    private final RunDriver driver;

    /**
     * @param context the session's SparkContext, which has {@link MpcaPlugin} among its plug-ins
     * @param run name of the run, unique in the session
     * @param term attempt of the driver
     * @param reducer "ranges" or "tree"
     * @param broadcast "relay" or "torrent"
     * @param chunkBytes what a shard is cut into, at most; smaller where a range would get fewer than eight
     * @param ownerPath /proc/PID/fd/N, which is there as long as Python holds this run
     */
    public MpcaBridge(
            SparkContext context,
            String run,
            int term,
            String reducer,
            String broadcast,
            int chunkBytes,
            String ownerPath)
            throws IOException {
        this.run = run;
        this.inbox = Inbox.current();
        FileChannel.open(Paths.get(ownerPath)).close(); // where this JVM may not open Python's files, no run begins
        inbox.subscribe(run, Paths.get(ownerPath)); // first: one that is refused takes nothing from who has the name
        try {
            this.driver =
                    new RunDriver(context, run, term, reducer, broadcast, chunkBytes, inbox::executors, inbox::post);
        } catch (RuntimeException e) {
            inbox.unsubscribe(run);
            throw e;
        }
        inbox.serve(run, driver.server());
    }

    /** Files of HDFS below one folder, for a store of Python's; also before there is a run. See HadoopFiles for `ownersAlone`. */
    public static HadoopFiles files(SparkContext context, String url, String segmentPath, boolean ownersAlone)
            throws IOException {
        return new HadoopFiles(context.hadoopConfiguration(), url, segmentPath, ownersAlone);
    }

    /** Until when HDFS takes this JVM for its user: msgpack of {@link HdfsTokens#held}. */
    public static byte[] tokens() throws IOException {
        return Msgpack.pack(HdfsTokens.held());
    }

    /** See {@link HdfsTokens#goodFor}. */
    public static long tokensGoodFor(SparkContext context, String principal, String keytab)
            throws IOException, InterruptedException {
        return HdfsTokens.goodFor(context.hadoopConfiguration(), principal, keytab);
    }

    /** Reads files of HDFS for the evaluator, a process of this machine, until it ends: see FilePipe for the arguments. */
    public static void serveFiles(
            SparkContext context, int pid, int requestsFd, int answersFd, int memoryFd, int memoryBytes)
            throws IOException {
        FileReads reads = new HadoopReads(new HadoopClients(context::hadoopConfiguration));
        FilePipe.open(pid, new int[] {requestsFd, answersFd, memoryFd}, memoryBytes, reads, "mpca-evaluator");
    }

    /**
     * Submits the holding job of one agent.
     *
     * @param spec msgpack {command: [text], parent: [text], env: {text: text}, start: bytes of the Start message}
     */
    public void startAgent(int agent, int incarnation, String executor, byte[] spec) throws ProtocolException {
        Map<?, ?> fields = (Map<?, ?>) Msgpack.unpack(spec);
        List<String> command = new ArrayList<>();
        ((List<?>) fields.get("command")).forEach(word -> command.add((String) word));
        List<String> parent = new ArrayList<>();
        ((List<?>) fields.get("parent")).forEach(word -> parent.add((String) word));
        Map<String, String> env = new LinkedHashMap<>();
        ((Map<?, ?>) fields.get("env")).forEach((name, value) -> env.put((String) name, (String) value));
        driver.startAgent(
                executor,
                new LaunchSpec(run, agent, incarnation, command, parent, env, (byte[]) fields.get("start"), null));
    }

    /** Submits an order, packed by {@code Order.pack}. Events: OrderDone or OrderFailed, Acknowledged. */
    public void submit(byte[] order) throws ProtocolException {
        driver.submit(order);
    }

    /** Ends an order's job; OrderFailed follows. */
    public void cancel(int order, String reason) {
        driver.cancel(order, reason);
    }

    /** Writes the sum of a finished order into a file, from its start on, and frees it. */
    public void takeSum(int order, int length, String path) throws IOException {
        try (FileChannel to = FileChannel.open(Paths.get(path), StandardOpenOption.WRITE)) {
            driver.takeSum(order, length, to);
        }
    }

    /** Makes the first `length` bytes of a file a broadcast; its id. */
    public int publish(String path, int length) throws IOException {
        try (FileChannel from = FileChannel.open(Paths.get(path))) {
            return driver.publish(length, from);
        }
    }

    /**
     * The same, of a joint state that is a base from now on or is encoded: {@link RunDriver#publish(int,
     * java.nio.channels.FileChannel, int, long, int, String, long, long, boolean)}.
     *
     * @return msgpack [broadcast, CRC-32 of what comes out of it]
     */
    public byte[] publishJoint(
            String path,
            int length,
            int shard,
            long version,
            int parameters,
            String codec,
            long baseVersion,
            long baseCrc,
            boolean replaces)
            throws IOException {
        try (FileChannel from = FileChannel.open(Paths.get(path))) {
            long[] made =
                    driver.publish(length, from, shard, version, parameters, codec, baseVersion, baseCrc, replaces);
            return Msgpack.pack(Arrays.asList(made[0], made[1]));
        }
    }

    /** Frees a broadcast on the driver. */
    public void withdraw(int broadcast) {
        driver.withdraw(broadcast);
    }

    /** Writes what an agent sent by an exchange into a file, from its start on, and frees it. */
    public void takeSent(int agent, int incarnation, int number, String path, int length) throws IOException {
        try (FileChannel to = FileChannel.open(Paths.get(path), StandardOpenOption.WRITE)) {
            driver.takeSent(agent, incarnation, number, length, to);
        }
    }

    /**
     * Answers an exchange with the first `length` bytes of a file.
     *
     * @param mode of the Install: "install" or "replace"
     * @param share goes into the Install as its alpha
     */
    public void answer(
            int agent, int incarnation, int number, String path, int length, long version, String mode, double share)
            throws IOException {
        try (FileChannel from = FileChannel.open(Paths.get(path))) {
            driver.answer(agent, incarnation, number, length, from, version, mode, share);
        }
    }

    /** Asks these executors which agents live. Events: AgentsFound, one of each that answers. */
    public void rediscover(List<String> executors) {
        driver.rediscover(executors);
    }

    /** Events since the last call, oldest first: msgpack [bytes of a map with `kind` and that class's fields, ...]. */
    public byte[] poll(long timeoutMs) throws InterruptedException {
        return Msgpack.pack(inbox.poll(run, timeoutMs));
    }

    /** What of any run lies on the driver and each executor: msgpack [{executor, blocks, broadcasts, threads, ...}]. */
    public byte[] inventory() throws Exception {
        return Msgpack.pack(driver.inventory());
    }

    /** Kills what is left and frees everything, within seconds; safe to call twice. */
    public void close() throws InterruptedException {
        driver.close();
        inbox.unsubscribe(run);
    }
}
