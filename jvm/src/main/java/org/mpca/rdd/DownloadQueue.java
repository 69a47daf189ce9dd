package org.mpca.rdd;

import java.util.ArrayDeque;
import java.util.Deque;

/**
 * Which download is fetched now, and by which attempt: one after the other, in the order in which orders first named them, so
 * that two never share the wire. No I/O, no thread; the time is an argument.
 *
 * <p>A newer order that names the download in hand replaces its attempt. One that failed is tried again after a pause, before
 * any other; one that was delivered and is named again queues anew.
 *
 * <p>Concurrency: owned by one thread, mpca-download.
 */
final class DownloadQueue {
  static final long PAUSE_MS = 500;

  /** The first is in hand. */
  private final Deque<Download> queue = new ArrayDeque<>();
  /** When the first may be tried again, if it has failed. */
  private Long pausedUntil;

  /** An order names a download. */
  void named(Download download, Download.Attempt attempt) {
    download.attempt = attempt;
    if (!queue.contains(download)) {
      queue.add(download);
    }
  }

  /** Nobody wants it any more. */
  void forgotten(Download download) {
    if (queue.peek() == download) {
      pausedUntil = null;
    }
    queue.remove(download);
  }

  /** What is in hand was handed to its agents. */
  void delivered() {
    queue.remove();
  }

  /** What is in hand could not be had. */
  void failed(long nowMs) {
    pausedUntil = nowMs + PAUSE_MS;
  }

  /** What is to be under way: a download with its newest attempt, or null. */
  Download due(long nowMs) {
    if (pausedUntil != null && nowMs >= pausedUntil) {
      pausedUntil = null;
    }
    return pausedUntil == null ? queue.peek() : null;
  }

  /** For how long nothing is due by the time alone; null: until the next event. */
  Long pauseMs(long nowMs) {
    return pausedUntil == null ? null : Math.max(0, pausedUntil - nowMs);
  }
}
