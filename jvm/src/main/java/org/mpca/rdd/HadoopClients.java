package org.mpca.rdd;

import java.io.IOException;
import java.net.URI;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;

/**
 * Hadoop's own clients, one a file system: tokens, high availability, encryption.
 * A NameNode that restarts is waited for, of two the active one is looked for; a DataNode that dies is the client's affair.
 *
 * <p>Concurrency: any thread; the file systems are shared and safe.
 */
public final class HadoopClients {
    private final Supplier<Configuration> session;
    private final Map<String, FileSystem> systems = new ConcurrentHashMap<>();

    /** {@code session} is asked when the first file of a file system is opened. */
    public HadoopClients(Supplier<Configuration> session) {
        this.session = session;
    }

    /** A client of its own for a file system: a cached one would be without these settings. */
    public static FileSystem client(Configuration session, URI uri) throws IOException {
        return FileSystem.newInstance(uri, patient(session, uri));
    }

    /**
     * The configuration with which every call waits for a minute while a NameNode restarts, instead of failing at once.
     * A client of two NameNodes must not: it would wait so long for the dead one before it asks the other. It asks them in
     * turns for a minute.
     */
    public static Configuration patient(Configuration session, URI uri) {
        Configuration conf = new Configuration(session);
        String service =
                uri.getAuthority() == null ? FileSystem.getDefaultUri(conf).getAuthority() : uri.getAuthority();
        if (conf.get("dfs.ha.namenodes." + service) != null) {
            conf.setBoolean("dfs.client.retry.policy.enabled", false);
            conf.setInt("dfs.client.failover.sleep.max.millis", 2000);
            conf.setInt("dfs.client.failover.max.attempts", 40);
            return conf;
        }
        conf.setBoolean("dfs.client.retry.policy.enabled", true);
        conf.set(
                "dfs.client.retry.policy.spec",
                "500,40,2000,20"); // a minute in all: twenty seconds of quick looks first
        return conf;
    }

    /** The shared client for the file system of a URL. */
    FileSystem of(URI uri) throws IOException {
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
