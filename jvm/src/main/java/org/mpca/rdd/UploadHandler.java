package org.mpca.rdd;

import java.nio.ByteBuffer;
import org.apache.spark.network.client.RpcResponseCallback;
import org.apache.spark.network.client.StreamCallbackWithID;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.server.RpcHandler;
import org.apache.spark.network.server.StreamManager;
import org.apache.spark.network.shuffle.protocol.BlockTransferMessage;
import org.apache.spark.network.shuffle.protocol.UploadBlockStream;

/**
 * Takes what is {@link Uploads ours} out of what a server of blocks receives, and leaves everything else to Spark's own handler,
 * which shuffles rely on. Made by {@link SparkInternals#take}.
 *
 * <p>Concurrency: called by network threads; immutable.
 */
final class UploadHandler extends RpcHandler {
    private static final byte UPLOAD_STREAM = 6;

    private final RpcHandler blocks;
    private final String prefix;
    private final Uploads ours;

    UploadHandler(RpcHandler blocks, String prefix, Uploads ours) {
        this.blocks = blocks;
        this.prefix = prefix;
        this.ours = ours;
    }

    @Override
    public void receive(TransportClient client, ByteBuffer message, RpcResponseCallback callback) {
        blocks.receive(client, message, callback);
    }

    @Override
    public void receive(TransportClient client, ByteBuffer message) {
        blocks.receive(client, message);
    }

    @Override
    public StreamCallbackWithID receiveStream(TransportClient client, ByteBuffer header, RpcResponseCallback callback) {
        if (begins(header, UPLOAD_STREAM)) {
            String id = ((UploadBlockStream) decoded(header)).blockId;
            String name = name(id);
            Uploads.Sink sink = name == null ? null : ours.stream(name);
            if (sink != null) {
                return new Stream(id, sink);
            }
        }
        return blocks.receiveStream(client, header, callback);
    }

    private static boolean begins(ByteBuffer message, byte type) {
        return message.hasRemaining() && message.get(message.position()) == type;
    }

    private static BlockTransferMessage decoded(ByteBuffer message) {
        return BlockTransferMessage.Decoder.fromByteBuffer(message.duplicate());
    }

    /** The name behind a block's id; null: no id of ours. */
    private String name(String id) {
        return id.startsWith(prefix) ? id.substring(prefix.length()) : null;
    }

    /** Hands a stream to its sink. Spark answers the sender when it has ended. */
    private static final class Stream implements StreamCallbackWithID {
        private final String id;
        private final Uploads.Sink sink;

        Stream(String id, Uploads.Sink sink) {
            this.id = id;
            this.sink = sink;
        }

        @Override
        public String getID() {
            return id;
        }

        @Override
        public void onData(String stream, ByteBuffer bytes) {
            sink.come(bytes);
        }

        @Override
        public void onComplete(String stream) {
            sink.end();
        }

        @Override
        public void onFailure(String stream, Throwable cause) {
            // The sender, if it lives, knows by itself: its connection is broken.
        }
    }

    @Override
    public StreamManager getStreamManager() {
        return blocks.getStreamManager();
    }

    @Override
    public RpcHandler.MergedBlockMetaReqHandler getMergedBlockMetaReqHandler() {
        return blocks.getMergedBlockMetaReqHandler();
    }

    @Override
    public void channelActive(TransportClient client) {
        blocks.channelActive(client);
    }

    @Override
    public void channelInactive(TransportClient client) {
        blocks.channelInactive(client);
    }

    @Override
    public void exceptionCaught(Throwable cause, TransportClient client) {
        blocks.exceptionCaught(cause, client);
    }
}
