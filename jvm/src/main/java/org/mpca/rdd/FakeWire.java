package org.mpca.rdd;

import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.SparkEnv$;
import org.apache.spark.TaskState;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.internal.plugin.PluginMessage;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.rpc.ThreadSafeRpcEndpoint;
import org.apache.spark.scheduler.DirectTaskResult;
import org.apache.spark.scheduler.Task;
import org.apache.spark.scheduler.cluster.CoarseGrainedClusterMessages;
import org.apache.spark.serializer.SerializerInstance;
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.storage.BlockManagerMessages;
import org.apache.spark.storage.BroadcastBlockId;
import org.apache.spark.storage.StorageLevel;
import org.apache.spark.util.RpcUtils;
import org.apache.spark.util.SerializableBuffer;
import scala.Function1;
import scala.Option;
import scala.PartialFunction;
import scala.collection.immutable.Map$;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/**
 * What {@link FakeExecutors} say to Spark's scheduler and block manager master, as executors do. Not for production.
 *
 * <p>Concurrency: safe from any thread.
 */
@SuppressWarnings({"unchecked", "rawtypes"}) // maps and sequences are of other types in another Scala
final class FakeWire {
    private static final String PLUGIN = "org.mpca.bridge.MpcaPlugin";

    private final SparkEnv env;
    private final RpcEndpointRef scheduler;
    private final RpcEndpointRef plugins;
    private final Map<String, BlockManagerId> stores = new java.util.concurrent.ConcurrentHashMap<>();
    private final AtomicLong toDriver = new AtomicLong();
    private final AtomicLong fromDriver = new AtomicLong();

    FakeWire(SparkEnv env) {
        this.env = env;
        this.scheduler = RpcUtils.makeDriverRef("CoarseGrainedScheduler", env.conf(), env.rpcEnv());
        this.plugins =
                RpcUtils.makeDriverRef("org.apache.spark.internal.plugin.PluginEndpoint", env.conf(), env.rpcEnv());
    }

    /** An executor's environment for all of them, with one block manager that fetches and pushes. */
    static SparkEnv env(SparkConf conf) {
        String host = conf.get("spark.driver.host");
        SparkEnv env = SparkEnv$.MODULE$.createExecutorEnv(conf, "0", host, host, 1, Option.<byte[]>empty(), false);
        env.blockManager().initialize(conf.getAppId());
        return env;
    }

    Map<String, Object> totals() {
        Map<String, Object> all = new LinkedHashMap<>();
        all.put("messages_to_driver", toDriver.get());
        all.put("messages_from_driver", fromDriver.get());
        return all;
    }

    /** Makes one executor known to the driver; `launched` gets its tasks. */
    void register(Peer peer, int cores, Consumer<ByteBuffer> launched) {
        RpcEndpointRef ref = env.rpcEnv().setupEndpoint("Executor-" + peer.executor, new Tasks(env.rpcEnv(), launched));
        scheduler.askSync(
                new CoarseGrainedClusterMessages.RegisterExecutor(
                        peer.executor, ref, peer.host, cores, none(), none(), none(), 0),
                tag(Boolean.class));
        BlockManagerId id = BlockManagerId.apply(peer.executor, peer.host, peer.port, Option.<String>empty());
        RpcEndpointRef store =
                env.rpcEnv().setupEndpoint("Store-" + peer.executor, new Tasks(env.rpcEnv(), data -> {}));
        env.blockManager()
                .master()
                .driverEndpoint()
                .askSync(
                        new BlockManagerMessages.RegisterBlockManager(id, new String[0], 1L << 30, 0, store, false),
                        tag(BlockManagerId.class));
        stores.put(peer.executor, id);
        scheduler.send(new CoarseGrainedClusterMessages.LaunchedExecutor(peer.executor));
    }

    void plugin(Object message) {
        toDriver.incrementAndGet();
        plugins.send(new PluginMessage(PLUGIN, message));
    }

    void running(String executor, long task) {
        update(executor, task, TaskState.RUNNING(), ByteBuffer.allocate(0));
    }

    void finished(String executor, long id, Task<?> task, byte[] value) {
        TaskMetrics metrics = task.metrics();
        metrics.setExecutorRunTime(5);
        metrics.setExecutorCpuTime(5_000_000);
        metrics.setExecutorDeserializeTime(2);
        metrics.setExecutorDeserializeCpuTime(2_000_000);
        SerializerInstance plain = env.serializer().newInstance();
        ByteBuffer result = plain.serialize(value, tag(byte[].class));
        DirectTaskResult<byte[]> direct = new DirectTaskResult<>(result, metrics.nonZeroInternalAccums(), new long[0]);
        update(
                executor,
                id,
                TaskState.FINISHED(),
                env.closureSerializer().newInstance().serialize(direct, tag(DirectTaskResult.class)));
    }

    private void update(String executor, long task, scala.Enumeration.Value state, ByteBuffer data) {
        toDriver.incrementAndGet();
        scheduler.send(new CoarseGrainedClusterMessages.StatusUpdate(
                executor, task, state, new SerializableBuffer(data), 1, none()));
    }

    /** What an executor asks and reports when it reads a job's closure from another one. */
    void reads(Peer here, long broadcast, long bytes) {
        toDriver.addAndGet(2);
        RpcEndpointRef master = env.blockManager().master().driverEndpoint();
        BroadcastBlockId piece = new BroadcastBlockId(broadcast, "piece0");
        master.askSync(new BlockManagerMessages.GetLocationsAndStatus(piece, here.host), tag(Object.class));
        master.askSync(
                new BlockManagerMessages.UpdateBlockInfo(
                        stores.get(here.executor), piece, StorageLevel.MEMORY_AND_DISK_SER(), bytes, 0),
                tag(Object.class));
    }

    Task<?> task(ByteBuffer serialized) {
        return (Task<?>) read(serialized);
    }

    Object read(ByteBuffer serialized) {
        return env.closureSerializer().newInstance().deserialize(serialized, tag(Object.class));
    }

    private static scala.collection.immutable.Map none() {
        return (scala.collection.immutable.Map) Map$.MODULE$.empty();
    }

    private static <T> ClassTag<T> tag(Class<T> type) {
        return ClassTag$.MODULE$.apply(type);
    }

    /** Takes tasks; answers whatever the driver asks of a block manager with nothing. */
    private final class Tasks implements ThreadSafeRpcEndpoint {
        private final RpcEnv rpc;
        private final Consumer<ByteBuffer> launched;

        Tasks(RpcEnv rpc, Consumer<ByteBuffer> launched) {
            this.rpc = rpc;
            this.launched = launched;
        }

        @Override
        public RpcEnv rpcEnv() {
            return rpc;
        }

        @Override
        public PartialFunction<Object, BoxedUnit> receive() {
            return new On(message -> {
                fromDriver.incrementAndGet();
                if (message instanceof CoarseGrainedClusterMessages.LaunchTask) {
                    launched.accept(((CoarseGrainedClusterMessages.LaunchTask) message)
                            .data()
                            .value());
                }
            });
        }

        @Override
        public PartialFunction<Object, BoxedUnit> receiveAndReply(RpcCallContext call) {
            return new On(message -> {
                fromDriver.incrementAndGet();
                call.reply(0);
            });
        }
    }

    private static final class On extends AbstractPartialFunction<Object, BoxedUnit> {
        private final Consumer<Object> act;

        On(Consumer<Object> act) {
            this.act = act;
        }

        @Override
        public boolean isDefinedAt(Object message) {
            return true;
        }

        @Override
        public <A extends Object, B> B applyOrElse(A message, Function1<A, B> otherwise) {
            act.accept(message);
            return (B) BoxedUnit.UNIT;
        }
    }
}
