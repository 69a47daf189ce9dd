package org.mpca.rdd;

import java.util.ArrayDeque;

/**
 * The driver's monotonic clock as this JVM knows it. Deadlines and reported times are times of that clock. Wall clocks are not
 * used, since they may be wrong and may be set at any moment.
 *
 * <p>Monotonic clocks of two machines differ by an offset, which questions measure: the driver's clock was read between
 * the sending and the answer, so each gives bounds. The narrowest of the newest ones counts, since oscillators drift apart
 * by some milliseconds a minute. Bounds that exclude each other mean that one of the machines stood still (a suspended virtual
 * machine): then only the newest counts.
 *
 * <p>The unit here is the nanosecond of System.nanoTime, on Linux CLOCK_MONOTONIC, which Python's time.monotonic reads too:
 * all processes of one machine have it in common.
 *
 * <p>Concurrency: {@link #answered} is called by one thread, mpca-clock, which owns the bounds; everything else by any.
 */
final class DriverClock {
  private static final int KEPT = 8;
  /** More than two clocks drift apart while {@link #KEPT} answers come. */
  private static final long DRIFT_NANOS = 100_000_000;

  /** The driver's clock minus this one is between these. */
  private static final class Bounds {
    final long low;
    final long high;

    Bounds(long low, long high) {
      this.low = low;
      this.high = high;
    }
  }

  private final ArrayDeque<Bounds> kept = new ArrayDeque<>();
  private volatile long offset;

  /** Until the first answer, this machine's clock is taken for the driver's. */
  DriverClock() {}

  /** Takes in one question: when it was sent, what the driver's clock said, when the answer was here. */
  void answered(long sentNanos, long driverNanos, long receivedNanos) {
    Bounds newest = new Bounds(driverNanos - receivedNanos, driverNanos - sentNanos);
    kept.removeIf(one -> one.high + DRIFT_NANOS < newest.low || newest.high + DRIFT_NANOS < one.low);
    kept.addLast(newest);
    if (kept.size() > KEPT) {
      kept.removeFirst();
    }
    Bounds best = newest;
    for (Bounds one : kept) {
      best = one.high - one.low < best.high - best.low ? one : best;
    }
    offset = best.low + (best.high - best.low) / 2;
  }

  /** A time of the driver's clock, in seconds, as System.nanoTime of this JVM. */
  long toNanosHere(double driverSeconds) {
    return (long) (driverSeconds * 1e9) - offset;
  }

  /** A time of this machine's monotonic clock, in seconds, as one of the driver's. */
  double fromSecondsHere(double seconds) {
    return seconds + offset / 1e9;
  }

  /** Now, in seconds of the driver's clock. */
  double now() {
    return fromSecondsHere(System.nanoTime() / 1e9);
  }
}
