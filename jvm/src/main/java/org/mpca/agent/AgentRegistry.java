package org.mpca.agent;

import java.util.List;

/** STUB: signatures. */
public final class AgentRegistry {
  public AgentRegistry() {}

  /** The one of this executor's JVM; a new one after {@link #shutdown}. */
  public static AgentRegistry get() {
    throw new UnsupportedOperationException();
  }

  public void start(LaunchSpec spec, AgentEvents events) {
    throw new UnsupportedOperationException();
  }

  public boolean awaitEnd(String run, int agent, int incarnation, long millis) throws InterruptedException {
    throw new UnsupportedOperationException();
  }

  public boolean alive(String run, int agent, int incarnation) {
    throw new UnsupportedOperationException();
  }

  public List<AgentStatus> living(String run) {
    throw new UnsupportedOperationException();
  }

  public void begin(String run, int agent, int incarnation) {
    throw new UnsupportedOperationException();
  }

  public void stop(String run, int agent, int incarnation, String reason) {
    throw new UnsupportedOperationException();
  }

  /** Free: interrupts nobody. The same object for the same key. */
  public YieldContext yield(YieldKey key) {
    throw new UnsupportedOperationException();
  }

  /** Freezes several yields of one (run, epoch, cycle, shard) at once; the agents are interrupted side by side. */
  public Freezing freeze(List<YieldKey> keys, long deadlineWallMillis) throws InterruptedException {
    throw new UnsupportedOperationException();
  }

  public void forget(String run, int epoch, int cycle) {
    throw new UnsupportedOperationException();
  }

  /** @return whether to acknowledge: the bytes lie in the agent's slot, wait for it, or a newer version does */
  public boolean offer(String run, int agent, int incarnation, Arrival arrival) {
    throw new UnsupportedOperationException();
  }

  public void rebind(AgentEvents events) {
    throw new UnsupportedOperationException();
  }

  public void shutdown() {
    throw new UnsupportedOperationException();
  }
}
