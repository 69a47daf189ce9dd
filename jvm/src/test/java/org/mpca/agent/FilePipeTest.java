package org.mpca.agent;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.mpca.rdd.HadoopClients;
import org.mpca.rdd.HadoopReads;
import org.mpca.wire.Fields;
import org.mpca.wire.FrameReader;
import org.mpca.wire.FrameWriter;
import org.mpca.wire.Message;
import org.mpca.wire.Msgpack;

/** An agent's side by hand: named pipes, a file as its memory, and Hadoop's client on local files. */
class FilePipeTest {
    private static final int MEMORY = 1 << 20;

    @TempDir
    Path folder;

    private final Map<String, Integer> opened = new HashMap<>();
    private FrameWriter requests;
    private FrameReader answers;
    private FileOutputStream toPipe;
    private FileInputStream fromPipe;
    private RandomAccessFile memory;
    private FilePipe pipe;
    private byte[] content;
    private long number;

    @BeforeEach
    void open() throws Exception {
        content = new byte[3_000_000];
        new Random(1).nextBytes(content);
        Files.write(folder.resolve("one file.tar"), content);
        for (String name : Arrays.asList("requests", "answers")) {
            assertEquals(0, new ProcessBuilder("mkfifo", at(name)).start().waitFor());
        }
        memory = new RandomAccessFile(at("memory"), "rw");
        memory.setLength(MEMORY);
        RandomAccessFile holdsThemOpen = new RandomAccessFile(at("requests"), "rw");
        RandomAccessFile andThis = new RandomAccessFile(at("answers"), "rw");
        HadoopReads hadoop = new HadoopReads(new HadoopClients(() -> {
            Configuration conf = new Configuration();
            conf.setClass("fs.far.impl", Far.class, FileSystem.class);
            return conf;
        }));
        pipe = FilePipe.open(
                at("requests"),
                at("answers"),
                at("memory"),
                MEMORY,
                url -> {
                    opened.merge(url, 1, Integer::sum);
                    return hadoop.open(url);
                },
                "mpca-agent-9");
        toPipe = new FileOutputStream(at("requests"));
        fromPipe = new FileInputStream(at("answers"));
        requests = new FrameWriter(toPipe);
        answers = new FrameReader(fromPipe);
        holdsThemOpen.close();
        andThis.close();
        assertEquals(0, answer().number("number"), "all is open");
    }

    @AfterEach
    void close() throws Exception {
        toPipe.close();
        FakeAgents.waitUntil(
                "its thread ends with the agent's end of the pipe",
                () -> Thread.getAllStackTraces().keySet().stream()
                        .noneMatch(one -> one.getName().equals("mpca-agent-9-files")));
        assertEquals(-1, fromPipe.read(), "and closes its own end");
        fromPipe.close();
        memory.close();
    }

    @Test
    void shouldPutRangesIntoTheMemoryAndAnswerInOrder() throws Exception {
        assertArrayEquals(Arrays.copyOfRange(content, 5, 5 + MEMORY), fetch(url("one file.tar"), 5, MEMORY));
        assertArrayEquals(
                Arrays.copyOfRange(content, 1_000_001, 1_000_101), fetch(url("one file.tar"), 1_000_001, 100));
        assertEquals(1, opened.get(url("one file.tar")), "finding a file costs a word with the NameNode");
    }

    @Test
    void shouldGiveWhatIsThereAtTheEndOfAFile() throws Exception {
        assertArrayEquals(
                Arrays.copyOfRange(content, 2_999_990, 3_000_000), fetch(url("one file.tar"), 2_999_990, 100));
        assertEquals(0, fetch(url("one file.tar"), 3_000_000, 100).length);
        assertEquals(0, fetch(url("one file.tar"), 4_000_000, 100).length);
    }

    @Test
    void shouldSayWhatWentWrongAndGoOn() throws Exception {
        ask(url("not there"), 0, 10);
        Fields failed = answer();
        assertEquals(number, failed.number("number"));
        assertEquals(FileNotFoundException.class.getName(), failed.text("error"));
        assertTrue(failed.text("text").contains("not there"));
        Files.write(folder.resolve("not there"), new byte[] {1, 2, 3});
        assertArrayEquals(new byte[] {1, 2, 3}, fetch(url("not there"), 0, 10));
        assertEquals(2, opened.get(url("not there")), "opened anew after the error");
    }

    @Test
    void shouldCountWhatCameFromAnotherHost() throws Exception {
        fetch(url("one file.tar"), 0, 700);
        assertEquals("700 0", pipe.readBytes() + " " + pipe.remoteBytes(), "a file of this host");
        fetch("far:" + at("one file.tar"), 2_999_990, 100);
        assertEquals("710 10", pipe.readBytes() + " " + pipe.remoteBytes());
        ask(url("not there"), 0, 10);
        answer();
        assertEquals("710 10", pipe.readBytes() + " " + pipe.remoteBytes());
    }

    /** A file system of which nothing is known: as an object store is. */
    public static final class Far extends RawLocalFileSystem {
        @Override
        public URI getUri() {
            return URI.create("far:///");
        }
    }

    @Test
    void shouldHoldAFewFilesOpen() throws Exception {
        for (int round = 0; round < 2; round++) {
            for (int i = 0; i < 10; i++) {
                Files.write(folder.resolve("f" + i), new byte[] {(byte) i});
                assertArrayEquals(new byte[] {(byte) i}, fetch(url("f" + i), 0, 1));
            }
        }
        assertEquals(2, opened.get(url("f0")), "eight at a time");
    }

    @Test
    void shouldEndWhenARangeDoesNotFit() throws Exception {
        ask(url("one file.tar"), 0, MEMORY + 1);
        assertEquals(null, answers.read());
    }

    private byte[] fetch(String url, long offset, int bytes) throws IOException {
        ask(url, offset, bytes);
        Fields fetched = answer();
        assertEquals(number, fetched.number("number"));
        assertEquals("", fetched.text("error"), fetched.text("text"));
        byte[] data = new byte[fetched.integer("bytes")];
        memory.seek(0);
        memory.readFully(data);
        return data;
    }

    private void ask(String url, long offset, int bytes) throws IOException {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("number", ++number);
        fields.put("url", url);
        fields.put("offset", offset);
        fields.put("bytes", bytes);
        requests.write(Msgpack.pack(Arrays.asList(Message.Kind.FETCH.code, fields)));
    }

    private Fields answer() throws IOException {
        Message message = Message.unpack(answers.read());
        assertEquals(Message.Kind.FETCHED, message.kind);
        return message.fields;
    }

    private String at(String name) {
        return folder.resolve(name).toString();
    }

    private String url(String name) {
        return "file://" + at(name);
    }
}
