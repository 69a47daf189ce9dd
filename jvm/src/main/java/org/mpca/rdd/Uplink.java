package org.mpca.rdd;

import org.mpca.wire.Event;

/**
 * The way up: events of an executor on their way to the driver. Implemented over Spark's plug-in messages.
 * May be called from any thread; returns at once.
 */
public interface Uplink {
    void send(String run, Event event);
}
