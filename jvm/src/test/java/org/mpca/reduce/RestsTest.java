package org.mpca.reduce;

import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;

import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;

class RestsTest {
    private static final List<String> ALL = Arrays.asList("1", "2");
    private static final int NEVER = -(1 << 30);

    private final Rests rests = new Rests();

    /** Keeps what a cycle left, and returns it. */
    private float[][] kept(int shard, int cycle, int after) {
        float[][] rest = {new float[1], null, new float[2]};
        rests.keep(shard, cycle, after, ALL, rest);
        return rest;
    }

    @Test
    void shouldGiveWhatACycleLeft() {
        assertNull(rests.left(0, 3, ALL));
        float[][] rest = kept(0, 3, NEVER);
        assertSame(rest, rests.left(0, 3, Arrays.asList("1", "2")));
        assertNull(rests.left(0, 6, ALL));
        assertNull(rests.left(1, 3, ALL), "of another shard");
    }

    @Test
    void shouldGiveNothingToAnotherCut() {
        kept(0, 3, NEVER);
        assertNull(rests.left(0, 3, Arrays.asList("2", "1")));
        assertNull(rests.left(0, 3, Arrays.asList("1", "2", "3")));
    }

    @Test
    void shouldGiveTheSameRestHoweverOftenACycleIsMadeAgain() {
        float[][] first = kept(0, 3, NEVER);
        for (int round = 0; round < 16; round++) {
            assertSame(first, rests.left(0, 3, ALL));
            float[][] again = kept(0, 6, 3);
            assertSame(again, rests.left(0, 6, ALL), "the newest of it counts");
        }
        assertSame(first, rests.left(0, 3, ALL));
    }

    @Test
    void shouldForgetACycleThatWasGivenUp() {
        float[][] first = kept(0, 3, NEVER);
        kept(0, 6, 3); // never taken
        kept(0, 9, 3);
        assertNull(rests.left(0, 6, ALL));
        assertSame(first, rests.left(0, 3, ALL));
        float[][] taken = kept(0, 12, 9);
        assertNull(rests.left(0, 3, ALL), "9 was taken, so 3 is in the joint model");
        assertSame(taken, rests.left(0, 12, ALL));
    }

    @Test
    void shouldKeepShardsApartAndForgetAllBehindACut() {
        float[][] one = kept(0, 3, NEVER);
        float[][] other = kept(1, 4, NEVER);
        kept(1, 7, 4);
        assertSame(one, rests.left(0, 3, ALL));
        assertSame(other, rests.left(1, 4, ALL));
        rests.clear();
        assertNull(rests.left(0, 3, ALL));
        assertNull(rests.left(1, 7, ALL));
    }
}
