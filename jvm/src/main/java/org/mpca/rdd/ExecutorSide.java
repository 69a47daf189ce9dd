package org.mpca.rdd;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

import org.mpca.agent.AgentEvents;
import org.mpca.agent.AgentRegistry;

/**
 * What one executor's JVM holds beside its agents: frozen parts, downloads, the sweeper and the way up. Tasks come and
 * go; this stays. One per JVM, made when the plug-in starts.
 */
public final class ExecutorSide {
  private static volatile ExecutorSide instance;

  final Sweeper sweeper = new Sweeper();
  final PartStore parts = new PartStore(sweeper);
  final Downloader downloader;

  private final Uplink uplink;
  private final Peer self;
  private final Map<String, AgentUplink> uplinks = new ConcurrentHashMap<>();

  private ExecutorSide(Peer self, Uplink uplink) {
    this.self = self;
    this.uplink = uplink;
    this.downloader = new Downloader(self.executor, uplink, sweeper);
  }

  /** Called once by the plug-in, before any task. */
  public static void start(Peer self, Uplink uplink) {
    instance = new ExecutorSide(self, uplink);
  }

  static ExecutorSide get() {
    ExecutorSide side = instance;
    if (side == null) {
      throw new IllegalStateException("the executor's plug-in has not started: is org.mpca.bridge.MpcaPlugin in spark.plugins?");
    }
    return side;
  }

  /** Where the agents of a run report. */
  AgentEvents events(String run) {
    return uplinks.computeIfAbsent(run, name -> new AgentUplink(name, self.executor, self.host, uplink));
  }

  Peer self() {
    return self;
  }

  /** Ends a run on this executor: kills its agents, drops all it stored, and waits a little for the sweeper. */
  void endRun(String run, long millis) throws InterruptedException {
    AgentRegistry.get().end(run);
    parts.endRun(run);
    downloader.endRun(run);
    String prefix = BlockNames.ofRun(run);
    sweeper.removeLater(() -> named(prefix, false), false);
    sweeper.removeLater(() -> named(prefix, true), true);
    sweeper.drain(millis);
    uplinks.remove(run);
  }

  /** Blocks of a run that were reported to the driver (marks), or that were not. */
  private static List<String> named(String prefix, boolean reported) {
    List<String> names = new ArrayList<>();
    for (String name : SparkInternals.matching(prefix)) {
      if (BlockNames.isReported(prefix, name) == reported) {
        names.add(name);
      }
    }
    return names;
  }
}
