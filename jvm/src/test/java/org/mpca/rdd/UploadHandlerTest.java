package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.network.client.RpcResponseCallback;
import org.apache.spark.network.client.StreamCallbackWithID;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.server.RpcHandler;
import org.apache.spark.network.server.StreamManager;
import org.apache.spark.network.shuffle.protocol.UploadBlock;
import org.apache.spark.network.shuffle.protocol.UploadBlockStream;
import org.junit.jupiter.api.Test;

/** Ours are taken by name; everything else comes to Spark as it was sent. */
class UploadHandlerTest {
    private final List<String> seen = new ArrayList<>();

    private final RpcHandler spark = new RpcHandler() {
        @Override
        public void receive(TransportClient client, ByteBuffer message, RpcResponseCallback callback) {
            seen.add("spark: message of " + message.remaining());
        }

        @Override
        public StreamCallbackWithID receiveStream(
                TransportClient client, ByteBuffer header, RpcResponseCallback callback) {
            seen.add("spark: stream of " + header.remaining());
            return null;
        }

        @Override
        public StreamManager getStreamManager() {
            return null;
        }
    };

    private final UploadHandler handler = new UploadHandler(spark, "test_", name -> {
        seen.add("stream? " + name);
        return !name.equals("sum")
                ? null
                : new Uploads.Sink() {
                    @Override
                    public void come(ByteBuffer bytes) {
                        seen.add("came " + bytes.remaining());
                    }

                    @Override
                    public void end() {
                        seen.add("end");
                    }
                };
    });

    private final RpcResponseCallback callback = new RpcResponseCallback() {
        @Override
        public void onSuccess(ByteBuffer response) {
            seen.add("answered");
        }

        @Override
        public void onFailure(Throwable cause) {
            seen.add("failed");
        }
    };

    private static ByteBuffer upload(String block, int bytes) {
        return new UploadBlock("app", "1", block, new byte[0], new byte[bytes]).toByteBuffer();
    }

    private void saw(String... expected) {
        assertEquals(Arrays.asList(expected), seen);
        seen.clear();
    }

    @Test
    void shouldLeaveMessagesToSpark() {
        for (ByteBuffer other :
                new ByteBuffer[] {upload("test_sum", 1), ByteBuffer.allocate(9), ByteBuffer.allocate(0)}) {
            int length = other.remaining();
            handler.receive(null, other, callback);
            saw("spark: message of " + length);
            assertEquals(length, other.remaining(), "it was looked at only");
        }
    }

    @Test
    void shouldHandStreamsOfOursToTheirSink() throws Exception {
        ByteBuffer header = new UploadBlockStream("test_sum", new byte[0]).toByteBuffer();
        StreamCallbackWithID stream = handler.receiveStream(null, header, callback);
        stream.onData(stream.getID(), ByteBuffer.allocate(7));
        stream.onComplete(stream.getID());
        saw("stream? sum", "came 7", "end");
        stream.onFailure(stream.getID(), new IllegalStateException());
        saw();
    }

    @Test
    void shouldLeaveOtherStreamsToSpark() {
        ByteBuffer other = new UploadBlockStream("test_piece", new byte[3]).toByteBuffer();
        int length = other.remaining();
        handler.receiveStream(null, other, callback);
        saw("stream? piece", "spark: stream of " + length);
        handler.receiveStream(null, ByteBuffer.allocate(3), callback);
        saw("spark: stream of 3");
    }
}
