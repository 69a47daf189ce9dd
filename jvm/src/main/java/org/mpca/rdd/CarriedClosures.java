package org.mpca.rdd;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.zip.CRC32;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.broadcast.BroadcastFactory;

/**
 * Lets the closures of our jobs travel inside their tasks. Spark makes a broadcast of each job's closure, and every executor asks
 * where it is, asks for it, and reports that it has it, one question after the other: on links that are full, each waits in queues.
 * Eight executors that exchanged 16 MiB in int8 over full links of 30 Mbit/s began an order 0.04 to 0.4 s after it was sent,
 * 0.19 s in the mean.
 *
 * <p>It stands before Spark's factory of broadcasts, and passes everything on but the closures of a {@link PinnedRDD} for not too
 * many executors. Spark serialises a job's RDD and function and at once makes the broadcast, both in one thread: that is how they
 * are known. Nothing but a task of Spark's reads them.
 *
 * <p>Concurrency: safe from any thread.
 */
final class CarriedClosures implements InvocationHandler {
    /** What the driver sends at most, to all executors of a job together; more is left to Spark, whose executors help each other. */
    static final int MOST_BYTES = 256 << 10;

    /** For how many executors the closure is that this thread serialises. */
    private static final ThreadLocal<Integer> NEXT = new ThreadLocal<>();

    private final BroadcastFactory spark;
    /** Numbers of those that Spark has not found to be garbage yet. */
    private final Set<Long> carried = ConcurrentHashMap.newKeySet();

    private CarriedClosures(BroadcastFactory spark) {
        this.spark = spark;
    }

    /** In front of a factory of Spark's; the same once more if it is in front already. */
    static BroadcastFactory before(BroadcastFactory factory) {
        boolean ours = Proxy.isProxyClass(factory.getClass())
                && Proxy.getInvocationHandler(factory) instanceof CarriedClosures;
        // A proxy: its methods are not the same in all versions of Spark.
        return ours
                ? factory
                : (BroadcastFactory) Proxy.newProxyInstance(
                        BroadcastFactory.class.getClassLoader(),
                        new Class<?>[] {BroadcastFactory.class},
                        new CarriedClosures(factory));
    }

    /** The next broadcast that this thread makes is of a closure for so many executors. */
    static void serialised(int executors) {
        NEXT.set(executors);
    }

    @Override
    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
        if (method.getName().equals("newBroadcast")) {
            Integer executors = NEXT.get();
            NEXT.remove();
            if (executors != null
                    && arguments[0] instanceof byte[]
                    && (long) executors * ((byte[]) arguments[0]).length <= MOST_BYTES) {
                long id = id(arguments);
                carried.add(id);
                return new Carried(id, (byte[]) arguments[0]);
            }
        } else if (method.getName().equals("unbroadcast") && carried.remove(id(arguments))) {
            return null; // no executor holds anything
        }
        try {
            return method.invoke(spark, arguments);
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
    }

    private static long id(Object[] arguments) {
        for (Object one : arguments) {
            if (one instanceof Long) {
                return (Long) one;
            }
        }
        throw new IllegalArgumentException("a broadcast without a number");
    }

    /** What a task has in place of a name that it would have to ask for. Immutable. */
    static final class Carried extends Broadcast<byte[]> {
        private static final long serialVersionUID = 1;

        private final byte[] bytes;
        private final long checksum;

        Carried(long id, byte[] bytes) {
            super(id, SparkInternals.classTag(byte[].class));
            this.bytes = bytes;
            this.checksum = checksum(bytes);
        }

        /** The closure says who sums what with which weight; Spark checks what it broadcasts itself, too. */
        @Override
        public byte[] getValue() {
            if (checksum(bytes) != checksum) {
                throw new IllegalStateException("the closure of an order was damaged on its way: " + this);
            }
            return bytes;
        }

        private static long checksum(byte[] bytes) {
            CRC32 crc = new CRC32();
            crc.update(bytes);
            return crc.getValue();
        }

        @Override
        public void doUnpersist(boolean blocking) {}

        @Override
        public void doDestroy(boolean blocking) {}
    }
}
