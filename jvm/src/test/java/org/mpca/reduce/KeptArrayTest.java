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
        SpareArrays spare = new SpareArrays(1);
        KeptArray longer = KeptArray.takeRoomy(spare, 4004);
        byte[] array = longer.data;
        longer.release();
        KeptArray shorter = KeptArray.takeRoomy(spare, 4000);
        assertSame(array, shorter.data);
        assertEquals(4000, shorter.length);
        assertTrue(array.length >= 4004);
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
