package org.mpca.rdd;

import java.io.IOException;
import java.net.URI;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.ReadStatistics;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;
import org.mpca.agent.FileReads;

/**
 * Hadoop's own client for agents: tokens, high availability, encryption, and of each block the nearest replica.
 * A NameNode that restarts is waited for, a DataNode that dies is the client's affair.
 *
 * <p>Concurrency: any thread; the file systems are shared and safe, a source is its opener's.
 */
public final class HadoopReads implements FileReads {
    private final Supplier<Configuration> session;
    private final Map<String, FileSystem> systems = new ConcurrentHashMap<>();

    /** {@code session} is asked when the first file is opened. */
    public HadoopReads(Supplier<Configuration> session) {
        this.session = session;
    }

    /** A client of its own for a file system: a cached one would be without these settings. */
    public static FileSystem client(Configuration session, URI uri) throws IOException {
        return FileSystem.newInstance(uri, patient(session));
    }

    /** The configuration with which every call waits while a NameNode restarts, instead of failing at once. */
    public static Configuration patient(Configuration session) {
        Configuration conf = new Configuration(session);
        conf.setBoolean("dfs.client.retry.policy.enabled", true);
        conf.set(
                "dfs.client.retry.policy.spec",
                "500,40,2000,20"); // a minute in all: twenty seconds of quick looks first
        return conf;
    }

    @Override
    public Source open(String url) throws IOException {
        Path path = new Path(url);
        FSDataInputStream in = system(path.toUri()).open(path);
        return new Source() {
            private long all;

            @Override
            public int read(long offset, byte[] into, int at, int length) throws IOException {
                int got = in.read(offset, into, at, length);
                all += Math.max(0, got);
                return got;
            }

            @Override
            public long remoteBytes() {
                if (in instanceof HdfsDataInputStream) { // each read is counted by where the DataNode is that gave it
                    ReadStatistics told = ((HdfsDataInputStream) in).getReadStatistics();
                    return told.getTotalBytesRead() - told.getTotalLocalBytesRead();
                }
                return "file".equals(path.toUri().getScheme()) ? 0 : all;
            }

            @Override
            public void close() throws IOException {
                in.close();
            }
        };
    }

    private FileSystem system(URI uri) throws IOException {
        String server = uri.getScheme() + "://" + uri.getAuthority();
        FileSystem found = systems.get(server);
        if (found == null) {
            FileSystem made = client(session.get(), uri);
            found = systems.putIfAbsent(server, made);
            if (found == null) {
                return made;
            }
            made.close();
        }
        return found;
    }
}
