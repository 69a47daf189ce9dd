package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.mpca.agent.YieldKey;
import org.mpca.reduce.ChunkPlan;
import org.mpca.reduce.Codec;
import org.mpca.reduce.EncodedPlan;
import org.mpca.reduce.KeptArray;
import org.mpca.wire.Msgpack;
import org.mpca.wire.Order;
import org.mpca.wire.ProtocolException;

class CodingTest {
    private static final int ELEMENTS = 600;
    private static final int LENGTH = ELEMENTS * Float.BYTES;
    private static final EncodedPlan PLAN = EncodedPlan.whole(Codec.INT4, LENGTH, ELEMENTS - 9);

    private final Coding coding = new Coding(0);
    private final byte[] base = vector(1);
    private final HeldBases.Name name = HeldBases.Name.of(0, 5, base);

    CodingTest() {
        coding.bases.hold(name, KeptArray.of(base));
    }

    private static byte[] vector(int seed) {
        Random random = new Random(seed);
        ByteBuffer bytes = ByteBuffer.allocate(LENGTH).order(ByteOrder.LITTLE_ENDIAN);
        for (int i = 0; i < ELEMENTS; i++) {
            bytes.putFloat((float) random.nextGaussian());
        }
        return bytes.array();
    }

    private static Map<String, Object> map(Object... namesAndValues) {
        Map<String, Object> map = new HashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            map.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return map;
    }

    /** An order that freezes a cycle of shard 0 against the base. `after`: of executor "1"; null: no rest is carried. */
    private Order freeze(int cycle, String rests, Integer after) {
        Map<String, Object> coded = map("codec", "int4", "version", name.version, "crc", name.crc);
        coded.putAll(map("parameters", ELEMENTS - 9, "length", LENGTH));
        Map<String, Object> freeze = map("cycle", cycle, "shard", 0, "agents", new ArrayList<>(), "weights", "updates");
        freeze.putAll(map("coded", coded, "rests", rests));
        Map<String, Object> fields = map("order", 1, "run", "r", "term", 0, "cycle", cycle, "deadline", 0.0);
        fields.putAll(map("description", "", "forget_cycle", -1, "freeze", freeze));
        for (String none : new String[] {"executors", "begin", "stop", "forget_broadcasts", "downloads", "bases"}) {
            fields.put(none, Collections.emptyList());
        }
        List<Object> rows = new ArrayList<>();
        if (after != null) {
            rows.add(Arrays.asList("0", 77));
            rows.add(Arrays.asList("1", after));
        }
        fields.put("carried", rows);
        try {
            return Order.unpack(Msgpack.pack(fields));
        } catch (ProtocolException e) {
            throw new AssertionError(e);
        }
    }

    private byte[] part(Order order, byte[] mean, YieldKey... entering) {
        KeptArray made = coding.part(order, KeptArray.of(mean), PLAN, Arrays.asList(entering), "1");
        byte[] bytes = made.data.clone();
        made.release();
        return bytes;
    }

    private static YieldKey key(int agent, int incarnation) {
        return new YieldKey("r", 0, 3, 0, agent, incarnation);
    }

    private static Order.AgentRef agent(int agent, int incarnation) {
        return DownloadTest.agents(Collections.singletonList(Arrays.asList("1", agent, incarnation)))
                .get(0);
    }

    private byte[] encoded(byte[] mean, float[] before, float[] rest) {
        byte[] data = new byte[PLAN.length()];
        PLAN.encode(mean, base, before, rest, data);
        return data;
    }

    // ---- parts

    @Test
    void shouldEncodeADifferenceAndLetGoOfTheMeanAndTheBase() {
        KeptArray mean = KeptArray.of(vector(2));
        KeptArray made = coding.part(freeze(3, "dropped", null), mean, PLAN, Collections.emptyList(), "1");
        assertArrayEquals(encoded(vector(2), null, null), made.data);
        assertThrows(IllegalStateException.class, mean::release, "it was let go");
        assertFalse(coding.bases.get(name) == null);
    }

    @Test
    void shouldAddWhatTheCarriedCycleLeftHoweverOftenItIsMadeAgain() {
        float[] first = new float[ELEMENTS];
        assertArrayEquals(encoded(vector(2), null, first), part(freeze(3, "carried", null), vector(2)));
        float[] second = new float[ELEMENTS];
        byte[] expected = encoded(vector(3), first, second);
        for (int round = 0; round < 16; round++) {
            assertArrayEquals(expected, part(freeze(6, "carried", 3), vector(3)));
        }
        assertArrayEquals(encoded(vector(4), first, null), part(freeze(9, "carried", 3), vector(4)), "6 was given up");
        assertArrayEquals(encoded(vector(5), null, null), part(freeze(12, "carried", 6), vector(5)), "it left nothing");
    }

    @Test
    void shouldRefuseADifferenceThatIsNotFiniteAndKeepTheRestThatThereWas() {
        float[] first = new float[ELEMENTS];
        encoded(vector(2), null, first);
        part(freeze(3, "carried", null), vector(2));
        byte[] bad = vector(3);
        ByteBuffer.wrap(bad).order(ByteOrder.LITTLE_ENDIAN).putFloat(0, Float.NaN);
        KeptArray mean = KeptArray.of(bad);
        assertThrows(
                IllegalArgumentException.class,
                () -> coding.part(freeze(6, "carried", 3), mean, PLAN, Collections.emptyList(), "1"));
        assertThrows(IllegalStateException.class, mean::release, "it was let go");
        assertArrayEquals(encoded(vector(4), first, null), part(freeze(6, "carried", 3), vector(4)));
    }

    @Test
    void shouldNotEncodeAgainstABaseThatIsGone() {
        coding.clear();
        assertThrows(IllegalStateException.class, () -> part(freeze(3, "dropped", null), vector(2)));
    }

    // ---- what agents get back

    @Test
    void shouldHandItsRestToEachAgentOfThePart() {
        float[] rest = new float[ELEMENTS];
        encoded(vector(2), null, rest);
        part(freeze(3, "answered", null), vector(2), key(0, 0), key(1, 4));
        assertArrayEquals(rest, coding.answer(agent(0, 0), 0));
        assertSame(coding.answer(agent(0, 0), 0), coding.answer(agent(1, 4), 0), "one array for all");
        assertNull(coding.answer(agent(2, 0), 0));
        assertNull(coding.answer(agent(0, 0), 1), "of another shard");
        coding.replaced(agent(0, 0), 0);
        assertNull(coding.answer(agent(0, 0), 0));
        assertNotNull(coding.answer(agent(1, 4), 0));
        coding.clear();
        assertNull(coding.answer(agent(1, 4), 0));
    }

    @Test
    void shouldHoldNothingForAnAgentsEarlierProcesses() {
        for (int incarnation = 0; incarnation < 5; incarnation++) {
            part(freeze(3 + incarnation, "answered", null), vector(incarnation), key(0, incarnation));
        }
        assertNotNull(coding.answer(agent(0, 4), 0));
        for (int incarnation = 0; incarnation < 4; incarnation++) {
            assertNull(coding.answer(agent(0, incarnation), 0));
        }
        coding.replaced(agent(0, 5), 0); // a new one, before its first snapshot
        assertNull(coding.answer(agent(0, 4), 0));
    }

    @Test
    void shouldHandNothingToAnAgentWhoseNewestSnapshotTravelsAsFloat32() {
        part(freeze(3, "answered", null), vector(2), key(0, 0), key(1, 4));
        coding.plain(0, Collections.singletonList(key(0, 0)));
        assertNull(coding.answer(agent(0, 0), 0));
        assertNotNull(coding.answer(agent(1, 4), 0));
    }

    // ---- broadcasts

    @Test
    void shouldDecodeABroadcastAndHoldWhatComesOut() {
        byte[] data = encoded(vector(2), null, null);
        byte[] result = new byte[LENGTH];
        PLAN.decode(data, base, result);
        HeldBases.Name newer = HeldBases.Name.of(0, 6, result);
        KeptArray vector = coding.decoded(freeze(3, "dropped", null).freeze.coded, data, newer, true);
        assertArrayEquals(result, vector.data);
        assertSame(vector, coding.bases.get(newer));
        assertTrue(coding.bases.holds(name));
    }

    @Test
    void shouldHoldNothingOfWhatAgentsJoinAt() {
        byte[] data = encoded(vector(2), null, null);
        byte[] result = new byte[LENGTH];
        PLAN.decode(data, base, result);
        HeldBases.Name joint = HeldBases.Name.of(0, 6, result);
        KeptArray vector = coding.decoded(freeze(3, "dropped", null).freeze.coded, data, joint, false);
        assertArrayEquals(result, vector.data);
        assertFalse(coding.bases.holds(joint));
        assertTrue(coding.bases.holds(name));
    }

    @Test
    void shouldDecodeNothingWithoutTheBase() {
        Order.Coded coded = freeze(3, "dropped", null).freeze.coded;
        byte[] data = encoded(vector(2), null, null);
        coding.clear();
        assertNull(coding.decoded(coded, data, new HeldBases.Name(0, 6, 9), true));
        assertFalse(coding.bases.holdsAny(0));
    }

    @Test
    void shouldNotHoldWhatComesOutWithOtherBytesThanTheDrivers() {
        HeldBases.Name newer = new HeldBases.Name(0, 6, 9);
        byte[] data = encoded(vector(2), null, null);
        assertNull(coding.decoded(freeze(3, "dropped", null).freeze.coded, data, newer, true), "it is fetched in full");
        assertFalse(coding.bases.holds(newer));
    }

    // ---- sums

    @Test
    void shouldTakeSumsOfOtherChunksForAnotherCut() {
        List<String> all = Arrays.asList("1", "2", "3", "4");
        int length = 100 << 10;
        ChunkPlan four = ChunkPlan.of(length, 4, 16 << 10);
        ChunkPlan two = ChunkPlan.of(length, 2, 16 << 10); // frozen before two of them had joined
        assertEquals(four.chunks(), two.chunks());
        assertFalse(Arrays.equals(four.edges(), two.edges()));
        assertFalse(RangesStep.cut(all, four).equals(RangesStep.cut(all, two)));
        assertEquals(
                RangesStep.cut(all, four), RangesStep.cut(new ArrayList<>(all), ChunkPlan.of(length, 4, 16 << 10)));
        assertFalse(RangesStep.cut(all, four).equals(RangesStep.cut(all.subList(0, 3), four)));
    }
}
