package org.mpca.rdd;

/** A task found itself on another executor than its partition's, which Spark does when that one is lost. */
public final class WrongExecutor extends ExecutorFault {
    private static final long serialVersionUID = 1;

    public WrongExecutor(String wanted, String here) {
        super(wanted, "task of executor " + wanted + " ran on executor " + here + ": executor " + wanted + " is gone");
    }
}
