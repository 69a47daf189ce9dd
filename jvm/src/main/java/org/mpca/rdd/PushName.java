package org.mpca.rdd;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * What the name of a stream from one executor to another says ({@link BlockNames}): a range of a part, or pieces of a broadcast.
 * Immutable.
 */
final class PushName {
    private static final char PART = 'p';
    private static final char PIECES = 'm';
    private static final int NUMBERS_OF_PART = 3;
    private static final int NUMBERS_OF_PIECES = 5;

    /** Of the run, as {@link BlockNames#ofRun}. */
    final String run;
    /** Of the attempt, as {@link BlockNames#ofAttempt}. */
    final String attempt;
    /** Who sends it. */
    final String executor;

    private final char kind;
    private final int[] numbers;

    private PushName(String run, String attempt, char kind, int[] numbers, String executor) {
        this.run = run;
        this.attempt = attempt;
        this.kind = kind;
        this.numbers = numbers;
        this.executor = executor;
    }

    /**
     * Null: it is no such name.
     *
     * @throws NumberFormatException it is damaged
     */
    static PushName of(String name) {
        int at = BlockNames.kindAt(name);
        char kind = at < 0 || at + 1 >= name.length() || name.charAt(at + 1) != '_' ? 0 : name.charAt(at);
        if (kind != PART && kind != PIECES) {
            return null;
        }
        int count = kind == PART ? NUMBERS_OF_PART : NUMBERS_OF_PIECES;
        String[] fields = name.substring(at + 2).split("_", count + 1);
        if (fields.length <= count) {
            throw new NumberFormatException("too few numbers: " + name);
        }
        int[] numbers =
                Arrays.stream(fields).limit(count).mapToInt(Integer::parseInt).toArray();
        return new PushName(BlockNames.runOf(name), name.substring(0, at), kind, numbers, fields[count]);
    }

    boolean isPart() {
        return kind == PART;
    }

    /** Bytes of the stream. */
    int length() {
        return numbers[numbers.length - 1];
    }

    boolean isFromDriver() {
        return executor.equals(SparkInternals.DRIVER);
    }

    // ---- of a part
    // --------------------------------------------------------------------------------------------------------

    int cycle() {
        return numbers[0];
    }

    /** That froze it. */
    int order() {
        return numbers[1];
    }

    // ---- of pieces
    // --------------------------------------------------------------------------------------------------------

    int broadcast() {
        return numbers[0];
    }

    /** How many numbers there are from one piece to the next. */
    int step() {
        return numbers[2];
    }

    /** Which pieces, in the sequence in which they lie in the stream. */
    List<Integer> pieces() {
        List<Integer> all = new ArrayList<>();
        for (int i = 0; i < numbers[3]; i++) {
            all.add(numbers[1] + i * step());
        }
        return all;
    }
}
