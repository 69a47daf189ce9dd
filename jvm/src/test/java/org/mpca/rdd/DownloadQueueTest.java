package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;

import org.junit.jupiter.api.Test;
import org.mpca.wire.Order;

class DownloadQueueTest {
    private final DownloadQueue queue = new DownloadQueue();
    private final Download first = download(1);
    private final Download second = download(2);

    private static Download download(int broadcast) {
        Order order = DownloadTest.order(broadcast);
        return new Download(order, order.downloads.get(0));
    }

    private Download.Attempt named(Download download, int order) {
        Download.Attempt attempt = new Download.Attempt(
                order,
                null,
                null,
                DownloadTest.order(download.broadcast).downloads.get(0).agents);
        queue.named(download, attempt);
        return attempt;
    }

    @Test
    void shouldFetchOneAfterTheOther() {
        assertNull(queue.due(0));
        named(first, 1);
        named(second, 1);
        assertSame(first, queue.due(0));
        queue.delivered();
        assertSame(second, queue.due(0));
        queue.delivered();
        assertNull(queue.due(0));
        assertNull(queue.pauseMs(0));
    }

    @Test
    void shouldReplaceTheAttemptOfWhatIsInHand() {
        named(first, 1);
        named(second, 1);
        Download.Attempt newer = named(first, 2);
        assertSame(first, queue.due(0));
        assertSame(newer, first.attempt);
        queue.delivered();
        assertSame(second, queue.due(0));
    }

    @Test
    void shouldQueueAnewWhatWasDeliveredAndIsNamedAgain() {
        named(first, 1);
        queue.delivered();
        named(second, 2);
        named(first, 2);
        assertSame(second, queue.due(0));
        queue.delivered();
        assertSame(first, queue.due(0));
    }

    @Test
    void shouldTryAgainAfterAPauseAndBeforeAnyOther() {
        named(first, 1);
        named(second, 1);
        queue.failed(1000);
        assertNull(queue.due(1499));
        assertEquals(1, queue.pauseMs(1499));
        named(first, 2);
        assertNull(queue.due(1499));
        assertSame(first, queue.due(1500));
        assertNull(queue.pauseMs(1500));
    }

    @Test
    void shouldNotPauseForWhatIsForgotten() {
        named(first, 1);
        named(second, 1);
        queue.failed(1000);
        queue.forgotten(first);
        assertSame(second, queue.due(1001));
    }

    @Test
    void shouldGoOnPausingWhenAnotherIsForgotten() {
        named(first, 1);
        named(second, 1);
        queue.failed(1000);
        queue.forgotten(second);
        assertNull(queue.due(1001));
    }
}
