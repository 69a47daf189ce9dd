package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

/** When the yields of the next cycle are asked for: what is expected of the reduce that is under way. */
class FreezeAheadTest {
    private static final long UNKNOWN = Long.MAX_VALUE;

    @Test
    void aReduceIsExpectedToTakeAsLongAsTheLastOne() {
        assertEquals(70, FreezeAhead.rest(30, 100, 0));
        assertEquals(0, FreezeAhead.rest(130, 100, 0));
    }

    @Test
    void whatHasArrivedMakesItLongerButNeverShorter() {
        assertEquals(270, FreezeAhead.rest(30, 100, 0.1));
        assertEquals(70, FreezeAhead.rest(30, 100, 0.9));
    }

    @Test
    void ofAReduceThatIsNotKnownNothingIsExpected() {
        assertEquals(UNKNOWN - 30, FreezeAhead.rest(30, UNKNOWN, 0.5));
    }

    @Test
    void aPaceIsOfOneRunAndEndsWithIt() {
        Pace pace = new Pace();
        pace.reduced("a", 1, 500);
        pace.froze("a", 20);
        pace.froze("a", 10);
        assertEquals(500, pace.reduce("a", 1));
        assertEquals(UNKNOWN, pace.reduce("a", 2));
        assertEquals(UNKNOWN, pace.reduce("b", 1));
        assertEquals(20, pace.freeze("a"));
        assertEquals(0, pace.freeze("b"));

        pace.endRun("a");

        assertEquals(UNKNOWN, pace.reduce("a", 1));
        assertEquals(0, pace.freeze("a"));
    }

    @Test
    void oneLongFreezeIsForgottenAfterEightMore() {
        Pace pace = new Pace();
        pace.froze("a", 1000);
        for (int i = 0; i < 7; i++) {
            pace.froze("a", 10);
        }
        assertEquals(1000, pace.freeze("a"));
        pace.froze("a", 10);
        assertEquals(10, pace.freeze("a"));
    }
}
