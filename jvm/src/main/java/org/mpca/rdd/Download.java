package org.mpca.rdd;

import java.util.BitSet;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

import org.mpca.wire.Order;

/**
 * One broadcast on one executor, from its first mention by an order until it is forgotten.
 *
 * <p>Guarded by its own lock: network threads fill it, orders renew the attempt, the download thread does the rest.
 */
final class Download {
  /** What the newest order that named it says: where from, and for which agents of this executor. Immutable. */
  static final class Attempt {
    final int order;
    final BroadcastSource source;
    final List<Order.Place> agents;

    Attempt(int order, BroadcastSource source, List<Order.Place> agents) {
      this.order = order;
      this.source = source;
      this.agents = agents;
    }
  }

  /** An attempt is over: the broadcast was forgotten, or a newer order named it. */
  static final class Abandoned extends Exception {
    private static final long serialVersionUID = 1;

    Abandoned(String message) {
      super(message);
    }
  }

  final String run;
  final int epoch;
  final int broadcast;
  final int shard;
  final long version;
  final String mode;
  final int length;
  final double alpha;

  private byte[] data;
  private final BitSet have = new BitSet();
  private Attempt attempt;
  private boolean whole;
  private boolean queued;
  private boolean forgotten;
  private long bytesIn;
  private long bytesFromDriver;
  private double start;
  private final Set<String> offered = new HashSet<>();

  Download(Order order, Order.Download what) {
    this.run = order.run;
    this.epoch = order.epoch;
    this.broadcast = (int) what.broadcast;
    this.shard = what.shard;
    this.version = what.version;
    this.mode = what.mode;
    this.length = what.length;
    this.alpha = what.alpha;
  }

  /** Takes a newer attempt; true if the download has to be queued for it. */
  synchronized boolean renew(Attempt newer) {
    attempt = newer;
    boolean queue = !queued;
    queued = true;
    return queue;
  }

  synchronized Attempt attempt() {
    return attempt;
  }

  /** The download thread has done what `done` asked for; false if there is something newer to do. */
  synchronized boolean leave(Attempt done) {
    if (!forgotten && attempt != done) {
      return false;
    }
    queued = false;
    return true;
  }

  synchronized void forget() {
    forgotten = true;
    notifyAll();
  }

  synchronized boolean isForgotten() {
    return forgotten;
  }

  synchronized void check(Attempt current) throws Abandoned {
    if (forgotten || attempt != current) {
      throw new Abandoned(forgotten ? "forgotten" : "named by a newer order");
    }
  }

  /** Waits between two tries, less if it is forgotten meanwhile. */
  synchronized void pause(long millis) throws InterruptedException {
    if (!forgotten) {
      wait(millis);
    }
  }

  synchronized void started(double now) {
    if (start == 0) {
      start = now;
    }
  }

  synchronized double start() {
    return start;
  }

  /** The array that pieces are copied into; whole when {@link #has} says so of every piece. */
  synchronized byte[] data() {
    if (data == null) {
      data = new byte[length];
    }
    return data;
  }

  /** Takes the whole at once. */
  synchronized void adopt(byte[] all, long fromDriver) {
    data = all;
    bytesIn = all.length;
    bytesFromDriver = fromDriver;
    whole = true;
  }

  /** Whether it was taken {@link #adopt at once}. */
  synchronized boolean isWhole() {
    return whole;
  }

  /** Copies a piece in; false if it was there already. */
  synchronized boolean fill(int piece, int offset, java.nio.ByteBuffer bytes, boolean fromDriver) {
    if (have.get(piece)) {
      return false;
    }
    bytesIn += bytes.remaining();
    bytesFromDriver += fromDriver ? bytes.remaining() : 0;
    bytes.get(data(), offset, bytes.remaining());
    have.set(piece);
    return true;
  }

  synchronized boolean has(int piece) {
    return have.get(piece);
  }

  synchronized int count() {
    return have.cardinality();
  }

  /** True once for each agent and incarnation. */
  synchronized boolean offerOnce(Order.Place agent) {
    return offered.add(agent.agent + "/" + agent.incarnation);
  }

  synchronized void takeBackOffer(Order.Place agent) {
    offered.remove(agent.agent + "/" + agent.incarnation);
  }

  /** Bytes received, counted once: the first of an executor's acknowledgements carries them. */
  synchronized long takeBytesIn() {
    long bytes = bytesIn;
    bytesIn = 0;
    return bytes;
  }

  /** Those of them that the driver sent itself, counted once as well. */
  synchronized long takeBytesFromDriver() {
    long bytes = bytesFromDriver;
    bytesFromDriver = 0;
    return bytes;
  }
}
