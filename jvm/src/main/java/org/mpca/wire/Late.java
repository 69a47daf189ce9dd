package org.mpca.wire;

import java.util.Arrays;
import java.util.List;

/** Why an executor answers without an agent. Codes travel and are never reused; the twin of {@code mpca/wire/orders.py}. */
public enum Late {
    /** The incarnation that was asked for does not live here. */
    NO_SUCH_INCARNATION(1, "no such incarnation"),
    /** It did not hand over in time. */
    DEADLINE(2, "no answer before the deadline"),
    /** Its process ended first. */
    DIED(3, "ended before it handed over"),
    /** The driver needs the cycle no more. */
    FORGOTTEN(4, "its cycle was forgotten"),
    /** Who asks is not the driver's newest attempt. */
    OLDER_DRIVER(5, "an older attempt of the driver"),
    /** It is not asked before its executor has the base of the codec. */
    NO_BASE(6, "its executor waits for the base of the codec");

    public final int code;
    /** For records and people. */
    public final String text;

    Late(int code, String text) {
        this.code = code;
        this.text = text;
    }

    /** What travels: the code, and the text beside it. */
    List<Object> row() {
        return Arrays.asList(code, text);
    }

    @Override
    public String toString() {
        return text;
    }
}
