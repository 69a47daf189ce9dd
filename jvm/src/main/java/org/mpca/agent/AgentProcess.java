package org.mpca.agent;

import java.io.Closeable;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.reflect.Field;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.logging.Level;
import java.util.logging.Logger;

/**
 * The operating system's side of one agent: started, read, killed with its whole process group, waited for.
 *
 * <p>The agent is a direct child. It leads a process group of its own (it calls setpgid itself), so that data workers
 * go with it. Its stdin and stdout carry frames, its stderr what it prints.
 *
 * <p>Concurrency: owned by the agent's conductor; {@link #kill} may be called by any thread.
 */
final class AgentProcess {
    private static final Logger LOG = Logger.getLogger("mpca.agent");

    private static final File NOWHERE = new File("/dev/null");

    private final Process process;
    private final int pid;
    private final OutputReader output;
    private final Thread outputThread;

    private AgentProcess(Process process, String name, Consumer<List<String>> lines) {
        this.process = process;
        this.pid = pidOf(process);
        this.output = new OutputReader(process.getErrorStream(), lines);
        this.outputThread = new Thread(output, name + "-output");
        outputThread.setDaemon(true);
        outputThread.start();
    }

    static AgentProcess launch(LaunchSpec spec, String name, Consumer<List<String>> lines)
            throws IOException, InterruptedException {
        ProcessBuilder builder = new ProcessBuilder(spec.command).directory(spec.workDir);
        for (Map.Entry<String, String> one : spec.env.entrySet()) {
            if (one.getValue().isEmpty()) {
                builder.environment().remove(one.getKey());
            } else {
                builder.environment().put(one.getKey(), one.getValue());
            }
        }
        return new AgentProcess(Spawner.start(builder), name, lines);
    }

    int pid() {
        return pid;
    }

    boolean isAlive() {
        return process.isAlive();
    }

    /** What the agent reads frames from. */
    OutputStream toAgent() {
        return process.getOutputStream();
    }

    /** What the agent writes frames to. */
    InputStream fromAgent() {
        return process.getInputStream();
    }

    /**
     * Kills the process; its group follows in {@link #end}. Not one that has ended: Java would close its pipes, and with them
     * go the last lines that it printed and the last messages that it sent.
     */
    void kill() {
        if (process.isAlive()) {
            process.destroyForcibly();
        }
    }

    /**
     * Sees to it that the process and its group are gone.
     *
     * @return the exit code, 128 + n for signal n, as Java reports it; -1 when even SIGKILL did not end it in time
     */
    int end() throws InterruptedException {
        kill();
        killGroup();
        if (!process.waitFor(TimeOuts.END_MS, TimeUnit.MILLISECONDS)) {
            LOG.warning("agent survives SIGKILL, held by the kernel: pid=" + pid);
            return -1;
        }
        return process.exitValue();
    }

    /** Waits until all that was printed has been passed on, or the time is over. */
    void awaitOutput(long millis) throws InterruptedException {
        outputThread.join(millis);
    }

    /** The last lines printed; waits for the rest of the output to come in. */
    String tail() throws InterruptedException {
        outputThread.join(TimeOuts.OUTPUT_MS);
        return output.tail();
    }

    /** Closes our ends of the pipes. */
    void close() {
        closeQuietly(process.getOutputStream());
        closeQuietly(process.getInputStream());
        closeQuietly(process.getErrorStream());
    }

    /**
     * Java has no call for it, and the kill of dash takes "--" after "-s KILL" only. The number of the group stays taken
     * while one of its processes lives, so no other is hit.
     */
    private void killGroup() throws InterruptedException {
        if (pid <= 1) {
            return;
        }
        try {
            Process kill = new ProcessBuilder("/bin/sh", "-c", "kill -s KILL -- -" + pid)
                    .redirectErrorStream(true)
                    .redirectOutput(NOWHERE)
                    .redirectInput(NOWHERE)
                    .start();
            if (!kill.waitFor(TimeOuts.END_MS, TimeUnit.MILLISECONDS)) {
                kill.destroyForcibly();
            }
        } catch (IOException e) {
            LOG.log(Level.WARNING, "cannot kill the agent's group: pid=" + pid, e);
        }
    }

    private static void closeQuietly(Closeable stream) {
        try {
            stream.close();
        } catch (IOException e) {
            // A pipe whose other end is gone; there is nothing to lose in it.
        }
    }

    /** Java 9 has Process.pid(); Java 8 keeps the number in a field. 0 when neither tells. */
    private static int pidOf(Process process) {
        try {
            return ((Long) Process.class.getMethod("pid").invoke(process)).intValue();
        } catch (ReflectiveOperationException newer) {
            try {
                Field field = process.getClass().getDeclaredField("pid");
                field.setAccessible(true);
                return field.getInt(process);
            } catch (ReflectiveOperationException | RuntimeException older) {
                LOG.log(Level.WARNING, "cannot learn the pid of a child before it says Hello", older);
                return 0;
            }
        }
    }
}
