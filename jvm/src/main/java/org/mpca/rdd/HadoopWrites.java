package org.mpca.rdd;

import java.io.IOException;
import org.apache.hadoop.fs.ChecksumFileSystem;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.permission.FsPermission;
import org.mpca.agent.FileWrites;

/**
 * Files of agents by {@link HadoopClients}. They and the folders that are made for them are for their owner alone, as a run
 * folder is: a state holds a model.
 *
 * <p>Concurrency: any thread; a target is its maker's.
 */
public final class HadoopWrites implements FileWrites {
    private static final FsPermission FILE = new FsPermission((short) 0600);
    private static final FsPermission FOLDER = new FsPermission((short) 0700);

    private final HadoopClients clients;

    public HadoopWrites(HadoopClients clients) {
        this.clients = clients;
    }

    @Override
    public Target create(String url) throws IOException {
        Path path = new Path(url);
        FileSystem files = system(path);
        makeFolder(files, path.getParent());
        FSDataOutputStream out = files.create(
                path,
                FILE,
                true,
                files.getConf().getInt("io.file.buffer.size", 4096),
                files.getDefaultReplication(path),
                files.getDefaultBlockSize(path),
                null);
        return new Target() {
            @Override
            public void write(byte[] from, int at, int length) throws IOException {
                out.write(from, at, length);
            }

            @Override
            public void sync() throws IOException {
                if (out.hasCapability(
                        StreamCapabilities.HSYNC)) { // an object store has none: its files are there when closed
                    out.hsync();
                }
            }

            @Override
            public void close() throws IOException {
                out.close();
            }
        };
    }

    @Override
    public void delete(String url) throws IOException {
        Path path = new Path(url);
        system(path).delete(path, false);
    }

    /** One by one: local file systems would give the permission to the last alone. */
    private static void makeFolder(FileSystem files, Path folder) throws IOException {
        if (folder == null || files.exists(folder)) {
            return;
        }
        makeFolder(files, folder.getParent());
        files.mkdirs(folder, FOLDER);
    }

    /** Without the checksums that Hadoop puts beside local files: whoever copies or removes these knows of none. */
    private FileSystem system(Path path) throws IOException {
        FileSystem found = clients.of(path.toUri());
        return found instanceof ChecksumFileSystem ? ((ChecksumFileSystem) found).getRawFileSystem() : found;
    }
}
