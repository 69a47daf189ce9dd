package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.mpca.wire.Msgpack;
import org.mpca.wire.Order;
import org.mpca.wire.ProtocolException;

class DownloadTest {
    private final Order order = order(5);
    private final Download download = new Download(order, order.downloads.get(0));

    /** An order with one download. */
    static Order order(int broadcast) {
        Map<String, Object> what = new HashMap<>();
        what.put("broadcast", broadcast);
        what.put("shard", 1);
        what.put("version", 2);
        what.put("mode", "install");
        what.put("length", 8);
        what.put("alpha", 0.25);
        List<Object> agent = new ArrayList<>();
        Collections.addAll(agent, "0", 3, 1);
        what.put("agents", Collections.singletonList(agent));
        Map<String, Object> fields = new HashMap<>();
        fields.put("order", 1);
        fields.put("run", "r");
        fields.put("term", 0);
        fields.put("cycle", 0);
        fields.put("deadline", 0.0);
        fields.put("description", "");
        fields.put("forget_cycle", -1);
        fields.put("downloads", Collections.singletonList(what));
        for (String name : new String[] {"executors", "begin", "stop", "forget_broadcasts"}) {
            fields.put(name, Collections.emptyList());
        }
        try {
            return Order.unpack(Msgpack.pack(fields));
        } catch (ProtocolException e) {
            throw new AssertionError(e);
        }
    }

    @Test
    void shouldCountEachPieceOnce() {
        assertTrue(download.arrived(1, 4, true));
        assertFalse(download.arrived(1, 4, true));
        assertTrue(download.arrived(0, 4, false));
        assertEquals(8, download.data().length);
        assertEquals(2, download.here().cardinality());
        assertEquals(8, download.takeBytesIn());
        assertEquals(4, download.takeBytesFromDriver());
        assertEquals(0, download.takeBytesIn());
        assertEquals(0, download.takeBytesFromDriver());
    }

    @Test
    void shouldBeWholeAtOnce() {
        byte[] all = new byte[8];
        assertFalse(download.isWhole());
        download.adopt(all, 6);
        assertTrue(download.isWhole());
        assertSame(all, download.data());
        assertEquals(8, download.takeBytesIn());
        assertEquals(6, download.takeBytesFromDriver());
    }

    @Test
    void shouldOfferOnceToEachIncarnation() {
        Order.AgentRef agent = order.downloads.get(0).agents.get(0);
        assertTrue(download.offerOnce(agent));
        assertFalse(download.offerOnce(agent));
        download.takeBackOffer(agent);
        assertTrue(download.offerOnce(agent));
    }
}
