import java.util.Arrays;
import java.util.Scanner;

import org.apache.spark.SecurityManager;
import org.apache.spark.SparkConf;
import org.apache.spark.internal.config.package$;
import org.apache.spark.rpc.RpcAddress;
import org.apache.spark.rpc.RpcEnv;

import scala.Option;

/**
 * A Spark client of its own: <code>java Intruder.java PORT...</code>, with a secret a line on stdin, an empty one for none.
 * Prints the endpoints that it could open, as <code>LINE PORT NAME</code>: a Master and its Workers start processes, the
 * scheduler gives a session's settings and takes executors, the plug-in hears of agents. Then "asked everywhere".
 */
public final class Intruder {
  private static final String[] NAMES = {
    "Master", "Worker", "CoarseGrainedScheduler", "BlockManagerMaster", "org.apache.spark.internal.plugin.PluginEndpoint"
  };

  public static void main(String[] ports) {
    Scanner secrets = new Scanner(System.in);
    for (int line = 0; secrets.hasNextLine(); line++) {
      RpcEnv rpc = open(secrets.nextLine());
      String prefix = line + " ";
      Thread[] threads =
          Arrays.stream(ports).map(port -> new Thread(() -> ask(rpc, prefix, port))).toArray(Thread[]::new);
      Arrays.stream(threads).forEach(Thread::start);
      for (Thread thread : threads) {
        try {
          thread.join();
        } catch (InterruptedException nobodyDoes) {
          throw new IllegalStateException(nobodyDoes);
        }
      }
    }
    System.out.println("asked everywhere");
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }

  private static void ask(RpcEnv rpc, String prefix, String port) {
    for (String name : NAMES) {
      try {
        rpc.setupEndpointRef(new RpcAddress("127.0.0.1", Integer.parseInt(port)), name);
        System.out.println(prefix + port + " " + name);
      } catch (Throwable refused) {
        System.err.println(prefix + port + " " + name + ": " + refused);
        if (refused.toString().contains("Timeout")) {
          return; // takes other messages than these
        }
      }
    }
  }

  private static RpcEnv open(String secret) {
    SparkConf conf = new SparkConf(false).set("spark.rpc.lookupTimeout", "5s");
    if (!secret.isEmpty()) {
      conf.set("spark.authenticate", "true").set("spark.authenticate.secret", secret);
    }
    SecurityManager security = new SecurityManager(conf, Option.empty(), package$.MODULE$.AUTH_SECRET_FILE());
    return RpcEnv.create("intruder", "127.0.0.1", 0, conf, security, true);
  }
}
