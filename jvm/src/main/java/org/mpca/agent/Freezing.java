package org.mpca.agent;

import java.util.Collections;
import java.util.Map;
import java.util.TreeMap;
import org.mpca.wire.Late;

/**
 * What came of freezing the yields of several agents at once.
 *
 * <p>Concurrency: immutable.
 */
public final class Freezing {
  /** By agent number, ascending. */
  public final Map<Integer, FrozenYield> frozen;
  /** Agent to reason, for those that are not in {@code frozen}. */
  public final Map<Integer, Late> late;

  public Freezing(Map<Integer, FrozenYield> frozen, Map<Integer, Late> late) {
    this.frozen = Collections.unmodifiableMap(new TreeMap<>(frozen));
    this.late = Collections.unmodifiableMap(new TreeMap<>(late));
  }
}
