package org.mpca.bridge;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.permission.FsPermission;
import org.mpca.rdd.HadoopClients;
import org.mpca.wire.Msgpack;

/**
 * Files of HDFS for Python's {@code mpca/spark/hdfs/store.py}, by the JVM's own client: tokens, high availability, encryption.
 * Bytes of files lie in a segment, a memory file of the Python driver, and are moved piece by piece.
 *
 * <p>One thread at a time; the caller sees to it. At most one file is open for writing.
 */
public final class HadoopFiles {
    private static final int BUFFER_BYTES = 1 << 20;
    private static final FsPermission FILE = new FsPermission((short) 0600);
    private static final FsPermission FOLDER = new FsPermission((short) 0700);

    private final FileSystem files;
    private final FileContext context;
    private final RandomAccessFile segment;
    private final byte[] buffer = new byte[BUFFER_BYTES];
    private final Path root;
    private final boolean ownersAlone;
    private FSDataOutputStream open;

    HadoopFiles(Configuration session, String url, String segmentPath, boolean ownersAlone) throws IOException {
        URI uri = URI.create(url);
        this.root = new Path(uri);
        this.ownersAlone = ownersAlone;
        this.files = HadoopClients.client(session, uri);
        // Unlike FileSystem, FileContext does not take the cluster's own name where a URL has none: hdfs:///path.
        this.context = FileContext.getFileContext(files.getUri(), HadoopClients.patient(session, files.getUri()));
        this.segment = new RandomAccessFile(segmentPath, "rw");
    }

    /** Opens a file for writing, folders above it are made; with `exclusive`, only one that does not exist. */
    public void create(String path, boolean exclusive) throws IOException {
        Path target = new Path(path);
        if (!ownersAlone) {
            open = files.create(target, !exclusive);
            return;
        }
        makeFolder(target.getParent());
        open = files.create(
                target,
                FILE,
                !exclusive,
                files.getConf().getInt("io.file.buffer.size", 4096),
                files.getDefaultReplication(target),
                files.getDefaultBlockSize(target),
                null);
    }

    /** Writes the first `length` bytes of the segment to the open file. */
    public void append(int length) throws IOException {
        FileChannel channel = segment.getChannel();
        for (int done = 0; done < length; ) {
            int got = channel.read(ByteBuffer.wrap(buffer, 0, Math.min(buffer.length, length - done)), done);
            if (got < 0) {
                throw new IOException("segment is shorter than the piece: bytes=" + done + " of " + length);
            }
            open.write(buffer, 0, got);
            done += got;
        }
    }

    /** Has the DataNodes put the open file on their disks, and closes it. */
    public void finish() throws IOException {
        open.hsync();
        open.close();
        open = null;
    }

    /** Closes the open file, if there is one, whatever is in it. */
    public void abandon() {
        FSDataOutputStream stream = open;
        open = null;
        if (stream != null) {
            try {
                stream.close();
            } catch (IOException e) {
                // The caller has the first error already; the lease ends by itself.
            }
        }
    }

    /** Reads up to `length` bytes from `offset` on into the segment, which has room for them; how many there were. */
    public int read(String path, long offset, int length) throws IOException {
        FileChannel channel = segment.getChannel();
        try (FSDataInputStream in = files.open(new Path(path))) {
            int done = 0;
            while (done < length) {
                int got = in.read(offset + done, buffer, 0, Math.min(buffer.length, length - done));
                if (got < 0) {
                    break;
                }
                ByteBuffer piece = ByteBuffer.wrap(buffer, 0, got);
                while (piece.hasRemaining()) {
                    channel.write(piece, done + piece.position());
                }
                done += got;
            }
            return done;
        }
    }

    /** Bytes of a file. */
    public long size(String path) throws IOException {
        return files.getFileStatus(new Path(path)).getLen();
    }

    /** Whether there is a file or folder. */
    public boolean exists(String path) throws IOException {
        return files.exists(new Path(path));
    }

    /** Names in a folder, sorted: msgpack [text, ...]; none when there is no such folder. */
    public byte[] names(String path) throws IOException {
        List<String> names = new ArrayList<>();
        try {
            for (FileStatus one : files.listStatus(new Path(path))) {
                names.add(one.getPath().getName());
            }
        } catch (FileNotFoundException e) {
            return Msgpack.pack(Collections.emptyList());
        }
        Collections.sort(names);
        return Msgpack.pack(names);
    }

    /** Of each file in a folder the hosts that hold more than half of its bytes: msgpack {name: [host, ...]}. */
    public byte[] hosts(String path) throws IOException {
        Map<String, List<String>> hosts = new LinkedHashMap<>();
        RemoteIterator<LocatedFileStatus> found = files.listLocatedStatus(new Path(path));
        while (found.hasNext()) {
            LocatedFileStatus file = found.next();
            Map<String, Long> bytes = new TreeMap<>();
            if (file.isFile()) {
                for (BlockLocation block : file.getBlockLocations()) {
                    for (String host : block.getHosts()) {
                        bytes.merge(host, block.getLength(), Long::sum);
                    }
                }
            }
            bytes.values().removeIf(held -> 2 * held <= file.getLen());
            hosts.put(file.getPath().getName(), new ArrayList<>(bytes.keySet()));
        }
        return Msgpack.pack(hosts);
    }

    /** Moves a file or folder at once, never over or into something that exists; folders above the new name are made. */
    public void rename(String from, String to) throws IOException {
        Path target = files.makeQualified(new Path(to));
        makeFolder(target.getParent());
        context.rename(files.makeQualified(new Path(from)), target, Options.Rename.NONE);
    }

    /** Removes a file, or a folder with all in it. */
    public void delete(String path) throws IOException {
        files.delete(new Path(path), true);
    }

    /** Removes a folder that is empty; one that is not, or is not there, stays as it is. */
    public void rmdir(String path) throws IOException {
        try {
            files.delete(new Path(path), false);
        } catch (PathIsNotEmptyDirectoryException e) {
            // As it should be.
        }
    }

    /** The root and what is below it belong to their owner alone, if so asked; what is above is made as the cluster says. */
    private void makeFolder(Path path) throws IOException {
        if (!ownersAlone) {
            files.mkdirs(path);
            return;
        }
        if (!files.exists(root) && root.getParent() != null) {
            files.mkdirs(root.getParent());
        }
        files.mkdirs(path, FOLDER);
    }

    /** Frees the client and the segment. */
    public void close() throws IOException {
        abandon();
        files.close();
        segment.close();
    }
}
