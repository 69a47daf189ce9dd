package org.mpca.agent;

import java.io.Closeable;
import java.io.EOFException;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.mpca.wire.Fields;
import org.mpca.wire.FrameReader;
import org.mpca.wire.FrameWriter;
import org.mpca.wire.Message;
import org.mpca.wire.ProtocolException;

/**
 * Reads files for one agent, or for the evaluator: a range is asked for on a pipe of that process, its bytes go into memory
 * of that process, and the answer on another pipe says how many they are, or what went wrong. Beside the control pipe, so
 * that no order ever waits for a file. Answers come in the order of the requests; the first one, number 0, says that all is
 * open.
 *
 * <p>Both pipes and the memory are the agent's, opened through {@code /proc}; it is read and written by position and never
 * mapped here, for the reasons of {@link org.mpca.shm.AgentSegment}. A source that failed is opened anew the next time.
 * Bytes are counted, since they share the wire with the exchange.
 *
 * <p>Concurrency: its own thread, mpca-agent-N-files, which ends with the agent's end of the pipe. Any thread may ask for the
 * counts.
 */
public final class FilePipe implements Runnable {
    private static final Logger LOG = Logger.getLogger("mpca.agent");
    /** Open files: finding one costs a word with the NameNode. */
    private static final int MOST_OPEN = 8;

    private static final int STEP_BYTES = 256 << 10;

    private final FileReads reads;
    private final FrameReader requests;
    private final FrameWriter answers;
    private final FileChannel memory;
    private final int memoryBytes;
    private final Closeable[] opened;
    private final Map<String, FileReads.Source> sources = new LinkedHashMap<>(16, 0.75f, true);
    private byte[] buffer = new byte[0];
    /** Direct, since positional I/O on heap buffers lets the JDK keep a hidden direct copy of any size per thread. */
    private final ByteBuffer step = ByteBuffer.allocateDirect(STEP_BYTES);

    private final AtomicLong readBytes = new AtomicLong();
    private final AtomicLong remoteBytes = new AtomicLong();

    private FilePipe(
            FileReads reads, InputStream requests, OutputStream answers, RandomAccessFile memory, int memoryBytes) {
        this.reads = reads;
        this.requests = new FrameReader(requests);
        this.answers = new FrameWriter(answers);
        this.memory = memory.getChannel();
        this.memoryBytes = memoryBytes;
        this.opened = new Closeable[] {requests, answers, memory};
    }

    /** Opens what Files announced, and starts the thread. */
    static FilePipe open(Fields files, FileReads reads, String name) throws IOException {
        return open(
                files.integer("pid"),
                new int[] {files.integer("requests_fd"), files.integer("answers_fd"), files.integer("memory_fd")},
                files.integer("memory_bytes"),
                reads,
                name);
    }

    /** ... by the process's id and its descriptors: of requests, of answers, of the memory. */
    public static FilePipe open(int pid, int[] descriptors, int memoryBytes, FileReads reads, String name)
            throws IOException {
        String folder = "/proc/" + pid + "/fd/";
        return open(
                folder + descriptors[0], folder + descriptors[1], folder + descriptors[2], memoryBytes, reads, name);
    }

    static FilePipe open(String requests, String answers, String memory, int memoryBytes, FileReads reads, String name)
            throws IOException {
        RandomAccessFile memoryFile = new RandomAccessFile(memory, "rw");
        if (memoryFile.length() < memoryBytes) {
            long have = memoryFile.length();
            memoryFile.close();
            throw new ProtocolException(
                    "memory for files too small: need_bytes=" + memoryBytes + ", have_bytes=" + have);
        }
        FilePipe pipe = new FilePipe(
                reads, new FileInputStream(requests), new FileOutputStream(answers), memoryFile, memoryBytes);
        Thread thread = new Thread(pipe, name + "-files");
        thread.setDaemon(true);
        thread.start();
        return pipe;
    }

    /** Bytes that were read for the agent. */
    long readBytes() {
        return readBytes.get();
    }

    /** ... and that came from another host. */
    long remoteBytes() {
        return remoteBytes.get();
    }

    @Override
    public void run() {
        try {
            answers.write(Message.fetched(0, 0, "", "").pack());
            for (byte[] body = requests.read(); body != null; body = requests.read()) {
                Message asked = Message.unpack(body);
                if (asked.kind != Message.Kind.FETCH) {
                    throw new ProtocolException("not a request for a file: " + asked);
                }
                answers.write(serve(asked.fields).pack());
            }
        } catch (IOException | RuntimeException e) {
            LOG.log(
                    Level.FINE,
                    "files of an agent are read no more",
                    e); // it is gone, or reads the end of its pipe now
        } finally {
            sources.values().forEach(FilePipe::closeQuietly);
            for (Closeable one : opened) {
                closeQuietly(one);
            }
        }
    }

    private Message serve(Fields fetch) throws IOException {
        long number = fetch.number("number");
        String url = fetch.text("url");
        int bytes = fetch.integer("bytes");
        if (bytes < 0 || bytes > memoryBytes) {
            throw new ProtocolException("a range that does not fit: bytes=" + bytes + ", memory=" + memoryBytes);
        }
        int got;
        try {
            got = read(url, fetch.number("offset"), bytes);
        } catch (IOException | RuntimeException e) {
            closeQuietly(sources.remove(url));
            return Message.fetched(number, 0, e.getClass().getName(), String.valueOf(e.getMessage()));
        }
        for (int at = 0; at < got; at += step.position()) {
            step.clear();
            step.put(buffer, at, Math.min(STEP_BYTES, got - at)).flip();
            for (long to = at; step.hasRemaining(); ) {
                to += memory.write(step, to);
            }
        }
        return Message.fetched(number, got, "", "");
    }

    private int read(String url, long offset, int bytes) throws IOException {
        FileReads.Source source = sources.get(url);
        if (source == null) {
            source = reads.open(url);
            sources.put(url, source);
            if (sources.size() > MOST_OPEN) {
                closeQuietly(sources.remove(sources.keySet().iterator().next()));
            }
        }
        if (buffer.length < bytes) {
            buffer = new byte[bytes];
        }
        long remoteBefore = source.remoteBytes();
        int got = 0;
        try {
            while (got < bytes) {
                int more = source.read(offset + got, buffer, got, bytes - got);
                if (more <= 0) {
                    break;
                }
                got += more;
            }
        } catch (EOFException e) {
            // How some file systems say that it begins behind the end.
        } finally {
            readBytes.addAndGet(got);
            remoteBytes.addAndGet(source.remoteBytes() - remoteBefore);
        }
        return got;
    }

    private static void closeQuietly(Closeable one) {
        try {
            if (one != null) {
                one.close();
            }
        } catch (IOException e) {
            // Nothing was written to it that could be lost.
        }
    }
}
