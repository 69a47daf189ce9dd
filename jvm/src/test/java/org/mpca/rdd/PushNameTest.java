package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.Collections;
import org.junit.jupiter.api.Test;

class PushNameTest {
    private final BlockNames names = new BlockNames("digits_1", 2);

    @Test
    void shouldReadWhatAPartSays() {
        PushName name = PushName.of(names.pushedPart(-3, 12, 4096, "driver_1"));
        assertTrue(name.isPart());
        assertEquals(BlockNames.ofRun("digits_1"), name.run);
        assertEquals(BlockNames.ofAttempt("digits_1", 2), name.attempt);
        assertEquals(-3, name.cycle());
        assertEquals(12, name.order());
        assertEquals(4096, name.length());
        assertEquals("driver_1", name.executor);
    }

    @Test
    void shouldReadWhatPiecesSay() {
        PushName name = PushName.of(names.pushedPieces(9, 5, 8, 3, 777, "5"));
        assertFalse(name.isPart());
        assertEquals(BlockNames.ofAttempt("digits_1", 2), name.attempt);
        assertEquals(9, name.broadcast());
        assertEquals(Arrays.asList(5, 13, 21), name.pieces());
        assertEquals(777, name.length());
        assertEquals("5", name.executor);
        assertEquals(
                Collections.singletonList(0),
                PushName.of(names.pushedPieces(9, 0, 1, 1, 4, "0")).pieces());
    }

    @Test
    void shouldLeaveOtherNamesAlone() {
        assertNull(PushName.of(names.sum(3) + 1));
        assertNull(PushName.of(names.parts(3, 1, "1") + 1));
        assertNull(PushName.of(names.pieces(3) + 1));
        assertNull(PushName.of("broadcast_1_p_2"));
        assertNull(PushName.of("mpca_p"));
        assertNull(PushName.of("mpca_a_1_p"));
        assertNull(PushName.of(new BlockNames("p_", 0).sum(1) + 0));
    }

    @Test
    void shouldRefuseADamagedOne() {
        assertThrows(NumberFormatException.class, () -> PushName.of("mpca_a_1_p_3_x_5_1"));
        assertThrows(NumberFormatException.class, () -> PushName.of("mpca_a_1_p_3_4_5"));
    }
}
