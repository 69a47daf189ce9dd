package org.mpca.rdd;

import java.util.ArrayList;
import java.util.List;

/**
 * Whole numbers of which each is mostly the one before plus a known step, in few words: first, count, first, count, ...
 * Positions of executors are such a list (step 1), and the order that froze each part is (step 0). Pure.
 */
final class Runs {
    private Runs() {}

    static List<Long> pack(List<Integer> numbers, int step) {
        List<Long> runs = new ArrayList<>();
        int count = 0;
        for (int i = 0; i < numbers.size(); i++) {
            if (i > 0 && numbers.get(i) == numbers.get(i - 1) + step) {
                count++;
                runs.set(runs.size() - 1, (long) count);
            } else {
                count = 1;
                runs.add((long) numbers.get(i));
                runs.add(1L);
            }
        }
        return runs;
    }

    static List<Integer> unpack(List<?> runs, int step) {
        List<Integer> numbers = new ArrayList<>();
        for (int r = 0; r < runs.size(); r += 2) {
            int first = ((Number) runs.get(r)).intValue();
            int count = ((Number) runs.get(r + 1)).intValue();
            for (int i = 0; i < count; i++) {
                numbers.add(first + i * step);
            }
        }
        return numbers;
    }
}
