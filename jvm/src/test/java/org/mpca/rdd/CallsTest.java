package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class CallsTest {
    private final Calls calls = new Calls("test-calls");

    private static Peer peer(int number) {
        return new Peer(String.valueOf(number), "host", 7000 + number);
    }

    private static void await(CountDownLatch latch) {
        try {
            assertTrue(latch.await(30, TimeUnit.SECONDS));
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    @Test
    void shouldCallOnePeerInTheOrderOfTheCallsAndNeverTwiceAtATime() {
        int count = 2000;
        List<Integer> made = Collections.synchronizedList(new ArrayList<>());
        AtomicInteger atATime = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        CountDownLatch end = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            int number = i;
            calls.add(peer(1), () -> {
                most.accumulateAndGet(atATime.incrementAndGet(), Math::max);
                Thread.yield();
                made.add(number);
                atATime.decrementAndGet();
                end.countDown();
            });
        }
        await(end);
        assertEquals(IntStream.range(0, count).boxed().collect(Collectors.toList()), made);
        assertEquals(1, most.get());
    }

    @Test
    void shouldCallOthersWhileOneIsConnectedTo() {
        CountDownLatch connected = new CountDownLatch(1);
        CountDownLatch behind = new CountDownLatch(1);
        calls.add(peer(1), () -> await(connected));
        calls.add(peer(1), behind::countDown);
        CountDownLatch others = new CountDownLatch(Calls.MOST_THREADS - 1);
        for (int i = 0; i < Calls.MOST_THREADS - 1; i++) {
            calls.add(peer(2 + i), others::countDown);
        }
        await(others);
        assertEquals(1, behind.getCount());
        connected.countDown();
        await(behind);
    }

    @Test
    void shouldGetToPeersThatWaitForAThread() {
        CountDownLatch connected = new CountDownLatch(1);
        for (int i = 0; i < Calls.MOST_THREADS; i++) {
            calls.add(peer(i), () -> await(connected));
        }
        CountDownLatch late = new CountDownLatch(1);
        calls.add(peer(Calls.MOST_THREADS), late::countDown);
        assertFalse(late.getCount() == 0);
        connected.countDown();
        await(late);
    }

    @Test
    void shouldGoOnBehindACallThatFails() {
        CountDownLatch behind = new CountDownLatch(1);
        calls.add(peer(1), () -> {
            throw new IllegalStateException("of the test");
        });
        calls.add(peer(1), behind::countDown);
        await(behind);
        CountDownLatch later = new CountDownLatch(1);
        calls.add(peer(1), later::countDown);
        await(later);
    }
}
