package org.mpca.agent;

/** The agent, in this incarnation, is not on this executor, or died before it handed its shard over. */
public final class AgentGoneException extends Exception {
    private static final long serialVersionUID = 1L;

    public AgentGoneException(String message) {
        super(message);
    }
}
