package org.mpca.reduce;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Random;
import org.junit.jupiter.api.Test;

class ChunkPlanTest {
    @Test
    void shouldCoverEveryByteOnceByWholeElements() {
        Random random = new Random(5);
        for (int round = 0; round < 2000; round++) {
            int length = 4 * random.nextInt(round % 2 == 0 ? 100 : 3_000_000);
            int executors = 1 + random.nextInt(round % 3 == 0 ? 40 : 8);
            ChunkPlan plan = ChunkPlan.of(length, executors);
            String what = "length=" + length + " executors=" + executors;
            assertEquals(length, plan.length());
            int at = 0;
            int chunk = 0;
            for (int e = 0; e < executors; e++) {
                long end = 4L * (length / 4L * (e + 1) / executors); // where the range ends, and a chunk with it
                for (; at < end; chunk++) {
                    assertEquals(at, plan.offset(chunk), what);
                    assertEquals(0, plan.offset(chunk) % 4, what);
                    assertTrue(plan.length(chunk) > 0 && plan.length(chunk) <= ChunkPlan.DEFAULT_BYTES, what);
                    at += plan.length(chunk);
                }
                assertEquals(end, at, what);
            }
            assertEquals(plan.chunks(), chunk, what);
        }
    }

    @Test
    void shouldCutEightChunksARangeOrMoreWhereTheShardAllows() {
        ChunkPlan large = ChunkPlan.of(16 << 20, 8);
        assertEquals(256 << 10, large.length(0));
        assertEquals(2 << 20, large.offset(8)); // a range of eight

        ChunkPlan middle = ChunkPlan.of(4 << 20, 8);
        assertEquals(64 << 10, middle.length(0));
        assertEquals(64, middle.chunks());

        ChunkPlan uneven = ChunkPlan.of((4 << 20) + 12, 3);
        assertEquals(24, uneven.chunks()); // and none has a ninth of what division left

        ChunkPlan small = ChunkPlan.of(30 << 10, 4);
        assertEquals(4, small.chunks()); // a range is below the least chunk
    }

    @Test
    void shouldKeepAWantedSizeWithinBounds() {
        assertEquals(ChunkPlan.MAX_BYTES, ChunkPlan.of(256 << 20, 4, 8 << 20).length(0));
        assertEquals(ChunkPlan.MIN_BYTES, ChunkPlan.of(256 << 20, 4, 1).length(0));
    }

    @Test
    void shouldHandleAShardOfAlmostTwoGiB() {
        int length = Integer.MAX_VALUE / 4 * 4 - 8;
        ChunkPlan plan = ChunkPlan.of(length, 7);
        assertEquals(length, plan.offset(plan.chunks() - 1) + plan.length(plan.chunks() - 1));
    }

    @Test
    void shouldGiveNothingToSumOfAnEmptyShard() {
        assertEquals(0, ChunkPlan.of(0, 3).chunks());
        assertEquals(1, ChunkPlan.of(4, 3).chunks());
    }

    @Test
    void shouldRefuseHalfElementsAndNobody() {
        assertThrows(IllegalArgumentException.class, () -> ChunkPlan.of(6, 1));
        assertThrows(IllegalArgumentException.class, () -> ChunkPlan.of(-4, 1));
        assertThrows(IllegalArgumentException.class, () -> ChunkPlan.of(8, 0));
    }
}
