package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.mpca.wire.Order;

/** What waits until peers have their pieces of a broadcast. */
class DownloaderTest {
    private static final int TURNS = 5;

    private final Downloader downloader =
            new Downloader("0", (run, event) -> {}, new Sweeper(), new DriverClock(), (run, term) -> null);
    private final List<String> done = new CopyOnWriteArrayList<>();

    /** A fetch that never ends, and owes its peers pieces until it is told otherwise. */
    private static final class Owing implements Fetch {
        volatile boolean sent;
        volatile int abandoned;
        final CountDownLatch turns = new CountDownLatch(TURNS);

        @Override
        public void begin() {}

        @Override
        public void arrived(int piece) {}

        @Override
        public boolean hasSent() {
            return sent;
        }

        @Override
        public void doWork(long heardMs) {
            turns.countDown();
        }

        @Override
        public void abandon() {
            abandoned++;
        }
    }

    private CountDownLatch after(String name) {
        CountDownLatch ran = new CountDownLatch(1);
        downloader.afterSending(() -> {
            done.add(name);
            ran.countDown();
        });
        return ran;
    }

    private void begin(Fetch fetch) {
        Order order = DownloadTest.order(5);
        Order.Download what = order.downloads.get(0);
        downloader.begin(order, what, (download, port) -> fetch, null, what.agents);
    }

    private static void await(CountDownLatch latch) throws InterruptedException {
        assertTrue(latch.await(20, TimeUnit.SECONDS));
    }

    @Test
    void withoutABroadcastItRunsAtOnce() throws Exception {
        await(after("first"));
    }

    @Test
    void besideABroadcastItWaitsUntilPeersHaveWhatThisExecutorOwes() throws Exception {
        Owing fetch = new Owing();
        begin(fetch);
        CountDownLatch first = after("first");
        CountDownLatch second = after("second");
        await(fetch.turns);
        assertEquals(Collections.emptyList(), done);

        fetch.sent = true;

        await(first);
        await(second);
        assertEquals(Arrays.asList("first", "second"), done);
    }

    @Test
    void whatThrowsKeepsNothingBack() throws Exception {
        Owing fetch = new Owing();
        begin(fetch);
        downloader.afterSending(() -> {
            throw new IllegalStateException("not pushed");
        });
        CountDownLatch behind = after("behind");
        await(fetch.turns);

        fetch.sent = true;

        await(behind);
        assertEquals(0, fetch.abandoned, "the download goes on");
    }

    @Test
    void aBroadcastThatIsForgottenKeepsNothingBack() throws Exception {
        Owing fetch = new Owing();
        begin(fetch);
        CountDownLatch first = after("first");
        await(fetch.turns);

        downloader.endRun(DownloadTest.order(5).run).get(20, TimeUnit.SECONDS);

        await(first);
    }
}
