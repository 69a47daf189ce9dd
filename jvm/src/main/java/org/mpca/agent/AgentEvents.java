package org.mpca.agent;

import java.util.List;
import java.util.Map;

/**
 * What agents report. Called from the threads of the agents, one agent's calls in the order in which things happened
 * (its output and its files apart); an implementation passes on and returns, since meanwhile that agent is not served.
 */
public interface AgentEvents {
    /** The fields of Hello, as in {@code mpca/wire/messages.py}. */
    void hello(Map<String, Object> hello);

    /** The process ended by a signal or exit code, without Finished or Failed before. Exit code 128 + n: signal n. */
    void died(int agent, int incarnation, int pid, int exitCode, String tail);

    /** The user's code raised. */
    void failed(int agent, int incarnation, String error, String traceback);

    /** The train function returned. */
    void finished(int agent, int incarnation, byte[] returns);

    /** The fields of Progress, and {@code data_read} and {@code data_remote}: bytes of files that were read for the agent. */
    void progress(int agent, int incarnation, Map<String, Object> progress);

    /** Lines that the agent printed. */
    void output(int agent, int incarnation, List<String> lines);

    /** An agent that had been late answered after all; its bytes were dropped. */
    void back(int agent, int incarnation);

    /** The agent waits for the server's answer to what it sent. */
    void asks(int agent, int incarnation, Sent sent);

    /**
     * What became of the file that {@link AgentRegistry#saveState} asked for.
     *
     * @param bytes that were written; 0 with an error
     * @param sha256 of what was written, hex; empty with an error
     * @param seconds from the agent's answer until the file was closed, or was given up
     * @param error why there is no file; empty: it is there
     */
    void saved(int agent, int incarnation, int number, long bytes, String sha256, double seconds, String error);

    /** The process is gone, however it ended, a dismissal included: it waits for nothing any more. */
    void ended(int agent, int incarnation);
}
