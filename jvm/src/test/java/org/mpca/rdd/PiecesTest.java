package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.mpca.reduce.ChunkPlan;
import org.mpca.reduce.Scattered;

class PiecesTest {
    private static final int LENGTH = 2 * ChunkPlan.MAX_BYTES + 12;
    private static final String STEM = "mpca_run_1_x_0_0_7_";

    private final byte[] sent = new byte[LENGTH];
    private final List<byte[]> got = new ArrayList<>();
    private final List<Throwable> failures = new ArrayList<>();
    private int came;
    private final Pieces.Whole whole = new Pieces.Whole(LENGTH, () -> came++, (vector, failure) -> {
        if (failure == null) {
            got.add(vector);
        } else {
            failures.add(failure);
        }
    });

    PiecesTest() {
        new Random(1).nextBytes(sent);
    }

    private void arrives(String name) {
        int at = BlockNames.number(name) * ChunkPlan.MAX_BYTES;
        int length = Math.min(ChunkPlan.MAX_BYTES, LENGTH - at);
        whole.arrived(name, new Scattered(ByteBuffer.wrap(sent, at, length).slice()));
    }

    @Test
    void shouldNameNoPieceLargerThanAChunk() {
        assertEquals(Arrays.asList(STEM + 0, STEM + 1, STEM + 2), Pieces.names(STEM, LENGTH));
        assertEquals(Collections.singletonList(STEM + 0), Pieces.names(STEM, ChunkPlan.MAX_BYTES));
        assertTrue(Pieces.names(STEM, 0).isEmpty());
    }

    @Test
    void shouldGiveTheVectorOnceWhenAllPiecesHaveComeInAnyOrderAndSomeTwice() {
        for (int piece : new int[] {2, 0, 2, 0}) {
            arrives(STEM + piece);
            assertTrue(got.isEmpty());
        }
        arrives(STEM + 1);
        arrives(STEM + 1);
        assertEquals(1, got.size());
        assertArrayEquals(sent, got.get(0));
        assertEquals(3, came);
        whole.failed(STEM + 1, new IOException("late"));
        assertTrue(failures.isEmpty());
    }

    @Test
    void shouldTellTheFirstFailureAlone() {
        IOException first = new IOException("first");
        arrives(STEM + 0);
        whole.failed(STEM + 1, first);
        whole.failed(STEM + 2, new IOException("second"));
        arrives(STEM + 1);
        arrives(STEM + 2);
        assertEquals(Collections.singletonList(first), failures);
        assertTrue(got.isEmpty());
        assertEquals(1, came);
    }

    @Test
    void shouldRefuseAPieceOfAnotherLength() {
        whole.arrived(STEM + 2, new Scattered(ByteBuffer.allocate(16)));
        assertEquals(1, failures.size());
        assertTrue(failures.get(0).getMessage().contains("bytes=16"));
    }

    @Test
    void shouldHaveNothingToFetchOfAnEmptyVector() {
        Pieces.fetch(new Peer("1", "nowhere", 1), STEM, 0, () -> {}, (vector, failure) -> {
            assertNull(failure);
            assertNotNull(vector);
            got.add(vector);
        });
        assertEquals(0, got.get(0).length);
    }
}
