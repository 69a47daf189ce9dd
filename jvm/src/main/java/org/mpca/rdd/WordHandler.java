package org.mpca.rdd;

import java.nio.ByteBuffer;
import java.util.function.Consumer;
import java.util.function.Predicate;
import org.apache.spark.network.client.RpcResponseCallback;
import org.apache.spark.network.client.StreamCallbackWithID;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.server.RpcHandler;
import org.apache.spark.network.server.StreamManager;
import org.apache.spark.network.shuffle.protocol.BlockTransferMessage;
import org.apache.spark.network.shuffle.protocol.UploadBlock;

/**
 * Takes the words that executors tell each other out of what their servers of blocks receive, and leaves everything else to
 * Spark's own handler, which shuffles rely on. Made by {@link SparkInternals#takeWords}.
 *
 * <p>Concurrency: called by network threads; immutable.
 */
final class WordHandler extends RpcHandler {
    /** A word's upload is a name and one byte; Spark's own are larger, or of another type. */
    private static final int MOST_BYTES = 4096;

    private static final byte UPLOAD = 1;

    private final RpcHandler blocks;
    private final String prefix;
    private final Predicate<String> isWord;
    private final Consumer<String> taken;

    WordHandler(RpcHandler blocks, String prefix, Predicate<String> isWord, Consumer<String> taken) {
        this.blocks = blocks;
        this.prefix = prefix;
        this.isWord = isWord;
        this.taken = taken;
    }

    @Override
    public void receive(TransportClient client, ByteBuffer message, RpcResponseCallback callback) {
        if (message.hasRemaining() && message.remaining() <= MOST_BYTES && message.get(message.position()) == UPLOAD) {
            BlockTransferMessage decoded = BlockTransferMessage.Decoder.fromByteBuffer(message.duplicate());
            String name = decoded instanceof UploadBlock ? ((UploadBlock) decoded).blockId : "";
            if (name.startsWith(prefix) && isWord.test(name.substring(prefix.length()))) {
                taken.accept(name.substring(prefix.length()));
                callback.onSuccess(ByteBuffer.allocate(0));
                return;
            }
        }
        blocks.receive(client, message, callback);
    }

    @Override
    public void receive(TransportClient client, ByteBuffer message) {
        blocks.receive(client, message);
    }

    @Override
    public StreamCallbackWithID receiveStream(TransportClient client, ByteBuffer header, RpcResponseCallback callback) {
        return blocks.receiveStream(client, header, callback);
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
