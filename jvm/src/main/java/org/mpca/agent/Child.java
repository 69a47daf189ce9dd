package org.mpca.agent;

import java.io.InputStream;
import java.io.OutputStream;

/**
 * The operating system's side of an agent's process: started by this JVM, or forked by a {@link Parent} of this JVM. Its stdin
 * and stdout carry frames, its stderr what it prints.
 *
 * <p>Concurrency: {@link #kill} and {@link #isAlive} by any thread, everything else by the agent's conductor.
 */
interface Child {
    /** 0 when Java does not tell. */
    int pid();

    boolean isAlive();

    /** What the agent reads frames from. */
    OutputStream toAgent();

    /** What the agent writes frames to. */
    InputStream fromAgent();

    /** What it prints. */
    InputStream output();

    /** Kills the process; does nothing to one that has ended. */
    void kill();

    /** Kills what is left of its process group, whose number is that of the agent. */
    void killGroup() throws InterruptedException;

    /** False when it still lives after so long. */
    boolean waitFor(long millis) throws InterruptedException;

    /** Of a process that has ended; 128 + n for signal n. */
    int exitCode();

    /** Closes our ends of its pipes, and lets its number go. */
    void release();
}
