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
      assertEquals(executors, plan.executors());
      int at = 0;
      for (int e = 0; e < executors; e++) {
        assertEquals(4L * (length / 4L * e / executors), at, what); // where the range begins
        for (int c = plan.first(e); c < plan.end(e); c++) {
          assertEquals(at, plan.offset(c), what);
          assertEquals(0, plan.offset(c) % 4, what);
          assertTrue(plan.length(c) > 0 && plan.length(c) <= ChunkPlan.DEFAULT_BYTES, what);
          assertEquals(e, plan.owner(c), what);
          at += plan.length(c);
        }
      }
      assertEquals(length, at, what);
      assertEquals(plan.chunks(), plan.end(executors - 1), what);
    }
  }

  @Test
  void shouldCutAtLeastEightChunksARangeWhereTheShardAllows() {
    ChunkPlan large = ChunkPlan.of(16 << 20, 8);
    assertEquals(256 << 10, large.length(0));
    assertEquals(8, large.end(0) - large.first(0));

    ChunkPlan middle = ChunkPlan.of(4 << 20, 8);
    assertEquals(64 << 10, middle.length(0));
    assertEquals(64, middle.chunks());

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
    assertEquals(2, ChunkPlan.of(4, 3).owner(0));
  }

  @Test
  void shouldRefuseHalfElementsAndNobody() {
    assertThrows(IllegalArgumentException.class, () -> ChunkPlan.of(6, 1));
    assertThrows(IllegalArgumentException.class, () -> ChunkPlan.of(-4, 1));
    assertThrows(IllegalArgumentException.class, () -> ChunkPlan.of(8, 0));
  }
}
