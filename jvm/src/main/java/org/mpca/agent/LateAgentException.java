package org.mpca.agent;

/** The agent lives but did not hand its shard over before the deadline; what it hands over later is dropped. */
public final class LateAgentException extends Exception {
    private static final long serialVersionUID = 1L;

    public LateAgentException(String message) {
        super(message);
    }
}
