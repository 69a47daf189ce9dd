package org.mpca.agent;

import com.esotericsoftware.kryo.Kryo;
import com.esotericsoftware.kryo.Serializer;
import com.esotericsoftware.kryo.io.Input;
import com.esotericsoftware.kryo.io.Output;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.mpca.reduce.KeptArray;

/**
 * How Kryo writes a {@link YieldContext}: as its frozen state. The one class outside rdd and bridge that uses a library
 * of Spark's; it is loaded by Kryo alone.
 *
 * <p>Concurrency: stateless.
 */
public final class YieldContextKryo extends Serializer<YieldContext> {
    @Override
    public void write(Kryo kryo, Output output, YieldContext context) {
        FrozenYield state;
        try {
            state = context.freezeForCopy();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        try {
            write(output, context.key(), state);
        } finally {
            state.kept.release();
        }
    }

    private static void write(Output output, YieldKey key, FrozenYield state) {
        output.writeString(key.run);
        output.writeInt(key.term);
        output.writeInt(key.cycle);
        output.writeInt(key.shard);
        output.writeInt(key.agent);
        output.writeInt(key.incarnation);
        output.writeInt(state.tau);
        output.writeLong(state.crc);
        output.writeBoolean(state.finite);
        output.writeDouble(state.distance);
        output.writeDouble(state.start);
        output.writeDouble(state.end);
        output.writeInt(state.data.length);
        output.writeBytes(state.data);
    }

    @Override
    public YieldContext read(Kryo kryo, Input input, Class<YieldContext> type) {
        YieldContext context = new YieldContext();
        kryo.reference(context);
        YieldKey key = new YieldKey(
                input.readString(),
                input.readInt(),
                input.readInt(),
                input.readInt(),
                input.readInt(),
                input.readInt());
        context.restore(
                key,
                new FrozenYield(
                        input.readInt(),
                        input.readLong(),
                        input.readBoolean(),
                        input.readDouble(),
                        input.readDouble(),
                        input.readDouble(),
                        KeptArray.of(input.readBytes(input.readInt()))));
        return context;
    }
}
