package org.mpca.rdd;

import java.nio.ByteBuffer;

/**
 * Which uploads to this JVM's server of blocks are ours, in place of Spark's: those are stored as blocks, are copied twice on the
 * way, and are reported to the driver, as their removal is. Called by network threads, which must not be held up.
 */
interface Uploads {
    /** Takes what nobody needs. */
    Sink NOWHERE = new Sink() {
        @Override
        public void come(ByteBuffer bytes) {}

        @Override
        public void end() {}
    };

    /** Who takes the bytes of what is {@link SparkInternals#stream streamed} under a name; null: it is none of ours. */
    Sink stream(String name);

    /** Takes the bytes of one stream, in their order. Concurrency: one network thread. */
    interface Sink {
        /** The next bytes, which are valid during the call only. */
        void come(ByteBuffer bytes);

        /** Everything has come; the sender is told so when this returns. Never called if the connection breaks. */
        void end();
    }
}
