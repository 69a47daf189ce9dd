package org.mpca.bridge;

import java.io.DataInputStream;
import java.io.EOFException;
import java.io.Serializable;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.mpca.rdd.FakeExecutors;
import org.mpca.rdd.Peer;
import org.mpca.wire.Msgpack;

/**
 * The JVM of {@link FakeExecutors}, for {@code mpca bench scale}. Reads frames from stdin, each a length and msgpack: first
 * {conf, executors, elements, shards}; then, for each empty map, it prints its totals as "name=number ..." in one line. It ends
 * with stdin.
 */
public final class FakeMain {
    private FakeMain() {}

    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        Map<?, ?> what = frame(in);
        SparkConf conf = new SparkConf(false);
        ((Map<?, ?>) what.get("conf")).forEach((key, value) -> conf.set((String) key, (String) value));
        FakeExecutors fakes = new FakeExecutors(
                conf,
                new FakeExecutors.Plugin() {
                    @Override
                    public Serializable hello(Peer self) {
                        return MpcaPlugin.hello(self);
                    }

                    @Override
                    public Serializable packed(String run, byte[] event) {
                        return MpcaPlugin.packed(run, event);
                    }
                },
                number(what, "executors"),
                number(what, "elements"),
                number(what, "shards"));
        fakes.start();
        System.out.println("ready");
        try {
            while (true) {
                frame(in);
                StringBuilder line = new StringBuilder();
                fakes.totals()
                        .forEach((name, value) ->
                                line.append(name).append('=').append(value).append(' '));
                System.out.println(line);
            }
        } catch (EOFException e) {
            System.exit(0);
        }
    }

    private static int number(Map<?, ?> what, String name) {
        return ((Number) what.get(name)).intValue();
    }

    private static Map<?, ?> frame(DataInputStream in) throws Exception {
        byte[] bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return (Map<?, ?>) Msgpack.unpack(bytes);
    }
}
