package org.mpca.rdd;

import io.netty.buffer.ByteBuf;
import io.netty.util.ReferenceCountUtil;
import java.io.IOException;
import java.io.Serializable;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.Dependency;
import org.apache.spark.SimpleFutureAction;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.broadcast.BroadcastFactory;
import org.apache.spark.broadcast.BroadcastManager;
import org.apache.spark.deploy.SparkHadoopUtil;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.buffer.NioManagedBuffer;
import org.apache.spark.network.client.RpcResponseCallback;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.client.TransportClientFactory;
import org.apache.spark.network.server.RpcHandler;
import org.apache.spark.network.server.TransportServer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.network.shuffle.protocol.UploadBlockStream;
import org.apache.spark.rdd.RDD;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.rpc.RpcTimeout;
import org.apache.spark.rpc.ThreadSafeRpcEndpoint;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.storage.BlockData;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockManager;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.storage.StorageLevel;
import org.apache.spark.storage.TestBlockId;
import org.apache.spark.util.RpcUtils;
import org.apache.spark.util.io.ChunkedByteBuffer;
import org.mpca.reduce.Scattered;
import scala.Function1;
import scala.Option;
import scala.PartialFunction;
import scala.Tuple2;
import scala.collection.JavaConverters;
import scala.collection.immutable.List$;
import scala.concurrent.ExecutionContext;
import scala.concurrent.ExecutionContext$;
import scala.concurrent.duration.FiniteDuration;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction0;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractFunction2;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;
import scala.util.Try;

/**
 * The one class that touches what Spark keeps to itself (private[spark], public in byte code) and Scala's collections.
 *
 * <p>Another Spark line is this file compiled again; {@code scala.collection.immutable.List} is used wherever 2.12 and
 * 2.13 disagree on {@code Seq}, and JavaConverters is all that both have. Nothing here decides anything. Measured traps
 * that shaped it:
 * <ul>
 * <li>Only heap arrays enter the block manager: eviction disposes of direct and mapped buffers, and the JVM dies.
 * <li>Blocks are TestBlockId's: the only free-form name that the serving side parses back.
 * <li>Our own chunks are never reported to the driver (tellMaster=false): peers are addressed directly, and a report is a
 *     synchronous word with the driver on the data path. They are removed with the flag they were put with, or the master's
 *     accounting stays wrong for ever.
 * <li>An executor's RpcEnv is a client's: nobody can call it. What executors tell each other goes where blocks go, to the
 *     one port that each listens at, with its authentication and encryption ({@link #take}).
 * <li>{@link #remove} waits without limit for readers: only {@link Sweeper} calls it.
 * </ul>
 * Safe from any thread; of the network's connections it keeps those to itself that streams have apart.
 */
@SuppressWarnings("deprecation") // JavaConverters, since 2.13
public final class SparkInternals {
    /** What Spark calls the driver where it names an executor. */
    static final String DRIVER = "driver";

    private static final String PREFIX = "test_";
    private static final ClassTag<byte[]> BYTES = ClassTag$.MODULE$.apply(byte[].class);
    private static final ExecutionContext HERE = ExecutionContext$.MODULE$.fromExecutor((Executor) Runnable::run);

    private SparkInternals() {}

    // ---- who and where
    // ------------------------------------------------------------------------------------------------

    /** This JVM's executor id; "driver" on the driver. */
    public static String executorId() {
        return SparkEnv.get().executorId();
    }

    /** Hadoop's configuration as the session has it, {@code spark.hadoop.*} included; also on an executor. */
    public static Configuration hadoop() {
        return SparkHadoopUtil.get().newConfiguration(SparkEnv.get().conf());
    }

    /** This JVM's block manager, as others reach it. */
    public static Peer self() {
        BlockManagerId id = SparkEnv.get().blockManager().blockManagerId();
        return new Peer(id.executorId(), id.host(), id.port(), Descriptors.limit());
    }

    // ---- blocks of this JVM
    // -------------------------------------------------------------------------------------------

    /** Stores heap buffers by reference, one behind the other; false if it was there already. They must not change any more. */
    static boolean put(String name, ByteBuffer... parts) {
        ChunkedByteBuffer bytes = new ChunkedByteBuffer(parts);
        // With disk behind it, a block that memory cannot hold is slow rather than gone.
        return blocks().putBytes(id(name), bytes, StorageLevel.MEMORY_AND_DISK_SER(), false, BYTES);
    }

    /** Takes a block's bytes, which are valid during the call only. */
    interface Reader {
        void read(ByteBuffer block) throws IOException;
    }

    /** Shows a block of this JVM to `reader`; false if there is no such block. */
    static boolean read(String name, Reader reader) throws IOException {
        BlockManager blocks = blocks();
        BlockId id = id(name);
        Option<BlockData> found = blocks.getLocalBytes(id);
        if (found.isEmpty()) {
            return false;
        }
        try {
            reader.read(found.get().toByteBuffer());
            return true;
        } finally {
            blocks.releaseLock(id, Option.<TaskContext>empty());
        }
    }

    /** Removes a block; blocks while somebody reads it, without a limit. For {@link Sweeper} alone. */
    static void remove(String name) {
        BlockId id = id(name);
        // Not getStatus: it looks for a file of the block's too, which takes a path and a call of the kernel for each.
        if (blocks().blockInfoManager().get(id).isDefined()) {
            blocks().removeBlock(id, false);
        }
    }

    /** Names of this JVM's blocks that start with `prefix`. */
    static List<String> matching(String prefix) {
        String full = PREFIX + prefix;
        List<String> names = new ArrayList<>();
        for (BlockId id : JavaConverters.asJavaIterable(blocks().getMatchingBlockIds(new StartsWith(full)))) {
            names.add(id.name().substring(PREFIX.length()));
        }
        return names;
    }

    /** How many blocks of Spark's own broadcasts this JVM holds, task binaries included. */
    static int broadcastBlocks() {
        return blocks().getMatchingBlockIds(new StartsWith("broadcast_")).size();
    }

    // ---- blocks of others
    // ---------------------------------------------------------------------------------------------

    /** What comes of a {@link #fetch}; called from network threads, which must not be held up. */
    interface FetchListener {
        /** `bytes` is valid during the call only. */
        void arrived(String name, Scattered bytes);

        /** It came damaged, and is asked for once more ({@link CheckedBlocks}). */
        default void damaged(String name) {}

        void failed(String name, Throwable cause);
    }

    /**
     * Asks a peer for blocks in one request; they come in order. Every one must exist: a missing one fails all after it.
     * Connecting may block for as long as the network's time-out, so this is not for a thread that must keep a deadline.
     */
    static void fetch(Peer peer, List<String> names, FetchListener listener) {
        String[] ids = new String[names.size()];
        for (int i = 0; i < ids.length; i++) {
            ids[i] = PREFIX + names.get(i);
        }
        blocks().blockTransferService()
                .fetchBlocks(
                        peer.host,
                        peer.port,
                        peer.executor,
                        ids,
                        new BlockFetchingListener() {
                            @Override
                            public void onBlockFetchSuccess(String id, ManagedBuffer data) {
                                try {
                                    show(id.substring(PREFIX.length()), data, listener);
                                } catch (IOException | RuntimeException e) {
                                    listener.failed(id.substring(PREFIX.length()), e);
                                }
                            }

                            @Override
                            public void onBlockFetchFailure(String id, Throwable cause) {
                                listener.failed(id.substring(PREFIX.length()), cause);
                            }
                        },
                        null);
    }

    /** As the network left it: nioByteBuffer() would make one new array of all that lies in several of the network's buffers. */
    private static void show(String name, ManagedBuffer data, FetchListener listener) throws IOException {
        Object bytes = data.convertToNetty();
        if (!(bytes instanceof ByteBuf)) {
            ReferenceCountUtil.release(bytes);
            listener.arrived(name, new Scattered(data.nioByteBuffer()));
            return;
        }
        try {
            listener.arrived(name, new Scattered(((ByteBuf) bytes).nioBuffers()));
        } finally {
            ((ByteBuf) bytes).release();
        }
    }

    /**
     * Scala throws checked exceptions undeclared, and the network's classes are called by Scala: that of a refused connection
     * passes a `catch (RuntimeException)`, and uncaught in any thread it ends the executor.
     */
    private interface Sending {
        void begin() throws Exception;
    }

    private static void send(Sending sending, Consumer<Throwable> done) {
        try {
            sending.begin();
        } catch (Exception e) {
            done.accept(e);
        }
    }

    // ---- uploads
    // ------------------------------------------------------------------------------------------------------------

    /**
     * Hands uploads that are ours to `ours` in place of storing them.
     *
     * <p>Spark has no hook there, so the handler that the server of blocks gives to new connections is put behind one that looks
     * at names first. Authentication and encryption come before it. Where it is kept is found by type, not by name.
     */
    static void take(Uploads ours) {
        Object server = held(blocks().blockTransferService(), Object.class, TransportServer.class);
        RpcHandler blocks = (RpcHandler) held(server, Object.class, RpcHandler.class);
        try {
            field(server, Object.class, RpcHandler.class).set(server, new UploadHandler(blocks, PREFIX, ours));
        } catch (IllegalAccessException e) {
            throw new IllegalStateException("uploads cannot be taken from Spark", e);
        }
    }

    /** Lets closures of our jobs travel inside their tasks, from now on: {@link CarriedClosures}. On the driver. */
    static void carryClosures() {
        BroadcastManager broadcasts = SparkEnv.get().broadcastManager();
        Field factory = field(broadcasts, Object.class, BroadcastFactory.class);
        try {
            factory.set(broadcasts, CarriedClosures.before((BroadcastFactory) factory.get(broadcasts)));
        } catch (IllegalAccessException e) {
            throw new IllegalStateException("broadcasts cannot be taken from Spark", e);
        }
    }

    /**
     * Streams bytes from where they lie, one buffer behind the other, to a peer that takes them ({@link Uploads#stream}); `done`
     * gets null or the failure. They must not change before that, and if it is a failure, never. Connecting may block for as long
     * as the network's time-out.
     *
     * <p>Spark's own upload would copy them into a message. It streams from a size on that is a setting of the whole application.
     */
    static void stream(Peer peer, String name, Consumer<Throwable> done, ByteBuffer... data) {
        send(() -> stream(clients().createClient(peer.host, peer.port), name, done, data), done);
    }

    /**
     * The same over a connection that only such streams use. On the one that is used for everything else, a question to the peer
     * would wait until they have left: sums fill the driver's link for nearly a whole cycle, and the pieces of the broadcast
     * would begin to come behind them.
     */
    static void streamApart(Peer peer, String name, Consumer<Throwable> done, ByteBuffer... data) {
        send(() -> stream(apart(peer), name, done, data), done);
    }

    static void stream(TransportClient client, String name, Consumer<Throwable> done, ByteBuffer... data) {
        ByteBuffer header = new UploadBlockStream(PREFIX + name, new byte[0]).toByteBuffer();
        StreamedBytes whole = new StreamedBytes(client.getHandler()::updateTimeOfLastRequest, data);
        client.uploadStream(new NioManagedBuffer(header), whole, new RpcResponseCallback() {
            @Override
            public void onSuccess(ByteBuffer response) {
                done.accept(null);
            }

            @Override
            public void onFailure(Throwable cause) {
                done.accept(cause);
            }
        });
    }

    /**
     * Waits for the connection that {@link #fetch} uses, for as long as the network's time-out at most; false: there is none. A
     * fetch alone does not say: where one has just failed, it tries again later.
     */
    static boolean connects(Peer peer) {
        List<Throwable> failures = new ArrayList<>();
        send(() -> clients().createClient(peer.host, peer.port), failures::add);
        return failures.isEmpty();
    }

    /** By host and port. */
    private static final Map<String, TransportClient> APART = new HashMap<>();

    private static TransportClient apart(Peer peer) throws Exception {
        synchronized (APART) {
            String address = peer.host + ":" + peer.port;
            TransportClient held = APART.get(address);
            if (held == null || !held.isActive()) {
                held = clients().createUnmanagedClient(peer.host, peer.port);
                APART.put(address, held);
            }
            return held;
        }
    }

    private static TransportClientFactory clients() {
        return (TransportClientFactory)
                held(blocks().blockTransferService(), Object.class, TransportClientFactory.class);
    }

    /** The value of the one field of this type that the class of an object, or one below `top`, declares. */
    static Object held(Object owner, Class<?> top, Class<?> type) {
        try {
            return field(owner, top, type).get(owner);
        } catch (IllegalAccessException e) {
            throw new IllegalStateException("no look into " + owner.getClass().getName(), e);
        }
    }

    private static Field field(Object owner, Class<?> top, Class<?> type) {
        for (Class<?> of = owner.getClass(); of != top && of != Object.class; of = of.getSuperclass()) {
            for (Field field : of.getDeclaredFields()) {
                if (field.getType() == type) {
                    field.setAccessible(true);
                    return field;
                }
            }
        }
        throw new IllegalStateException(
                "this Spark is not one that is known: " + owner.getClass().getName() + " holds no " + type.getName());
    }

    // ---- words that are answered later
    // ----------------------------------------------------------------------------------

    private static final String ENDPOINT = "mpca-exchanges";

    /** Who answers the executors' questions, on the driver. Called by one thread of Spark's, which must not be held up. */
    public interface Questions {
        /** `reply` may be called later, once, by any thread. */
        void asked(String run, byte[] question, Consumer<byte[]> reply);

        /** A word without an answer. The words and questions of one executor come in the order in which they were sent. */
        void told(String run, byte[] word);
    }

    /** Lets executors {@link #ask} and {@link #tell} this driver. A plug-in's own messages are answered at once, or hold up all. */
    public static void answer(Questions questions) {
        RpcEnv env = SparkEnv.get().rpcEnv();
        env.setupEndpoint(ENDPOINT, new Endpoint(env, questions));
    }

    /** The driver's endpoint, looked up by an executor; waits for the driver. */
    static RpcEndpointRef driver() {
        return RpcUtils.makeDriverRef(
                ENDPOINT, SparkEnv.get().conf(), SparkEnv.get().rpcEnv());
    }

    /** Asks the driver; `done` gets its answer or the failure, a passed time-out included, in a thread that must not be held up. */
    static void ask(
            RpcEndpointRef driver, String run, byte[] question, long timeoutMs, BiConsumer<byte[], Throwable> done) {
        try {
            RpcTimeout timeout = new RpcTimeout(new FiniteDuration(timeoutMs, TimeUnit.MILLISECONDS), "an exchange");
            driver.ask(new Word(run, question), timeout, BYTES).onComplete(new OnTry<byte[]>(done), HERE);
        } catch (Exception e) { // Scala's methods throw what they do not declare
            done.accept(null, e);
        }
    }

    static void tell(RpcEndpointRef driver, String run, byte[] word) {
        driver.send(new Word(run, word));
    }

    /** Goes up only: an executor's RPC knows no class of ours. */
    private static final class Word implements Serializable {
        private static final long serialVersionUID = 1;

        final String run;
        final byte[] said;

        Word(String run, byte[] said) {
            this.run = run;
            this.said = said;
        }
    }

    private static final class Endpoint implements ThreadSafeRpcEndpoint {
        private final RpcEnv env;
        private final Questions questions;

        Endpoint(RpcEnv env, Questions questions) {
            this.env = env;
            this.questions = questions;
        }

        @Override
        public RpcEnv rpcEnv() {
            return env;
        }

        @Override
        public PartialFunction<Object, BoxedUnit> receive() {
            return new OnWord(word -> questions.told(word.run, word.said));
        }

        @Override
        public PartialFunction<Object, BoxedUnit> receiveAndReply(RpcCallContext call) {
            return new OnWord(word -> questions.asked(word.run, word.said, call::reply));
        }
    }

    private static final class OnWord extends AbstractPartialFunction<Object, BoxedUnit> {
        private final Consumer<Word> act;

        OnWord(Consumer<Word> act) {
            this.act = act;
        }

        @Override
        public boolean isDefinedAt(Object message) {
            return message instanceof Word;
        }

        @Override
        @SuppressWarnings("unchecked")
        public <A extends Object, B> B applyOrElse(A message, Function1<A, B> otherwise) {
            if (!isDefinedAt(message)) {
                return otherwise.apply(message);
            }
            act.accept((Word) message);
            return (B) BoxedUnit.UNIT;
        }
    }

    // ---- broadcasts
    // ---------------------------------------------------------------------------------------------------

    /** A broadcast that keeps only serialised pieces on both sides; half the memory of the public call. */
    static Broadcast<byte[]> broadcast(SparkContext context, byte[] data) {
        return context.broadcastInternal(data, true, BYTES);
    }

    // ---- jobs
    // ---------------------------------------------------------------------------------------------------------

    /** What a task does with its partition; travels to the executors. */
    public interface TaskBody<T> extends Serializable {
        byte[] run(TaskContext context, java.util.Iterator<T> elements) throws Exception;
    }

    /**
     * Submits a job over all partitions of `rdd` and returns its id. `done` gets the results in partition order and the
     * failure or null, in a thread of Spark's scheduler: keep it trivial. With a failure, the results of tasks that did
     * not end are null. Local properties of the calling thread count.
     */
    static <T> int submit(
            SparkContext context, RDD<T> rdd, int partitions, TaskBody<T> body, BiConsumer<byte[][], Throwable> done) {
        byte[][] results = new byte[partitions][];
        List<Object> all = new ArrayList<>();
        for (int i = 0; i < partitions; i++) {
            all.add(i);
        }
        SimpleFutureAction<byte[][]> action = context.submitJob(
                rdd,
                new Call<T>(body),
                list(all),
                new AbstractFunction2<Object, byte[], BoxedUnit>() {
                    @Override
                    public BoxedUnit apply(Object index, byte[] result) {
                        results[(Integer) index] = result;
                        return BoxedUnit.UNIT;
                    }
                },
                new AbstractFunction0<byte[][]>() {
                    @Override
                    public byte[][] apply() {
                        return results;
                    }
                });
        action.onComplete(new OnTry<byte[][]>((whole, failure) -> done.accept(results, failure)), HERE);
        return (Integer) action.jobIds().head();
    }

    /** Stage ids of a job, from its start event. */
    static List<Integer> stages(SparkListenerJobStart start) {
        List<Integer> ids = new ArrayList<>();
        for (Object id : JavaConverters.asJavaIterable(start.stageIds())) {
            ids.add((Integer) id);
        }
        return ids;
    }

    // ---- Scala values that an RDD in Java needs
    // -----------------------------------------------------------------------

    static scala.collection.immutable.List<Dependency<?>> noDependencies() {
        return List$.MODULE$.empty();
    }

    static <T> scala.collection.immutable.List<T> list(List<T> items) {
        return JavaConverters.asScalaBuffer(items).toList();
    }

    static <T> scala.collection.Iterator<T> iterator(List<T> items) {
        return JavaConverters.asScalaIterator(items.iterator());
    }

    /** The class of pairs, with the types that the compiler cannot know. */
    @SuppressWarnings("unchecked")
    static <K, V> Class<Tuple2<K, V>> pairClass() {
        return (Class<Tuple2<K, V>>) (Class<?>) Tuple2.class;
    }

    static <K, V> ClassTag<Tuple2<K, V>> pairTag() {
        return classTag(SparkInternals.<K, V>pairClass());
    }

    static <T> ClassTag<T> classTag(Class<T> type) {
        return ClassTag$.MODULE$.apply(type);
    }

    /** Lets a task end with the exception itself: a wrapped one hides its class from the driver's listener. */
    @SuppressWarnings("unchecked")
    static <E extends Throwable> RuntimeException unchecked(Throwable e) throws E {
        throw (E) e;
    }

    private static BlockManager blocks() {
        return SparkEnv.get().blockManager();
    }

    private static BlockId id(String name) {
        return new TestBlockId(name);
    }

    /** A filter of block ids; a class rather than a lambda, since Scala's function types differ between lines. */
    private static final class StartsWith extends AbstractFunction1<BlockId, Object> {
        private final String prefix;

        StartsWith(String prefix) {
            this.prefix = prefix;
        }

        @Override
        public Object apply(BlockId id) {
            return id.name().startsWith(prefix);
        }
    }

    /** The function that Spark ships: hands task context and elements to the body. */
    private static final class Call<T> extends AbstractFunction1<scala.collection.Iterator<T>, byte[]>
            implements Serializable {
        private static final long serialVersionUID = 1;

        private final TaskBody<T> body;

        Call(TaskBody<T> body) {
            this.body = body;
        }

        @Override
        public byte[] apply(scala.collection.Iterator<T> elements) {
            try {
                return body.run(TaskContext.get(), JavaConverters.asJavaIterator(elements));
            } catch (Exception e) {
                throw unchecked(e);
            }
        }
    }

    private static final class OnTry<R> extends AbstractFunction1<Try<R>, Object> {
        private final BiConsumer<R, Throwable> done;

        OnTry(BiConsumer<R, Throwable> done) {
            this.done = done;
        }

        @Override
        public Object apply(Try<R> outcome) {
            if (outcome.isSuccess()) {
                done.accept(outcome.get(), null);
            } else {
                done.accept(null, outcome.failed().get());
            }
            return BoxedUnit.UNIT;
        }
    }
}
