package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.mpca.agent.FileReads;
import org.mpca.agent.FileWrites;

/** On local files, by Hadoop's client for them. */
class HadoopWritesTest {
    @TempDir
    Path folder;

    private final HadoopClients clients = new HadoopClients(Configuration::new);
    private final HadoopWrites writes = new HadoopWrites(clients);

    @Test
    void shouldWriteAFileAndNothingBesideIt() throws Exception {
        byte[] content = new byte[700_000];
        Arrays.fill(content, (byte) 7);
        try (FileWrites.Target target = writes.create(url("state of 0%20.bin"))) {
            target.write(content, 0, 300_000);
            target.write(content, 300_000, 400_000);
            target.sync();
            assertEquals(700_000, Files.size(folder.resolve("state of 0%20.bin")), "on the disk before it is closed");
        }
        assertArrayEquals(content, Files.readAllBytes(folder.resolve("state of 0%20.bin")));
        assertEquals(Collections.singletonList("state of 0%20.bin"), names(folder), "no checksums");
        try (FileReads.Source source = new HadoopReads(clients).open(url("state of 0%20.bin"))) {
            byte[] read = new byte[700_000];
            assertEquals(700_000, source.read(0, read, 0, read.length));
            assertArrayEquals(content, read);
        }
    }

    @Test
    void shouldMakeFilesAndFoldersForTheirOwnerAlone() throws Exception {
        Files.createDirectory(
                folder.resolve("there"),
                PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwxr-xr-x")));
        write(url("there/a/b/state"), "x");
        assertEquals("rw-------", permissions("there/a/b/state"));
        assertEquals("rwx------", permissions("there/a/b"));
        assertEquals("rwx------", permissions("there/a"));
        assertEquals("rwxr-xr-x", permissions("there"), "it was there before");
    }

    @Test
    void shouldReplaceAFile() throws Exception {
        write(url("state"), "a longer text");
        write(url("state"), "short");
        assertEquals("short", new String(Files.readAllBytes(folder.resolve("state")), StandardCharsets.UTF_8));
    }

    @Test
    void shouldRemoveAFileThatIsThere() throws Exception {
        write(url("state"), "x");
        writes.delete(url("state"));
        writes.delete(url("state"));
        assertEquals(Collections.emptyList(), names(folder));
    }

    @Test
    void shouldSayThatAFileCannotBeMade() throws Exception {
        write(url("file"), "x");
        assertThrows(IOException.class, () -> writes.create(url("file/state")));
        assertThrows(IOException.class, () -> writes.create("nowhere://host/state"));
        assertEquals(Collections.singletonList("file"), names(folder));
    }

    private void write(String url, String text) throws IOException {
        byte[] content = text.getBytes(StandardCharsets.UTF_8);
        try (FileWrites.Target target = writes.create(url)) {
            target.write(content, 0, content.length);
        }
    }

    private String permissions(String name) throws IOException {
        return PosixFilePermissions.toString(Files.getPosixFilePermissions(folder.resolve(name)));
    }

    private static List<String> names(Path folder) throws IOException {
        try (Stream<Path> found = Files.list(folder)) {
            return found.map(one -> one.getFileName().toString()).sorted().collect(Collectors.toList());
        }
    }

    private String url(String name) {
        return "file://" + folder.resolve(name);
    }
}
