package org.mpca.agent;

import java.io.IOException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * Starts processes, all from one thread that lives as long as the JVM.
 *
 * <p>Linux sends the parent-death signal that an agent asks for when the <i>thread</i> that started it ends; from a
 * task's thread, agents would die with the task.
 *
 * <p>Concurrency: any thread may call; the daemon thread mpca-spawner starts, and never ends.
 */
final class Spawner {
    private static final LinkedBlockingQueue<Runnable> ORDERS = new LinkedBlockingQueue<>();

    static {
        Thread thread = new Thread(Spawner::serve, "mpca-spawner");
        thread.setDaemon(true);
        thread.start();
    }

    private Spawner() {}

    static Process start(ProcessBuilder builder) throws IOException, InterruptedException {
        FutureTask<Process> order = new FutureTask<>(builder::start);
        ORDERS.add(order);
        try {
            return order.get(); // fork and exec: ends by itself
        } catch (ExecutionException e) {
            if (e.getCause() instanceof IOException) {
                throw (IOException) e.getCause();
            }
            throw new IOException("cannot start: command=" + builder.command(), e.getCause());
        }
    }

    private static void serve() {
        while (true) {
            try {
                ORDERS.take().run(); // a FutureTask keeps what it throws
            } catch (InterruptedException e) {
                // Nobody has a reason to interrupt this thread, and its end would kill every agent.
            }
        }
    }
}
