package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import org.mpca.reduce.KeptArray;
import org.mpca.wire.Order;

/** What an executor holds for a codec, from the first download until the run's end; without Spark, so no block is stored. */
class ExecutorSideTest {
    private static final byte[] VECTOR = {0, 0, 0, 0, 0, 0, -128, 63};
    private static final HeldBases.Name FIRST = HeldBases.Name.of(1, 2, VECTOR);

    private final ExecutorSide side = new ExecutorSide(new Peer("0", "host", 0), (run, event) -> {}, "");

    /** Brings nothing but what it is told to do when it begins. */
    private static Fetch fetch(Runnable begin) {
        return new Fetch() {
            @Override
            public void begin() {
                begin.run();
            }

            @Override
            public void arrived(int piece) {}

            @Override
            public void doWork(long heardMs) {}

            @Override
            public void abandon() {}
        };
    }

    /** All is here at once. */
    private static BroadcastSource here(byte[] data, AtomicInteger attempts) {
        return (download, port) -> fetch(() -> {
            attempts.incrementAndGet();
            port.arrived(data.clone(), 0);
            port.done();
        });
    }

    private void begin(Order order, BroadcastSource source) {
        Order.Download what = order.downloads.get(0);
        side.downloader.begin(order, what, source, new Peer("driver", "host", 0), what.agents);
    }

    private static void await(BooleanSupplier condition) throws InterruptedException {
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20); !condition.getAsBoolean(); ) {
            assertTrue(System.nanoTime() < end, "waited in vain");
            Thread.sleep(2);
        }
    }

    @Test
    void shouldHoldABroadcastThatIsABase() throws Exception {
        begin(DownloadTest.order(5, FIRST.crc, null), here(VECTOR, new AtomicInteger()));
        await(() -> side.coding("r", 0).bases.holds(FIRST));
    }

    @Test
    void shouldTryAgainWhenNeitherTheBaseNorTheResultCanBeHad() throws Exception {
        AtomicInteger attempts = new AtomicInteger();
        HeldBases.Name result = new HeldBases.Name(1, 2, 77);
        begin(DownloadTest.order(5, 77, FIRST), here(new byte[4], attempts)); // as bf16
        begin(DownloadTest.order(6, FIRST.crc, null), here(VECTOR, new AtomicInteger())); // one after the other
        await(() -> attempts.get() >= 2);
        assertFalse(side.coding("r", 0).bases.holds(FIRST));
        side.coding("r", 0).bases.hold(result, KeptArray.of(VECTOR)); // it was fetched in full
        await(() -> side.coding("r", 0).bases.holds(FIRST));
    }

    @Test
    void shouldHoldNothingOfAnEarlierAttemptOfTheDriver() throws Exception {
        Coding earlier = side.coding("r", 0);
        earlier.bases.hold(FIRST, KeptArray.of(VECTOR));
        Coding newest = side.coding("r", 1);
        assertFalse(earlier.bases.holdsAny(1));
        assertSame(newest, side.coding("r", 1));
        assertNotSame(earlier, side.coding("r", 0), "a late task of it keeps nothing here");
        assertSame(newest, side.coding("r", 1));
        assertNotSame(newest, side.coding("other", 1));
    }

    @Test
    void shouldHoldNothingOfARunThatEndsWhileADownloadDoes() throws Exception {
        CountDownLatch opened = new CountDownLatch(1);
        CountDownLatch go = new CountDownLatch(1);
        begin(DownloadTest.order(5, FIRST.crc, null), (download, port) -> {
            port.done(); // looked at behind this call, and before the end of the run
            opened.countDown();
            awaitQuietly(go);
            return fetch(() -> {});
        });
        opened.await();
        Thread ending = new Thread(() -> {
            try {
                side.endRun("r", 20_000);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        });
        ending.start();
        await(() -> ending.getState() == Thread.State.TIMED_WAITING);
        go.countDown();
        ending.join();
        assertFalse(side.coding("r", 0).bases.holdsAny(1));
    }

    private static void awaitQuietly(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
