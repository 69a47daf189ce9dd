package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.mpca.Golden;
import org.mpca.reduce.KeptArray;
import org.mpca.reduce.SpareArrays;
import org.mpca.wire.Order;

/** What an executor keeps of a cycle when several orders freeze for it; with a block manager, so in a Spark of this JVM. */
class PartStoreTest {
    private static JavaSparkContext spark;
    private static Order order;

    private final Sweeper sweeper = new Sweeper();
    private final PartStore store = new PartStore(sweeper);
    private final SpareArrays spare = new SpareArrays(1);

    @BeforeAll
    static void begin() throws Exception {
        order = Order.unpack(
                Golden.hex(Golden.read("wire/orders.json").get(1).get("bytes").asText()));
        SparkConf conf = new SparkConf()
                .setMaster("local[1]")
                .setAppName("parts")
                .set("spark.ui.enabled", "false")
                .set("spark.driver.bindAddress", "127.0.0.1")
                .set("spark.driver.host", "127.0.0.1");
        spark = new JavaSparkContext(conf);
    }

    @AfterAll
    static void end() {
        spark.stop();
    }

    private KeptArray part(int value) {
        KeptArray part = KeptArray.take(spare, order.reduce.length);
        Arrays.fill(part.data, (byte) value);
        return part;
    }

    private PartStore.Part put(int frozenBy, KeptArray part) {
        int[] edges = {0, 4, order.reduce.length};
        return store.put(order.run, order.term, order.reduce.cycle, frozenBy, part, edges);
    }

    private byte[] need(int frozenBy) throws ExecutorFault {
        PartStore.Part found = store.need(order, frozenBy, order.reduce.length);
        found.kept.release();
        return found.data;
    }

    @Test
    void shouldKeepTheLaterOrdersPartWhicheverComesFirst() throws Exception {
        KeptArray seven = part(7);
        put(7, seven).kept.release();

        KeptArray six = part(6); // of a task that was killed, and freezes on for a while
        assertNull(put(6, six));
        assertSame(six.data, part(6).data, "nobody uses it");
        assertSame(seven.data, need(7));
        assertThrows(ExecutorFault.class, () -> need(6));

        KeptArray eight = part(8);
        put(8, eight).kept.release();
        assertSame(eight.data, need(8));
        ExecutorFault gone = assertThrows(ExecutorFault.class, () -> need(7));
        assertTrue(gone.getMessage().contains("it has frozen_by=8"), gone.getMessage());
    }

    @Test
    void shouldKeepTheFirstOfTwoPartsOfOneOrderAndShowItsChunks() throws Exception {
        KeptArray first = part(1);
        put(9, first).kept.release();
        assertNull(put(9, part(1)), "a re-run task of one order");
        assertSame(first.data, need(9));

        String stem = new BlockNames(order.run, order.term).parts(order.reduce.cycle, 9, SparkInternals.executorId());
        assertTrue(SparkInternals.read(stem + 0, block -> {
            byte[] bytes = new byte[4];
            CheckedBlocks.open(stem + 0, block).get(bytes);
            assertArrayEquals(new byte[] {1, 1, 1, 1}, bytes);
        }));

        store.forget(order.run, order.term, order.reduce.cycle);
        assertTrue(sweeper.drain(20_000));
        assertThrows(ExecutorFault.class, () -> need(9));
        assertEquals(false, SparkInternals.read(stem + 0, block -> {}));
        assertSame(first.data, part(2).data, "nobody uses it any more");
    }
}
