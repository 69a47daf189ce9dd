package org.mpca.agent;

import java.io.Serializable;
import java.util.Objects;

/** Names one yield: the state of one shard of one agent for one cycle. Concurrency: immutable. */
public final class YieldKey implements Serializable {
    private static final long serialVersionUID = 1L;

    public final String run;
    /** Attempt of the driver. */
    public final int term;

    public final int cycle;
    public final int shard;
    public final int agent;
    public final int incarnation;

    public YieldKey(String run, int term, int cycle, int shard, int agent, int incarnation) {
        this.run = run;
        this.term = term;
        this.cycle = cycle;
        this.shard = shard;
        this.agent = agent;
        this.incarnation = incarnation;
    }

    @Override
    public boolean equals(Object other) {
        if (!(other instanceof YieldKey)) {
            return false;
        }
        YieldKey that = (YieldKey) other;
        return run.equals(that.run)
                && term == that.term
                && cycle == that.cycle
                && shard == that.shard
                && agent == that.agent
                && incarnation == that.incarnation;
    }

    @Override
    public int hashCode() {
        return Objects.hash(run, term, cycle, shard, agent, incarnation);
    }

    @Override
    public String toString() {
        return "run=" + run + " term=" + term + " cycle=" + cycle + " shard=" + shard + " agent=" + agent
                + " incarnation=" + incarnation;
    }
}
