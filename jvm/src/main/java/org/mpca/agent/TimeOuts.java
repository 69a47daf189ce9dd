package org.mpca.agent;

/**
 * Every time-out of an executor's JVM, in milliseconds, in the order in which they run out. Those of the Python side are in
 * {@code mpca/timeouts.py}; {@code tests/test_timeouts.py} reads both and holds who gives up first.
 */
public final class TimeOuts {
    // ---- a broadcast and a sum; an order's own deadline is in the order ----

    /** A download that failed is tried again after so long. */
    public static final long DOWNLOAD_AGAIN_MS = 500;
    /** Silence of an owner that a relay bears at least; more when the own pieces took long, since then the links are slow. */
    public static final long RELAY_SILENCE_MS = 3_000;
    /** One chunk of a sum is fetched again for so long, from an executor that has just answered. */
    public static final long REPAIR_MS = 10_000;
    /** Blocks are removed for so long; then the removal is given up. */
    public static final long REMOVAL_MS = 10_000;
    /** A question to the server is repeated after so long without an answer: it may be lost, or wait for its turn. */
    public static final long ANSWER_MS = 60_000;
    /** The next piece of what an agent sent is waited for so long; then others have their turn, and it is asked for again. */
    public static final long SENT_MS = 30_000;
    /** An access to a YieldContext that brings no deadline, such as serialisation, waits so long. */
    public static final long ACCESS_MS = 30_000;

    // ---- the beginning of an agent ----

    /** A preloaded parent that has imported everything answers within so long; then the agent is started without it. */
    public static final long FORK_MS = 10_000;

    // ---- the end of an agent ----

    /** A process that closed its pipe, since it died, is seen to be dead within so long. */
    public static final long SEEN_DEAD_MS = 1_000;
    /** An agent's last word waits so long for what it printed before. */
    public static final long LAST_WORD_MS = 1_000;
    /** What is still in the pipe of an agent that has ended is read for so long. */
    public static final long DRAIN_MS = 2_000;
    /** So is its stderr: a process that the user's code put into a session of its own may hold it for ever. */
    public static final long OUTPUT_MS = 2_000;
    /** A process that was killed has so long to be gone. */
    public static final long END_MS = 5_000;
    /** All agents of a run have so long to end when the run does. */
    public static final long CLOSE_MS = 8_000;
    /** An agent that has said its last word, or closed its pipe, has so long to leave. Then it is killed. */
    public static final long LEAVE_MS = 10_000;
    /** A task waits so long for the SnapshotKeeper, which itself never waits. */
    public static final long KEEPER_MS = 10_000;
    /** The driver waits so long for executors that end a run, and for their blocks to be removed. */
    public static final long END_RUN_MS = 5_000;

    private TimeOuts() {}
}
