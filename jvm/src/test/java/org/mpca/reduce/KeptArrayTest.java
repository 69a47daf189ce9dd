package org.mpca.reduce;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class KeptArrayTest {
    @Test
    void shouldUseOneArrayForShardsOfTwoLengths() {
        int longer = 1 << 20;
        int shorter = longer - 32 * 4 * 64; // the last of 32 shards, whose edges are multiples of 64 elements
        for (int[] lengths : new int[][] {{longer, shorter, longer}, {shorter, longer, shorter}}) {
            SpareArrays spare = new SpareArrays(1);
            byte[] array = null;
            for (int length : lengths) {
                KeptArray one = KeptArray.takeRoomy(spare, length);
                assertEquals(length, one.length);
                assertTrue(one.data.length >= length);
                if (array != null) {
                    assertSame(array, one.data);
                }
                array = one.data;
                one.release();
            }
        }
    }

    @Test
    void shouldNotTakeAMuchLongerArrayForAShardOfAnotherModel() {
        SpareArrays spare = new SpareArrays(1);
        KeptArray whole = KeptArray.takeRoomy(spare, 1 << 20);
        whole.release();
        assertNotSame(whole.data, KeptArray.takeRoomy(spare, 1 << 19).data);
    }

    @Test
    void shouldHaveNothingBehindAnArrayThatIsTakenAsLongAsAsked() {
        assertEquals(4004, KeptArray.take(new SpareArrays(1), 4004).data.length);
    }

    @Test
    void shouldGiveAnArrayAwayOnceTheLastUserHasLetGo() {
        SpareArrays spare = new SpareArrays(1);
        KeptArray kept = KeptArray.take(spare, 8);
        assertTrue(kept.retain());
        kept.release();
        assertNotSame(kept.data, KeptArray.take(spare, 8).data, "one still uses it");
        kept.release();
        assertSame(kept.data, KeptArray.take(spare, 8).data);
        assertFalse(kept.retain());
        assertThrows(IllegalStateException.class, kept::release);
    }
}
