package org.mpca.rdd;

/** An order's task cannot go on because of one executor, named for the driver: it plans the order again without it. */
public class ExecutorFault extends Exception {
    private static final long serialVersionUID = 1;

    /** The executor at fault, which is often not the one that says so; null if it cannot be told. */
    public final String executor;

    /** It damages what it sends: it would do so again. */
    public final boolean damages;

    public ExecutorFault(String executor, String message) {
        this(executor, message, false);
    }

    public ExecutorFault(String executor, String message, boolean damages) {
        super(message);
        this.executor = executor;
        this.damages = damages;
    }
}
