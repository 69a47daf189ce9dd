package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

/** Nanoseconds; the driver's clock is ahead of this one by AHEAD, and DRIFTS away where a test says so. */
class DriverClockTest {
    private static final long MS = 1_000_000;
    private static final long S = 1_000 * MS;
    private static final long AHEAD = 7_200 * S;

    /** A question that took `there` to the driver and `back` from it. */
    private static void ask(DriverClock clock, long at, long there, long back, long ahead) {
        clock.answered(at, at + there + ahead, at + there + back);
    }

    @Test
    void shouldBeTheOwnClockOnTheDriver() {
        assertEquals(5 * S, new DriverClock().toNanosHere(5.0));
        assertEquals(5.0, new DriverClock().fromSecondsHere(5.0));
    }

    @Test
    void shouldFindTheOffsetWhateverItsSign() {
        for (long ahead : new long[] {AHEAD, -AHEAD}) {
            DriverClock clock = new DriverClock();
            ask(clock, 100 * S, MS, MS, ahead);
            assertEquals(30 * S - ahead, clock.toNanosHere(30.0));
            assertEquals(30.0 + ahead / 1e9, clock.fromSecondsHere(30.0), 1e-9);
        }
    }

    @Test
    void shouldTrustTheQuickestAnswer() {
        DriverClock clock = new DriverClock();
        ask(clock, 100 * S, 400 * MS, 2 * MS, AHEAD);
        ask(clock, 101 * S, MS, MS, AHEAD);
        ask(clock, 102 * S, 300 * MS, MS, AHEAD);
        assertEquals(-AHEAD, clock.toNanosHere(0.0));
    }

    @Test
    void shouldErrByHalfOfOneWayAtMost() {
        DriverClock clock = new DriverClock();
        ask(clock, 100 * S, 400 * MS, 0, AHEAD);
        assertEquals(0.0, (-AHEAD - clock.toNanosHere(0.0)) / 1e9, 0.2);
    }

    @Test
    void shouldFollowADriftAndForgetWhatIsOld() {
        DriverClock clock = new DriverClock();
        for (int minute = 0; minute < 100; minute++) { // 10 ms a minute: more than any oscillator
            ask(clock, minute * 60 * S, MS, minute == 0 ? 0 : MS, AHEAD + minute * 10 * MS);
        }
        assertEquals(0.0, (-AHEAD - 990 * MS - clock.toNanosHere(0.0)) / 1e9, 0.08);
    }

    @Test
    void shouldBelieveANewAnswerThatExcludesTheOldOnes() {
        DriverClock clock = new DriverClock();
        ask(clock, 100 * S, MS / 10, MS / 10, AHEAD);
        ask(clock, 200 * S, MS, MS, AHEAD + 3_600 * S); // this machine slept for an hour
        assertEquals(-AHEAD - 3_600 * S, clock.toNanosHere(0.0));
    }
}
