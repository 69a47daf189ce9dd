package org.mpca.agent;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.function.Consumer;

/**
 * Reads what an agent prints and passes it on in batches of whole lines, as many as one read brought.
 *
 * <p>A carriage return ends a line too, since progress bars print nothing else; a line is cut at 8 KiB.
 *
 * <p>Concurrency: {@link #run} on a thread of its own; {@link #tail} on any.
 */
final class OutputReader implements Runnable {
  private static final int LINE_BYTES = 8 << 10;
  private static final int TAIL_LINES = 20;

  private final InputStream in;
  private final Consumer<List<String>> lines;
  private final ByteArrayOutputStream line = new ByteArrayOutputStream();
  private final Deque<String> tail = new ArrayDeque<>();

  OutputReader(InputStream in, Consumer<List<String>> lines) {
    this.in = in;
    this.lines = lines;
  }

  @Override
  public void run() {
    byte[] bytes = new byte[8 << 10];
    try {
      for (int n = in.read(bytes); n >= 0; n = in.read(bytes)) {
        pass(split(bytes, n));
      }
    } catch (IOException e) {
      // The pipe was closed on our side, since the process is gone: the same as its end.
    }
    List<String> rest = new ArrayList<>();
    endLine(rest);
    pass(rest);
  }

  private List<String> split(byte[] bytes, int n) {
    List<String> batch = new ArrayList<>();
    for (int i = 0; i < n; i++) {
      if (bytes[i] == '\n' || bytes[i] == '\r') {
        endLine(batch);
      } else {
        line.write(bytes[i]);
        if (line.size() >= LINE_BYTES) {
          endLine(batch);
        }
      }
    }
    return batch;
  }

  /** Empty lines are dropped: half of them are our own splitting of "\r\n". */
  private void endLine(List<String> batch) {
    if (line.size() > 0) {
      batch.add(new String(line.toByteArray(), StandardCharsets.UTF_8));
      line.reset();
    }
  }

  private void pass(List<String> batch) {
    if (batch.isEmpty()) {
      return;
    }
    synchronized (tail) {
      tail.addAll(batch);
      while (tail.size() > TAIL_LINES) {
        tail.remove();
      }
    }
    lines.accept(batch);
  }

  /** The last lines, for the report of why the process ended. */
  String tail() {
    synchronized (tail) {
      return String.join("\n", tail);
    }
  }
}
