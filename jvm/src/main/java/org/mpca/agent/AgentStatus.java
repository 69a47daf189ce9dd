package org.mpca.agent;

/** A living agent of this executor. Concurrency: immutable. */
public final class AgentStatus {
    public final int agent;
    public final int incarnation;
    public final int pid;
    /** It has said Hello, and can be asked for shards. */
    public final boolean attached;

    public AgentStatus(int agent, int incarnation, int pid, boolean attached) {
        this.agent = agent;
        this.incarnation = incarnation;
        this.pid = pid;
        this.attached = attached;
    }
}
