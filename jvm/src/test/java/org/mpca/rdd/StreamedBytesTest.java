package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.channel.FileRegion;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.WritableByteChannel;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.network.TransportContext;
import org.apache.spark.network.client.RpcResponseCallback;
import org.apache.spark.network.client.StreamCallbackWithID;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.client.TransportClientFactory;
import org.apache.spark.network.server.OneForOneStreamManager;
import org.apache.spark.network.server.RpcHandler;
import org.apache.spark.network.server.StreamManager;
import org.apache.spark.network.server.TransportServer;
import org.apache.spark.network.util.MapConfigProvider;
import org.apache.spark.network.util.TransportConf;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What leaves, and that a connection over which it leaves slowly is kept. */
class StreamedBytesTest {
    private static byte[] random(int length) {
        byte[] bytes = new byte[length];
        new Random(length).nextBytes(bytes);
        return bytes;
    }

    /** Takes so many bytes at once, every other time. */
    private static final class Narrow implements WritableByteChannel {
        final ByteArrayOutputStream came = new ByteArrayOutputStream();
        private final int width;
        private boolean full;

        Narrow(int width) {
            this.width = width;
        }

        @Override
        public int write(ByteBuffer from) {
            full = !full;
            int taken = full ? Math.min(width, from.remaining()) : 0;
            for (int i = 0; i < taken; i++) {
                came.write(from.get());
            }
            return taken;
        }

        @Override
        public boolean isOpen() {
            return true;
        }

        @Override
        public void close() {}
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 7, 1 << 20})
    void shouldLeaveInTurnHoweverLittleIsTaken(int width) throws Exception {
        AtomicInteger told = new AtomicInteger();
        byte[] bytes = random(600_000);
        int[] edges = {0, 1, 1, 300_000, 600_000};
        ByteBuffer[] parts = new ByteBuffer[edges.length - 1];
        for (int i = 0; i < parts.length; i++) {
            parts[i] = ByteBuffer.wrap(bytes, edges[i], edges[i + 1] - edges[i]);
        }
        StreamedBytes streamed = new StreamedBytes(told::incrementAndGet, parts);
        assertEquals(bytes.length, streamed.size());
        for (int time = 0; time < 2; time++) { // one that failed may be asked for once more
            told.set(0);
            Narrow channel = new Narrow(width);
            FileRegion region = (FileRegion) streamed.convertToNetty();
            int moved = 0;
            while (region.transferred() < region.count()) {
                moved += region.transferTo(channel, region.transferred()) > 0 ? 1 : 0;
            }
            assertArrayEquals(bytes, channel.came.toByteArray());
            assertEquals(moved, told.get());
            assertEquals(0, region.transferTo(channel, region.transferred()));
        }
    }

    /** Answers at the end of a stream. */
    private static final class Reader extends RpcHandler {
        final ByteArrayOutputStream came = new ByteArrayOutputStream();
        final CountDownLatch goesOn = new CountDownLatch(1);
        private final int stopsAfter;

        /** Reads 1 MB/s; after so many bytes nothing until it {@link #goesOn}. */
        Reader(int stopsAfter) {
            this.stopsAfter = stopsAfter;
        }

        @Override
        public void receive(TransportClient client, ByteBuffer message, RpcResponseCallback callback) {}

        @Override
        public StreamCallbackWithID receiveStream(
                TransportClient client, ByteBuffer header, RpcResponseCallback callback) {
            return new StreamCallbackWithID() {
                @Override
                public String getID() {
                    return "slow";
                }

                @Override
                public void onData(String id, ByteBuffer bytes) {
                    try {
                        if (came.size() >= stopsAfter) {
                            goesOn.await();
                        }
                        Thread.sleep(1 + bytes.remaining() / 1000); // a link of 1 MB/s
                    } catch (InterruptedException e) {
                        Thread.currentThread().interrupt();
                    }
                    while (bytes.hasRemaining()) {
                        came.write(bytes.get());
                    }
                }

                @Override
                public void onComplete(String id) {
                    callback.onSuccess(ByteBuffer.allocate(0));
                }

                @Override
                public void onFailure(String id, Throwable cause) {}
            };
        }

        @Override
        public StreamManager getStreamManager() {
            return new OneForOneStreamManager();
        }
    }

    /** Streams by Spark's own network, where a connection may be quiet for a second; what became of it. */
    private static Throwable stream(byte[] bytes, Reader reader) throws Exception {
        Map<String, String> settings = new HashMap<>();
        settings.put("spark.shuffle.io.connectionTimeout", "1s");
        settings.put(
                "spark.shuffle.io.receiveBuffer", "32768"); // what lies in the kernel says nothing of the other end
        settings.put("spark.shuffle.io.sendBuffer", "32768");
        TransportConf conf = new TransportConf("shuffle", new MapConfigProvider(settings));
        CompletableFuture<Throwable> done = new CompletableFuture<>();
        try (TransportContext context = new TransportContext(conf, reader);
                TransportServer server = context.createServer("127.0.0.1", 0, Arrays.asList());
                TransportClientFactory clients = context.createClientFactory()) {
            TransportClient client = clients.createClient("127.0.0.1", server.getPort());
            SparkInternals.stream(client, "slow", done::complete, ByteBuffer.wrap(bytes));
            return done.get(60, TimeUnit.SECONDS);
        } finally {
            reader.goesOn.countDown();
        }
    }

    @Test
    void shouldKeepTheConnectionOfAStreamThatTakesLongerThanItMayBeQuiet() throws Exception {
        Reader reader = new Reader(Integer.MAX_VALUE);
        byte[] bytes = random(4_000_000);
        long begun = System.nanoTime();
        assertNull(stream(bytes, reader));
        assertTrue(System.nanoTime() - begun > TimeUnit.SECONDS.toNanos(2), "it was no slow stream");
        assertArrayEquals(bytes, reader.came.toByteArray());
    }

    @Test
    void shouldCloseTheConnectionOfAPeerThatReadsNoMore() throws Exception {
        assertInstanceOf(IOException.class, stream(random(4_000_000), new Reader(1_000_000)));
    }
}
