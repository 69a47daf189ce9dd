package org.mpca.rdd;

import java.util.Map;

/**
 * The way up: events of an executor on their way to the driver. Implemented over Spark's plug-in messages.
 * May be called from any thread; returns at once.
 */
public interface Uplink {
    /** Sends one event of a run: `kind` is the class in {@code mpca/driver/events.py}, `fields` are that class's. */
    void send(String run, String kind, Map<String, Object> fields);
}
