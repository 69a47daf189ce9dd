package org.mpca.rdd;

import java.io.Serializable;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.mpca.wire.Msgpack;

/** One question to every executor: rediscovery, the end of a run, an inventory. Its elements are packed lists. */
final class EverywhereRDD extends PinnedRDD<byte[]> {
    private static final long serialVersionUID = 1;

    /** What is asked; answers values that msgpack knows. */
    interface Question extends Serializable {
        List<?> ask(ExecutorSide side) throws Exception;
    }

    private final Question question;

    EverywhereRDD(SparkContext context, List<Peer> peers, Question question) {
        super(context, peers, byte[].class);
        this.question = question;
    }

    @Override
    List<byte[]> here(byte[] own, TaskContext context) {
        try {
            return Collections.singletonList(Msgpack.pack(question.ask(ExecutorSide.get())));
        } catch (Exception e) {
            throw SparkInternals.unchecked(e);
        }
    }

    /** An executor that is gone has nothing to say; a strict job is cancelled by its loss all the same. */
    @Override
    List<byte[]> elsewhere(String wanted, String here) {
        return Collections.singletonList(Msgpack.pack(Collections.emptyList()));
    }

    static byte[] result(TaskContext context, Iterator<byte[]> answers) {
        return answers.next();
    }
}
