package org.mpca.rdd;

import java.util.ArrayDeque;
import java.util.Deque;

/**
 * Which download is fetched now, and by which attempt: one after the other, in the order in which orders first named them, so
 * that two never share the wire. No I/O, no thread; the time is an argument.
 *
 * <p>When a newer order names the download in hand, its attempt replaces the older one. A failed download is tried again after a
 * pause, before any other. A delivered one that is named again goes to the end of the queue.
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

  /** The driver needs a download no more. */
  void forgotten(Download download) {
    if (queue.peek() == download) {
      pausedUntil = null;
    }
    queue.remove(download);
  }

  /** The download in hand was handed to its agents. */
  void delivered() {
    queue.remove();
  }

  /** The attempt in hand failed. */
  void failed(long nowMs) {
    pausedUntil = nowMs + PAUSE_MS;
  }

  /** The download whose newest attempt is to be under way, or null. */
  Download due(long nowMs) {
    if (pausedUntil != null && nowMs >= pausedUntil) {
      pausedUntil = null;
    }
    return pausedUntil == null ? queue.peek() : null;
  }

  /** How long until the pause ends; null: there is none, and only an event changes what is due. */
  Long pauseMs(long nowMs) {
    return pausedUntil == null ? null : Math.max(0, pausedUntil - nowMs);
  }
}
