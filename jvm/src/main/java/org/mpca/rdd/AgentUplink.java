package org.mpca.rdd;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.mpca.agent.AgentEvents;

/**
 * What the agents of one run report, turned into events for the driver. Printed lines are gathered for a moment, since
 * an agent may print thousands a second; everything else goes at once, after the lines printed before it.
 *
 * <p>Called from the threads of the agents; one thread, "mpca-output", sends what was gathered. The gathered lines are
 * guarded by this object's lock, which is never held while sending; {@code sending} is, so that nothing overtakes lines
 * that another thread has taken and not sent yet.
 */
final class AgentUplink implements AgentEvents {
  private static final long GATHER_MS = 100;
  /** Lines of one agent between two sendings; what is beyond is counted and dropped. */
  private static final int MAX_LINES = 1000;

  private final String run;
  private final String executor;
  private final String host;
  private final Uplink uplink;
  private final Map<List<Integer>, Lines> gathered = new LinkedHashMap<>();
  private final Object sending = new Object();
  private boolean sleeping;

  AgentUplink(String run, String executor, String host, Uplink uplink) {
    this.run = run;
    this.executor = executor;
    this.host = host;
    this.uplink = uplink;
  }

  @Override
  public void hello(Map<String, Object> hello) {
    Map<String, Object> event = event();
    event.put("host", host);
    event.put("hello", hello);
    send("AgentHello", event);
  }

  @Override
  public void died(int agent, int incarnation, int pid, int exitCode, String tail) {
    Map<String, Object> event = event(agent, incarnation);
    event.put("pid", pid);
    event.put("exit_code", exitCode);
    event.put("tail", tail);
    send("AgentDied", event);
  }

  @Override
  public void failed(int agent, int incarnation, String error, String traceback) {
    Map<String, Object> event = event(agent, incarnation);
    event.put("host", host);
    event.put("error", error);
    event.put("traceback", traceback);
    send("AgentFailedEvent", event);
  }

  @Override
  public void finished(int agent, int incarnation, byte[] returns) {
    Map<String, Object> event = event(agent, incarnation);
    event.put("returns", returns);
    send("AgentFinished", event);
  }

  @Override
  public void progress(int agent, int incarnation, Map<String, Object> progress) {
    Map<String, Object> event = new LinkedHashMap<>(progress);
    event.put("agent", agent);
    event.put("incarnation", incarnation);
    uplink.send(run, "AgentProgress", event);
  }

  @Override
  public void back(int agent, int incarnation) {
    send("AgentBack", event(agent, incarnation));
  }

  @Override
  public void output(int agent, int incarnation, List<String> lines) {
    List<Integer> who = new ArrayList<>(2);
    who.add(agent);
    who.add(incarnation);
    synchronized (this) {
      gathered.computeIfAbsent(who, key -> new Lines()).add(lines);
      if (sleeping) {
        return;
      }
      sleeping = true;
    }
    Threads.daemon("mpca-output", this::sendGathered).start();
  }

  /** Waits a moment for more lines, sends all, and ends: an agent that prints nothing costs no thread. */
  private void sendGathered() {
    try {
      Thread.sleep(GATHER_MS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    flush();
  }

  private void send(String kind, Map<String, Object> event) {
    flush();
    uplink.send(run, kind, event);
  }

  private void flush() {
    synchronized (sending) {
      sendAll();
    }
  }

  private void sendAll() {
    Map<List<Integer>, Lines> taken;
    synchronized (this) {
      taken = new LinkedHashMap<>(gathered);
      gathered.clear();
      sleeping = false;
    }
    taken.forEach((who, lines) -> {
      Map<String, Object> event = new LinkedHashMap<>();
      event.put("agent", who.get(0));
      event.put("incarnation", who.get(1));
      event.put("lines", lines.all());
      uplink.send(run, "Output", event);
    });
  }

  private Map<String, Object> event() {
    Map<String, Object> event = new LinkedHashMap<>();
    event.put("executor", executor);
    return event;
  }

  private Map<String, Object> event(int agent, int incarnation) {
    Map<String, Object> event = event();
    event.put("agent", agent);
    event.put("incarnation", incarnation);
    return event;
  }

  private static final class Lines {
    private final List<String> kept = new ArrayList<>();
    private int dropped;

    void add(List<String> more) {
      for (String line : more) {
        if (kept.size() < MAX_LINES) {
          kept.add(line);
        } else {
          dropped++;
        }
      }
    }

    List<String> all() {
      if (dropped > 0) {
        kept.add("... " + dropped + " more lines, too many to show");
      }
      return kept;
    }
  }
}
