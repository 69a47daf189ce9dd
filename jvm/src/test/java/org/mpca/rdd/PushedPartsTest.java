package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.mpca.reduce.KeptArray;

/** What is pushed comes early, in time, late, twice, or breaks off. */
class PushedPartsTest {
    private static final String RUN = "run_1";
    private static final int TERM = 1;
    private static final int CYCLE = 4;
    private static final int ORDER = 7;
    private static final int[] ENDS = {3, 5, 9};

    private final BlockNames names = new BlockNames(RUN, TERM);
    private final PushedParts parts = new PushedParts();
    private final List<Integer> told = new ArrayList<>();

    private Uploads.Sink begin(int cycle, int bytes, String executor) {
        return parts.begin(PushName.of(names.pushedPart(cycle, ORDER, bytes, executor)));
    }

    private static void come(Uploads.Sink sink, int first, int end) {
        ByteBuffer bytes = ByteBuffer.allocateDirect(end - first);
        for (int i = first; i < end; i++) {
            bytes.put((byte) i);
        }
        bytes.flip();
        sink.come(bytes);
    }

    private PushedParts.Range range(String executor) {
        return parts.range(RUN, TERM, CYCLE, ORDER, executor);
    }

    private void told(Integer... chunks) {
        assertEquals(Arrays.asList(chunks), told);
    }

    @Test
    void shouldTellOfWhatIsHereAndOfWhatComes() {
        Uploads.Sink sink = begin(CYCLE, 9, "1");
        come(sink, 0, 4);
        PushedParts.Range range = range("1");
        range.watch(ENDS, told::add);
        told(0);
        come(sink, 4, 8);
        told(0, 1);
        assertFalse(range.isTold());
        come(sink, 8, 9);
        sink.end();
        told(0, 1, 2);
        assertTrue(range.isTold());
        KeptArray array = range.use();
        for (int i = 0; i < 9; i++) {
            assertEquals(i, array.data[i]);
        }
    }

    @Test
    void shouldBeWatchedBeforeAnythingComes() {
        range("1").watch(ENDS, told::add);
        told();
        come(begin(CYCLE, 9, "1"), 0, 9);
        told(0, 1, 2);
    }

    @Test
    void shouldKeepApartWhatExecutorsPush() {
        come(begin(CYCLE, 9, "1"), 0, 9);
        range("11").watch(ENDS, told::add);
        told();
        assertEquals(0, range("11").unwatch());
    }

    @Test
    void shouldTellAgainWhoWatchesNext() {
        come(begin(CYCLE, 9, "1"), 0, 5);
        range("1").watch(ENDS, told::add);
        range("1").watch(ENDS, told::add); // a task that runs again
        told(0, 1, 0, 1);
    }

    @Test
    void shouldTellOfNothingOnceItIsGivenUp() {
        Uploads.Sink sink = begin(CYCLE, 9, "1");
        come(sink, 0, 3);
        range("1").watch(ENDS, told::add);
        assertEquals(1, range("1").unwatch(), "the chunk to ask for");
        come(sink, 3, 9);
        told(0);
    }

    @Test
    void shouldCountTheFirstOfTwoStreams() {
        Uploads.Sink first = begin(CYCLE, 9, "1");
        assertSame(Uploads.NOWHERE, begin(CYCLE, 9, "1"));
        range("1").watch(ENDS, told::add);
        come(first, 0, 9);
        told(0, 1, 2);
    }

    @Test
    void shouldTellNothingOfAnotherLength() {
        come(begin(CYCLE, 8, "1"), 0, 8);
        range("1").watch(ENDS, told::add);
        come(begin(CYCLE, 9, "2"), 0, 12); // more than it said
        range("2").watch(ENDS, told::add);
        told(0, 1, 2);
    }

    @Test
    void shouldSayHowLongNothingCame() {
        Uploads.Sink sink = begin(CYCLE, 9, "1");
        range("1").watch(ENDS, told::add);
        long later = System.nanoTime() + 60_000_000_000L;
        long before = range("1").silentMillis(later);
        assertTrue(before >= 60_000);
        for (long now = System.nanoTime(); System.nanoTime() - now < 2_000_000; ) {
            Thread.yield(); // until the clock shows more milliseconds
        }
        come(sink, 0, 1);
        assertTrue(range("1").silentMillis(later) < before);
    }

    @Test
    void shouldExpectRangesOfTheExecutorsThatFrozeThem() {
        List<String> executors = Arrays.asList("0", "1", "2");
        assertFalse(parts.expects(RUN, TERM, CYCLE, ORDER, "1", executors));
        parts.freezing(RUN, TERM, CYCLE, ORDER, executors);
        assertTrue(parts.expects(RUN, TERM, CYCLE, ORDER, "1", new ArrayList<>(executors)));
        assertFalse(parts.expects(RUN, TERM, CYCLE, ORDER, "1", Arrays.asList("0", "1")), "they have other ranges");
        assertFalse(parts.expects(RUN, TERM, CYCLE, ORDER + 1, "1", executors));
        assertFalse(parts.expects(RUN, TERM + 1, CYCLE, ORDER, "1", executors));
        parts.forget(RUN, TERM, CYCLE);
        assertFalse(parts.expects(RUN, TERM, CYCLE, ORDER, "1", executors));
    }

    @Test
    void shouldExpectNothingOfASilentExecutorUntilSomethingComes() {
        List<String> executors = Arrays.asList("0", "1", "2");
        parts.freezing(RUN, TERM, CYCLE, ORDER, executors);
        parts.giveUp(RUN, TERM, "1");
        assertFalse(parts.expects(RUN, TERM, CYCLE, ORDER, "1", executors));
        assertTrue(parts.expects(RUN, TERM, CYCLE, ORDER, "2", executors));
        begin(CYCLE, 9, "2");
        assertFalse(parts.expects(RUN, TERM, CYCLE, ORDER, "1", executors));
        begin(CYCLE, 9, "1");
        assertTrue(parts.expects(RUN, TERM, CYCLE, ORDER, "1", executors));
    }

    @Test
    void shouldTakeNothingThatIsForgotten() {
        Uploads.Sink sink = begin(CYCLE, 9, "1");
        come(sink, 0, 9);
        sink.end();
        begin(CYCLE, 9, "2"); // breaks off
        parts.freezing(RUN, TERM, CYCLE, ORDER, Arrays.asList("0", "1"));
        parts.forget(RUN, TERM, CYCLE);
        assertSame(Uploads.NOWHERE, begin(CYCLE, 9, "1"));
        assertSame(Uploads.NOWHERE, begin(CYCLE - 1, 9, "1"));
        come(begin(CYCLE + 1, 9, "1"), 0, 9);
        parts.range(RUN, TERM, CYCLE + 1, ORDER, "1").watch(ENDS, told::add);
        told(0, 1, 2);
    }

    @Test
    void shouldTakeWhatIsReadBeforeTheFirstCycle() {
        List<String> executors = Arrays.asList("0", "1");
        parts.freezing(RUN, TERM, -3, ORDER, executors);
        assertTrue(parts.expects(RUN, TERM, -3, ORDER, "1", executors), "x_0 is read in negative cycles");
        parts.range(RUN, TERM, -3, ORDER, "1").watch(ENDS, told::add);
        come(begin(-3, 9, "1"), 0, 9);
        told(0, 1, 2);
    }

    @Test
    void shouldTakeNothingOfARunThatIsOver() {
        parts.enter(RUN);
        parts.freezing(RUN, TERM, CYCLE, ORDER, Arrays.asList("0", "1"));
        assertFalse(parts.isOver(BlockNames.ofRun(RUN)));
        parts.endRun(RUN);
        assertTrue(parts.isOver(BlockNames.ofRun(RUN)));
        assertFalse(parts.isOver(BlockNames.ofRun("run")));
        assertFalse(parts.expects(RUN, TERM, CYCLE, ORDER, "1", Arrays.asList("0", "1")));
        parts.enter(RUN); // once more, of the same name
        assertFalse(parts.isOver(BlockNames.ofRun(RUN)));
    }
}
