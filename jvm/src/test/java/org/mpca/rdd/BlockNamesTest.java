package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.Collections;
import org.junit.jupiter.api.Test;

class BlockNamesTest {
    private final BlockNames names = new BlockNames("digits_1", 2);

    @Test
    void shouldReadNumbersBackFromNames() {
        assertEquals(17, BlockNames.number(names.sum(4) + 17));
        assertEquals(4, BlockNames.numberAfter(names.sums(), names.sum(4) + 17));
        assertEquals(5, BlockNames.number(names.parts(-3, 2, "17") + 5));
    }

    @Test
    void shouldNumberFromFirstToBeforeEnd() {
        String stem = names.sum(1);
        assertEquals(Arrays.asList(stem + 2, stem + 3), BlockNames.numbered(stem, 2, 4));
        assertEquals(Collections.emptyList(), BlockNames.numbered(stem, 2, 2));
    }

    @Test
    void shouldTellSumsFromEverythingElse() {
        assertTrue(BlockNames.isSum(names.sum(12) + 7));
        assertEquals(names.sums(), BlockNames.sumsOf(names.sum(12) + 7));
        assertTrue(BlockNames.isSum(new BlockNames("r_", 0).sum(1) + 0));
        assertFalse(BlockNames.isSum(new BlockNames("r_", 0).parts(1, 1, "1") + 0));
        assertFalse(BlockNames.isSum(names.kept(12) + 7));
        assertFalse(BlockNames.isSum(names.pushedPieces(9, 1, 2, 3, 4, "5")));
        assertFalse(BlockNames.isSum("broadcast_1_r_2"));
        assertFalse(BlockNames.isSum("mpca_r"));
    }

    @Test
    void shouldNotMistakeARunForOneWhoseNameBeginsAlike() {
        assertTrue(names.sum(1).startsWith(BlockNames.ofRun("digits_1")));
        assertFalse(names.sum(1).startsWith(BlockNames.ofRun("digits")));
    }
}
