package org.mpca.rdd;

import java.io.IOException;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.ReadStatistics;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;
import org.mpca.agent.FileReads;

/**
 * Files for agents by {@link HadoopClients}: of each block the nearest replica is read.
 *
 * <p>Concurrency: any thread; a source is its opener's.
 */
public final class HadoopReads implements FileReads {
    private final HadoopClients clients;

    public HadoopReads(HadoopClients clients) {
        this.clients = clients;
    }

    @Override
    public Source open(String url) throws IOException {
        Path path = new Path(url);
        FSDataInputStream in = clients.of(path.toUri()).open(path);
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
}
