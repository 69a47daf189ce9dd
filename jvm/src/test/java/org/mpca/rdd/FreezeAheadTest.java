package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Collections;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.mpca.Golden;
import org.mpca.agent.YieldKey;
import org.mpca.wire.Order;

/** When the yields of the next cycle are asked for: what is expected of the reduce that is under way. */
class FreezeAheadTest {
    private static final long UNKNOWN = Long.MAX_VALUE;

    @Test
    void aReduceIsExpectedToTakeAsLongAsTheLastOne() {
        assertEquals(70, FreezeAhead.rest(30, 100, 0));
        assertEquals(0, FreezeAhead.rest(130, 100, 0));
    }

    @Test
    void whatHasArrivedMakesItLongerButNeverShorter() {
        assertEquals(270, FreezeAhead.rest(30, 100, 0.1));
        assertEquals(70, FreezeAhead.rest(30, 100, 0.9));
    }

    @Test
    void ofAReduceThatIsNotKnownNothingIsExpected() {
        assertEquals(UNKNOWN - 30, FreezeAhead.rest(30, UNKNOWN, 0.5));
    }

    @Test
    void aPaceIsOfOneRunAndEndsWithIt() {
        Pace pace = new Pace();
        pace.reduced("a", 1, 500);
        pace.froze("a", 20);
        pace.froze("a", 10);
        assertEquals(500, pace.reduce("a", 1));
        assertEquals(UNKNOWN, pace.reduce("a", 2));
        assertEquals(UNKNOWN, pace.reduce("b", 1));
        assertEquals(20, pace.freeze("a"));
        assertEquals(0, pace.freeze("b"));

        pace.endRun("a");

        assertEquals(UNKNOWN, pace.reduce("a", 1));
        assertEquals(0, pace.freeze("a"));
    }

    @Test
    void oneLongFreezeIsForgottenAfterEightMore() {
        Pace pace = new Pace();
        pace.froze("a", 1000);
        for (int i = 0; i < 7; i++) {
            pace.froze("a", 10);
        }
        assertEquals(1000, pace.freeze("a"));
        pace.froze("a", 10);
        assertEquals(10, pace.freeze("a"));
    }

    @Test
    void aTaskThatIsKilledDoesNotInterruptWhatKeeps() throws Exception {
        Order order = Order.unpack(
                Golden.hex(Golden.read("wire/orders.json").get(0).get("bytes").asText()));
        assertNull(order.reduce, "so that it asks at once");
        YieldKey ofNoRun = new YieldKey("no run of this JVM", 0, 3, 0, 0, 0);
        CountDownLatch keeping = new CountDownLatch(1);
        CountDownLatch killed = new CountDownLatch(1);
        CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        FreezeAhead freezing = new FreezeAhead(new Pace(), order, Collections.singletonList(ofNoRun), deadline, all -> {
            keeping.countDown();
            killed.await();
            interrupted.complete(Thread.currentThread().isInterrupted());
        });
        assertTrue(keeping.await(10, TimeUnit.SECONDS));

        freezing.end();
        killed.countDown();

        assertFalse(interrupted.get(10, TimeUnit.SECONDS));
    }
}
