package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
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
        return order(broadcast, 0, null);
    }

    /** The same; `base`: what the download is a difference from, as bf16; null: it is float32. */
    static Order order(int broadcast, long result, HeldBases.Name base) {
        Map<String, Object> fields = fields(broadcast, Collections.singletonList(Arrays.asList("0", 3, 1)));
        @SuppressWarnings("unchecked")
        Map<String, Object> what = (Map<String, Object>) ((List<?>) fields.get("downloads")).get(0);
        what.put("result", result);
        if (base != null) {
            Map<String, Object> coded = new HashMap<>();
            coded.put("codec", "bf16");
            coded.put("version", base.version);
            coded.put("crc", base.crc);
            coded.put("parameters", 2);
            coded.put("length", 8);
            what.put("coded", coded);
        }
        try {
            return Order.unpack(Msgpack.pack(fields));
        } catch (ProtocolException e) {
            throw new AssertionError(e);
        }
    }

    private static Map<String, Object> fields(int broadcast, Object agents) {
        Map<String, Object> what = new HashMap<>();
        what.put("broadcast", broadcast);
        what.put("shard", 1);
        what.put("version", 2);
        what.put("mode", "install");
        what.put("length", 8);
        what.put("alpha", 0.25);
        what.put("result", 0);
        what.put("agents", agents);
        Map<String, Object> fields = new HashMap<>();
        fields.put("order", 1);
        fields.put("run", "r");
        fields.put("term", 0);
        fields.put("cycle", 0);
        fields.put("deadline", 0.0);
        fields.put("description", "");
        fields.put("forget_cycle", -1);
        fields.put("downloads", Collections.singletonList(what));
        for (String name : new String[] {"executors", "begin", "stop", "forget_broadcasts", "carried", "bases"}) {
            fields.put(name, Collections.emptyList());
        }
        return fields;
    }

    /** Rows of [executor, agent, incarnation] as an order has them. */
    static List<Order.AgentRef> agents(Object rows) {
        try {
            return Order.unpack(Msgpack.pack(fields(5, rows))).downloads.get(0).agents;
        } catch (ProtocolException e) {
            throw new AssertionError(e);
        }
    }

    @Test
    void shouldCountEachPieceOnce() {
        assertTrue(download.arrived(1, 4, true));
        assertFalse(download.arrived(1, 4, true));
        assertTrue(download.arrived(0, 4, false));
        assertEquals(8, download.data().data.length);
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
        assertSame(all, download.data().data);
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

    @Test
    void shouldGiveItsArrayToAnotherOneWhenTheLastUserHasLetGo() {
        byte[] array = download.data().data;
        assertTrue(download.data().retain(), "an agent's conductor");
        download.letGo();
        Download next = new Download(order, order.downloads.get(0));
        assertNotSame(array, next.data().data);
        download.data().release();
        assertSame(array, new Download(order, order.downloads.get(0)).data().data);
    }
}
