package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

class RunsTest {
    @Test
    void shouldSayAStretchInTwoWords() {
        assertEquals(Arrays.asList(3L, 4L, 9L, 1L), Runs.pack(Arrays.asList(3, 4, 5, 6, 9), 1));
        assertEquals(Arrays.asList(7L, 3L, 2L, 1L), Runs.pack(Arrays.asList(7, 7, 7, 2), 0));
        assertEquals(Collections.emptyList(), Runs.pack(Collections.emptyList(), 1));
    }

    @Test
    void shouldReadBackWhatItPacked() {
        Random random = new Random(3);
        for (int step = 0; step < 2; step++) {
            for (int round = 0; round < 100; round++) {
                List<Integer> numbers = new ArrayList<>();
                for (int i = random.nextInt(20); i > 0; i--) {
                    numbers.add(random.nextInt(4));
                }
                assertEquals(numbers, Runs.unpack(Runs.pack(numbers, step), step));
            }
        }
    }
}
