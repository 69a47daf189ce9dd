package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.junit.jupiter.api.Test;

/** What a client waits for. tests/hadoop/test_ha.py kills the NameNodes. */
class HadoopClientsTest {
    private static final String WAITS = "dfs.client.retry.policy.enabled";

    private final Configuration session = new Configuration(false);

    HadoopClientsTest() {
        session.set("dfs.ha.namenodes.prod", "a,b");
        session.set(WAITS, "true");
    }

    @Test
    void shouldWaitForOneNameNodeButNotForOneOfTwo() {
        for (String url : new String[] {"hdfs://prod/x", "hdfs:///x"}) {
            session.set("fs.defaultFS", "hdfs://prod");
            assertEquals(
                    "false", HadoopClients.patient(session, URI.create(url)).get(WAITS), url);
        }
        assertEquals(
                "true",
                HadoopClients.patient(session, URI.create("hdfs://nn1:8020/x")).get(WAITS));
        session.set("fs.defaultFS", "hdfs://nn1:8020");
        session.unset(WAITS);
        assertEquals(
                "true", HadoopClients.patient(session, URI.create("hdfs:///x")).get(WAITS));
        assertEquals(null, session.get(WAITS), "the session's own is left as it is");
    }
}
