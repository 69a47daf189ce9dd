package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.mpca.reduce.KeptArray;
import org.mpca.reduce.SpareArrays;

class HeldBasesTest {
    private final List<HeldBases.Name> dropped = new ArrayList<>();
    private final HeldBases bases = new HeldBases((name, vector) -> {
        dropped.add(name);
        vector.release();
    });

    private static HeldBases.Name name(int shard, long version) {
        return new HeldBases.Name(shard, version, 100 + version);
    }

    /** Takes in a base whose maker lets go of it. */
    private boolean hold(HeldBases.Name name) {
        KeptArray vector = KeptArray.of(new byte[4]);
        boolean held = bases.hold(name, vector);
        vector.release();
        return held;
    }

    @Test
    void shouldHoldTheTwoNewestVersionsOfEachShard() {
        for (long version : new long[] {1, 2, 3}) {
            assertTrue(hold(name(0, version)));
        }
        assertTrue(hold(name(1, 1)));
        assertEquals(Collections.singletonList(name(0, 1)), dropped);
        assertFalse(bases.holds(name(0, 1)));
        assertTrue(bases.holds(name(0, 2)) && bases.holds(name(0, 3)) && bases.holds(name(1, 1)));
        assertTrue(bases.holdsAny(0) && bases.holdsAny(1));
        assertFalse(bases.holdsAny(2));
    }

    @Test
    void shouldTakeInAnOlderOneThatIsStillOneOfTwo() {
        hold(name(0, 5));
        assertTrue(hold(name(0, 3)));
        assertTrue(hold(name(0, 4)), "it takes the place of 3");
        assertEquals(Collections.singletonList(name(0, 3)), dropped);
        assertFalse(hold(name(0, 2)), "older than two others");
        assertNull(bases.get(name(0, 2)));
    }

    @Test
    void shouldHoldTheFirstOfTwoWithOneName() {
        KeptArray first = KeptArray.of(new byte[4]);
        bases.hold(name(0, 1), first);
        assertTrue(hold(name(0, 1)));
        assertSame(first, bases.get(name(0, 1)));
        assertTrue(dropped.isEmpty());
    }

    @Test
    void shouldNotTakeInAnArrayOfWhichTheLastUserHasLetGo() {
        KeptArray gone = KeptArray.of(new byte[4]);
        gone.release();
        assertFalse(bases.hold(name(0, 1), gone));
        assertFalse(bases.holdsAny(0));
    }

    @Test
    void shouldNameBytesByTheirChecksumAsPythonDoes() {
        HeldBases.Name name = HeldBases.Name.of(2, 7, new byte[] {1, 2, 3, 4});
        assertEquals(new HeldBases.Name(2, 7, 0xB63CFBCDL), name); // zlib.crc32(bytes([1, 2, 3, 4]))
        assertEquals(new HeldBases.Name(2, 7, 0xB63CFBCDL).hashCode(), name.hashCode());
        for (HeldBases.Name other : Arrays.asList(
                new HeldBases.Name(1, 7, 0xB63CFBCDL),
                new HeldBases.Name(2, 8, 0xB63CFBCDL),
                new HeldBases.Name(2, 7, 0xB63CFBCCL))) {
            assertNotEquals(other, name);
        }
    }

    /** An array goes back to the spare ones once, when no base and nobody else uses it: it is never given out while in use. */
    @Test
    void shouldLetGoOfEachArrayOnce() {
        Random random = new Random(11);
        for (int round = 0; round < 200; round++) {
            SpareArrays spare = new SpareArrays(1000);
            HeldBases held = new HeldBases((name, vector) -> vector.release());
            List<KeptArray> users = new ArrayList<>();
            List<KeptArray> all = new ArrayList<>();
            for (int version = 0; version < 20; version++) {
                KeptArray vector = KeptArray.take(spare, 8);
                Arrays.fill(vector.data, (byte) version);
                all.add(vector);
                boolean in = held.hold(name(0, version + random.nextInt(4)), vector);
                if (random.nextBoolean()) {
                    vector.release();
                } else {
                    users.add(vector);
                }
                KeptArray found = held.get(name(0, random.nextInt(version + 4)));
                if (found != null) {
                    users.add(found);
                }
                assertTrue(in || version > 0);
                if (random.nextInt(8) == 0) {
                    held.clear();
                    assertFalse(held.holdsAny(0));
                }
                for (KeptArray user : users) {
                    byte first = user.data[0];
                    assertEquals(all.indexOf(user), first, "overwritten while in use");
                }
            }
            held.clear();
            held.clear();
            users.forEach(KeptArray::release);
            List<byte[]> given = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                byte[] one = spare.take(8);
                assertTrue(given.stream().noneMatch(other -> other == one), "given back twice");
                given.add(one);
            }
            long known = all.stream()
                    .map(one -> one.data)
                    .distinct()
                    .filter(data -> given.stream().anyMatch(one -> one == data))
                    .count();
            assertEquals(all.stream().map(one -> one.data).distinct().count(), known, "never given back");
        }
    }

    @Test
    void shouldKeepWhatIsReadWhileItIsDropped() {
        SpareArrays spare = new SpareArrays(3);
        HeldBases held = new HeldBases((name, vector) -> vector.release());
        KeptArray vector = KeptArray.take(spare, 8);
        byte[] data = vector.data;
        held.hold(name(0, 1), vector);
        vector.release();
        KeptArray read = held.get(name(0, 1));
        assertNotNull(read);
        held.clear();
        assertFalse(spare.take(8) == data, "it is being read");
        read.release();
        assertTrue(spare.take(8) == data);
    }
}
