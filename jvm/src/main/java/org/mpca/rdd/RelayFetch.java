package org.mpca.rdd;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/**
 * One executor's side of a relay. Participants: the driver, which has all pieces, and K owners, of which this is one.
 *
 * <p>Normal flow: ask the driver for the own pieces in one request; when half of them are here, and again when all are,
 * store them and tell every other owner with a mark of one byte. A peer's mark is looked for in this JVM's own block
 * table; when it is there, the batch exists for sure and is asked for in one request.
 *
 * <p>Irregular flow: an owner that cannot be reached, fails a fetch, sends damaged pieces, or is silent for long after the own pieces came is
 * passed over: its pieces come from the driver. If the driver fails, the whole is tried again by the caller; pieces that
 * are here stay.
 *
 * <p>The download thread runs it; network threads fill the download and raise `signal`. Flags are guarded by `this`.
 */
final class RelayFetch {
  private static final ExecutorService CALLERS = Threads.pool("mpca-relay");
  private static final int BATCHES = 2;
  private static final long POLL_MS = 2;
  /** Silence of an owner that is borne at least; longer when the own pieces took long, since then the links are slow. */
  private static final long PATIENCE_MS = 3000;

  /** Pieces that one owner announces together. */
  private static final class Batch {
    final int owner;
    final int number;
    final List<Integer> pieces = new ArrayList<>();
    boolean asked;
    boolean fromDriver;
    boolean announced;

    Batch(int owner, int number) {
      this.owner = owner;
      this.number = number;
    }
  }

  private final RelayBroadcast.Source source;
  private final Download download;
  private final Download.Attempt attempt;
  private final int piece;
  private final int count;
  private final int me;
  private final List<Batch> batches = new ArrayList<>();
  private final Semaphore signal = new Semaphore(0);
  private final boolean[] passedOver;
  private Throwable driverFailure;
  /** Who sent something that came damaged. */
  private final Set<String> damaging = new HashSet<>();

  RelayFetch(RelayBroadcast.Source source, Download download, Download.Attempt attempt) {
    this.source = source;
    this.download = download;
    this.attempt = attempt;
    this.piece = source.pieceBytes;
    this.count = RelayBroadcast.pieces(download.length, piece);
    this.me = indexOf(source.owners, ExecutorSide.get().self().executor);
    this.passedOver = new boolean[source.owners.size()];
    int owners = source.owners.size();
    for (int owner = 0; owner < owners; owner++) {
      int own = owner >= count ? 0 : (count - owner + owners - 1) / owners;
      for (int number = 0; number < BATCHES; number++) {
        Batch batch = new Batch(owner, number);
        for (int i = own * number / BATCHES; i < own * (number + 1) / BATCHES; i++) {
          batch.pieces.add(owner + i * owners);
        }
        if (!batch.pieces.isEmpty()) {
          batches.add(batch);
        }
      }
    }
  }

  void run() throws IOException, Download.Abandoned, InterruptedException {
    long began = System.nanoTime();
    long ownTook = -1;
    long moved = began;
    int seen = -1;
    askDriver(missing(me));
    while (!done()) {
      download.check(attempt);
      throwDriverFailure();
      announce();
      askOwners();
      long now = System.nanoTime();
      if (download.count() != seen) {
        seen = download.count();
        moved = now;
      }
      if (ownTook < 0 && missing(me).isEmpty()) {
        ownTook = now - began;
      }
      long patience = Math.max(TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS), 3 * ownTook);
      if (ownTook >= 0 && now - moved > patience) {
        passOverTheSilent();
        moved = now;
      }
      signal.tryAcquire(POLL_MS, TimeUnit.MILLISECONDS);
      signal.drainPermits();
    }
  }

  /** Everything is here, and peers have been told of what they wait for. */
  private boolean done() {
    announce();
    return download.count() == count;
  }

  private List<Integer> missing(int owner) {
    List<Integer> missing = new ArrayList<>();
    for (Batch batch : batches) {
      if (batch.owner == owner) {
        missing.addAll(missing(batch));
      }
    }
    return missing;
  }

  private List<Integer> missing(Batch batch) {
    List<Integer> missing = new ArrayList<>();
    for (int p : batch.pieces) {
      if (!download.has(p)) {
        missing.add(p);
      }
    }
    return missing;
  }

  private void announce() {
    for (Batch batch : batches) {
      if (batch.owner != me || batch.announced || !missing(batch).isEmpty()) {
        continue;
      }
      batch.announced = true;
      for (int p : batch.pieces) {
        CheckedBlocks.put(source.names.pieces(download.broadcast) + p, download.data(), p * piece, size(p));
      }
      String mark = source.names.mark(download.broadcast, source.order, me, batch.number);
      for (int owner = 0; owner < source.owners.size(); owner++) {
        if (owner != me) {
          setMark(owner, mark);
        }
      }
    }
  }

  private void setMark(int owner, String mark) {
    call(owner, () -> SparkInternals.upload(source.owners.get(owner), mark, ByteBuffer.wrap(new byte[1]), failure -> {
      if (failure != null) {
        passOver(owner);
      }
    }));
  }

  /** Asks owners for batches that they have announced, and the driver for those of owners that are passed over. */
  private void askOwners() {
    for (Batch batch : batches) {
      if (batch.owner == me || batch.fromDriver) {
        continue;
      }
      if (isPassedOver(batch.owner)) {
        batch.fromDriver = true;
        askDriver(missing(batch));
      } else if (!batch.asked
          && SparkInternals.has(source.names.mark(download.broadcast, source.order, batch.owner, batch.number))) {
        batch.asked = true;
        ask(batch);
      }
    }
  }

  private void ask(Batch batch) {
    List<Integer> wanted = missing(batch);
    if (!wanted.isEmpty()) {
      Peer owner = source.owners.get(batch.owner);
      call(batch.owner, () -> CheckedBlocks.fetch(owner, names(wanted), new Filler(owner.executor) {
        @Override
        public void failed(String name, Throwable cause) {
          if (cause instanceof CheckedBlocks.Damaged) {
            tellDamage(owner.executor, cause);
          }
          passOver(batch.owner);
        }
      }));
    }
  }

  private void askDriver(List<Integer> wanted) {
    if (wanted.isEmpty()) {
      return;
    }
    CALLERS.execute(() -> {
      try {
        CheckedBlocks.fetch(source.driver, names(wanted), new Filler(source.driver.executor) {
          @Override
          public void failed(String name, Throwable cause) {
            if (cause instanceof CheckedBlocks.Damaged) {
              tellDamage(source.driver.executor, cause);
            }
            driverFailed(cause);
          }
        });
      } catch (RuntimeException e) {
        driverFailed(e);
      }
    });
  }

  /** Calls a peer in another thread, since connecting may block; the peer is passed over if it cannot be called. */
  private void call(int owner, Runnable call) {
    CALLERS.execute(() -> {
      try {
        call.run();
      } catch (RuntimeException e) {
        passOver(owner);
      }
    });
  }

  private void passOverTheSilent() {
    for (Batch batch : batches) {
      if (batch.owner != me && !missing(batch).isEmpty()) {
        passOver(batch.owner);
      }
    }
  }

  private synchronized void passOver(int owner) {
    passedOver[owner] = true;
    signal.release();
  }

  private synchronized boolean isPassedOver(int owner) {
    return passedOver[owner];
  }

  /** Damaged by several senders is damaged by this executor or its link. The driver is told of executors only. */
  private void tellDamage(String sender, Throwable cause) {
    String here = ExecutorSide.get().self().executor;
    String culprit;
    synchronized (this) {
      culprit = damaging.size() > 1 ? here : sender;
    }
    if (!culprit.equals(source.driver.executor)) {
      ExecutorSide.get().tellDamage(download.run, culprit, "executor " + culprit + " damages bytes: " + cause.getMessage()
          + ", at executor " + here);
    }
  }

  private synchronized void driverFailed(Throwable cause) {
    driverFailure = cause;
    signal.release();
  }

  private synchronized void throwDriverFailure() throws IOException {
    if (driverFailure != null) {
      throw new IOException("pieces of broadcast " + download.broadcast + " could not be had from the driver", driverFailure);
    }
  }

  private List<String> names(List<Integer> pieces) {
    List<String> names = new ArrayList<>(pieces.size());
    for (int p : pieces) {
      names.add(source.names.pieces(download.broadcast) + p);
    }
    return names;
  }

  private int size(int p) {
    return Math.min(piece, download.length - p * piece);
  }

  private static int indexOf(List<Peer> owners, String executor) {
    for (int i = 0; i < owners.size(); i++) {
      if (owners.get(i).executor.equals(executor)) {
        return i;
      }
    }
    throw new IllegalArgumentException("executor " + executor + " is not among the owners " + owners);
  }

  /** Copies what arrives into the download. */
  private abstract class Filler implements SparkInternals.FetchListener {
    private final String sender;

    Filler(String sender) {
      this.sender = sender;
    }

    @Override
    public void damaged(String name) {
      synchronized (RelayFetch.this) {
        damaging.add(sender);
      }
    }

    @Override
    public void arrived(String name, ByteBuffer bytes) {
      int p = BlockNames.number(name);
      if (bytes.remaining() != size(p)) {
        failed(name, new IOException("piece of another length: bytes=" + bytes.remaining() + ", expected=" + size(p)));
        return;
      }
      download.fill(p, p * piece, bytes, sender.equals(source.driver.executor));
      signal.release();
    }
  }
}
