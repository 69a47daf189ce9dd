package org.mpca.rdd;

import java.io.IOException;
import java.io.ObjectOutputStream;
import java.util.Collections;
import java.util.List;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import scala.collection.Iterator;

/**
 * An RDD whose partition i belongs to executor i of a list, and to no other.
 *
 * <p>Pinning is only a preference in Spark: a task whose executor died runs elsewhere at once. So every task checks
 * where it is before it does anything ({@link #elsewhere}).
 */
abstract class PinnedRDD<T> extends RDD<T> {
    private static final long serialVersionUID = 1;
    private static final byte[] NOTHING = new byte[0];

    private final transient Peer[] peers;

    PinnedRDD(SparkContext context, List<Peer> peers, Class<T> type) {
        super(context, SparkInternals.noDependencies(), SparkInternals.classTag(type));
        this.peers = peers.toArray(new Peer[0]);
    }

    /** What the partition of an executor brings, asked on the driver: the rest of this object goes to every executor. */
    byte[] own(String executor) {
        return NOTHING;
    }

    /** The elements of a partition, on its own executor; `own` is what it brings. */
    abstract List<T> here(byte[] own, TaskContext context);

    /** What a task does that ran on executor `here` instead of `wanted`. */
    List<T> elsewhere(String wanted, String here) throws WrongExecutor {
        throw new WrongExecutor(wanted, here);
    }

    @Override
    public final Partition[] getPartitions() {
        Partition[] partitions = new Partition[peers.length];
        for (int i = 0; i < peers.length; i++) {
            partitions[i] = new OnExecutor(i, peers[i].executor, own(peers[i].executor));
        }
        return partitions;
    }

    /** The form that pins to an executor rather than to its host; `Seq` of both Scala lines. */
    @Override
    public final scala.collection.immutable.List<String> getPreferredLocations(Partition partition) {
        Peer peer = peers[partition.index()];
        return SparkInternals.list(Collections.singletonList("executor_" + peer.host + "_" + peer.executor));
    }

    @Override
    public final Iterator<T> compute(Partition partition, TaskContext context) {
        OnExecutor own = (OnExecutor) partition;
        String here = SparkInternals.executorId();
        if (own.executor.equals(here)) {
            return SparkInternals.iterator(here(own.brings, context));
        }
        try {
            return SparkInternals.iterator(elsewhere(own.executor, here));
        } catch (WrongExecutor e) {
            throw SparkInternals.unchecked(e);
        }
    }

    private void writeObject(ObjectOutputStream out) throws IOException {
        out.defaultWriteObject();
        CarriedClosures.serialised(peers.length); // Spark makes a broadcast of what it is written into next
    }

    /** What a partition brings to its executor. */
    static byte[] brings(Partition partition) {
        return ((OnExecutor) partition).brings;
    }

    /** One executor's partition: its position in the list, its id, and what is for it alone. */
    private static final class OnExecutor implements Partition {
        private static final long serialVersionUID = 1;

        final int index;
        final String executor;
        final byte[] brings;

        OnExecutor(int index, String executor, byte[] brings) {
            this.index = index;
            this.executor = executor;
            this.brings = brings;
        }

        @Override
        public int index() {
            return index;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof OnExecutor && ((OnExecutor) other).index == index;
        }

        @Override
        public int hashCode() {
            return index;
        }
    }
}
