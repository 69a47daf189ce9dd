package org.mpca.agent;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.reflect.Field;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;

/** A direct child of this JVM, which leads a process group of its own (it calls setpgid itself). */
final class SpawnedChild implements Child {
    private static final Logger LOG = Logger.getLogger("mpca.agent");
    private static final File NOWHERE = new File("/dev/null");

    private final Process process;
    private final int pid;

    private SpawnedChild(Process process) {
        this.process = process;
        this.pid = pidOf(process);
    }

    static SpawnedChild start(LaunchSpec spec) throws IOException, InterruptedException {
        return new SpawnedChild(Spawner.start(builder(spec.command, spec)));
    }

    /** A command in the folder and the environment of an agent. */
    static ProcessBuilder builder(List<String> command, LaunchSpec spec) {
        ProcessBuilder builder = new ProcessBuilder(command).directory(spec.workDir);
        for (Map.Entry<String, String> one : spec.env.entrySet()) {
            if (one.getValue().isEmpty()) {
                builder.environment().remove(one.getKey());
            } else {
                builder.environment().put(one.getKey(), one.getValue());
            }
        }
        return builder;
    }

    @Override
    public int pid() {
        return pid;
    }

    @Override
    public boolean isAlive() {
        return process.isAlive();
    }

    @Override
    public OutputStream toAgent() {
        return process.getOutputStream();
    }

    @Override
    public InputStream fromAgent() {
        return process.getInputStream();
    }

    @Override
    public InputStream output() {
        return process.getErrorStream();
    }

    /**
     * Not one that has ended: Java would close its pipes, and with them go the last lines that it printed and the last messages
     * that it sent.
     */
    @Override
    public void kill() {
        if (process.isAlive()) {
            process.destroyForcibly();
        }
    }

    @Override
    public void killGroup() throws InterruptedException {
        killGroup(pid);
    }

    /**
     * Java has no call for it, and the kill of dash takes "--" after "-s KILL" only. The number of the group stays taken
     * while one of its processes lives, so no other is hit.
     */
    static void killGroup(int pid) throws InterruptedException {
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

    @Override
    public boolean waitFor(long millis) throws InterruptedException {
        return process.waitFor(millis, TimeUnit.MILLISECONDS);
    }

    @Override
    public int exitCode() {
        return process.exitValue();
    }

    @Override
    public void release() {
        AgentProcess.closeQuietly(process.getOutputStream());
        AgentProcess.closeQuietly(process.getInputStream());
        AgentProcess.closeQuietly(process.getErrorStream());
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
