package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** What comes in pieces, twice, damaged, or too late. */
class ArrivingSumsTest {
    private static final int ORDER = 5;
    private static final Random RANDOM = new Random(3);

    private final BlockNames names = new BlockNames("run", 1);
    private final ArrivingSums sums = ArrivingSums.open(names);

    @AfterEach
    void close() {
        sums.close();
    }

    private static byte[] some(int length) {
        byte[] data = new byte[length];
        RANDOM.nextBytes(data);
        return data;
    }

    private byte[] sealed(int chunk, byte[] data) {
        byte[] block = Arrays.copyOf(data, data.length + CheckedBlocks.TRAILER_BYTES);
        CheckedBlocks.seal(names.sum(ORDER) + chunk, block);
        return block;
    }

    private Uploads.Sink begin(int chunk) {
        return ArrivingSums.uploads().stream(names.sum(ORDER) + chunk);
    }

    private void stream(int chunk, byte[] block) {
        Uploads.Sink sink = begin(chunk);
        for (int at = 0; at < block.length; ) {
            int length = Math.min(1 + RANDOM.nextInt(50), block.length - at);
            ByteBuffer shown = ByteBuffer.allocateDirect(length);
            shown.put(block, at, length).flip();
            sink.come(shown);
            at += length;
        }
        sink.end();
    }

    private static byte[] read(ArrivingSums.Sum sum, int chunk) {
        ByteBuffer data = sum.get(chunk);
        byte[] read = new byte[data.remaining()];
        data.get(read);
        return read;
    }

    @Test
    void shouldHaveTheChunksThatCame() {
        sums.expect(ORDER, new int[] {400, 100});
        byte[][] sent = {some(400), some(100)};
        stream(1, sealed(1, sent[1]));
        assertNull(sums.of(ORDER).get(0));
        stream(0, sealed(0, sent[0]));
        ArrivingSums.Sum sum = sums.take(ORDER);
        for (int chunk = 0; chunk < sum.chunks(); chunk++) {
            assertFalse(sum.isDamaged(chunk));
            assertEquals(ByteBuffer.wrap(sent[chunk]), ByteBuffer.wrap(read(sum, chunk)));
        }
        assertNull(sums.of(ORDER), "it is taken");
    }

    @Test
    void shouldTellOfDamageUntilAWholeOneIsThere() {
        byte[] data = some(40);
        byte[] longer = sealed(0, some(41));
        byte[] changed = sealed(0, data);
        changed[RANDOM.nextInt(changed.length)] ^= 4;
        for (byte[] bad : new byte[][] {changed, longer, Arrays.copyOf(longer, 43), new byte[0], sealed(1, data)}) {
            sums.expect(ORDER, new int[] {40});
            stream(0, bad);
            assertTrue(sums.of(ORDER).isDamaged(0));
            assertNull(sums.of(ORDER).get(0));
        }
        stream(0, sealed(0, data));
        assertFalse(sums.of(ORDER).isDamaged(0));
        stream(0, changed);
        assertFalse(sums.of(ORDER).isDamaged(0), "a task that runs twice sends it again");
        assertEquals(ByteBuffer.wrap(data), ByteBuffer.wrap(read(sums.of(ORDER), 0)));
    }

    @Test
    void shouldTakeWhatWasFetchedInPlaceOfWhatCameDamaged() {
        sums.expect(ORDER, new int[] {8});
        stream(0, new byte[12]);
        byte[] fetched = some(8);
        assertTrue(sums.of(ORDER).put(0, fetched));
        assertEquals(ByteBuffer.wrap(fetched), ByteBuffer.wrap(read(sums.take(ORDER), 0)));
    }

    /** An array is used again only when nobody reads it and no stream writes into it. */
    @Test
    void shouldNotChangeWhatWasTakenUntilItIsFreed() {
        sums.expect(ORDER, new int[] {64});
        byte[] data = some(64);
        Uploads.Sink late = begin(0);
        late.come(ByteBuffer.wrap(sealed(0, some(64)), 0, 10));
        stream(0, sealed(0, data));
        ArrivingSums.Sum taken = sums.take(ORDER);
        late.come(ByteBuffer.wrap(some(58)));
        late.end();
        for (int round = 0; round < 5; round++) {
            sums.expect(ORDER, new int[] {64});
            stream(0, sealed(0, some(64)));
            sums.take(ORDER).free();
        }
        assertEquals(ByteBuffer.wrap(data), ByteBuffer.wrap(read(taken, 0)));
        byte[] array = taken.get(0).array();
        taken.free();
        sums.expect(ORDER, new int[] {64});
        stream(0, sealed(0, some(64)));
        assertEquals(array, sums.of(ORDER).get(0).array(), "and is used again");
    }

    /** Shards are of two lengths, and so are their chunks. */
    @Test
    void shouldUseOneArrayForChunksOfTwoLengths() {
        byte[] array = null;
        for (int length : new int[] {40_016, 40_000, 40_016}) {
            sums.expect(ORDER, new int[] {length});
            byte[] data = some(length);
            stream(0, sealed(0, data));
            ArrivingSums.Sum sum = sums.take(ORDER);
            assertEquals(ByteBuffer.wrap(data), ByteBuffer.wrap(read(sum, 0)));
            assertTrue(array == null || array == sum.get(0).array());
            array = sum.get(0).array();
            sum.free();
        }
    }

    @Test
    void shouldKeepNoArrayOfFloat32OnceSumsAreEncoded() {
        byte[] array = null;
        for (boolean again : new boolean[] {false, true, false, true, true}) {
            sums.expect(ORDER, new int[] {4000});
            stream(0, sealed(0, some(4000)));
            ArrivingSums.Sum sum = sums.take(ORDER);
            assertEquals(again, array == sum.get(0).array());
            array = sum.get(0).array();
            sum.free();
            if (again) {
                sums.areEncoded(); // the second time it changes nothing
            }
        }
    }

    @Test
    void shouldPassOverWhatNobodyExpects() {
        sums.expect(ORDER, new int[] {8});
        stream(1, sealed(1, some(8))); // no such chunk
        sums.take(ORDER);
        stream(0, sealed(0, some(8))); // no longer
        sums.close();
        stream(0, sealed(0, some(8))); // of a run that is over
        assertNull(sums.of(ORDER));
        assertNotNull(ArrivingSums.uploads().stream(new BlockNames("other", 0).sum(1) + 0));
        assertNull(ArrivingSums.uploads().stream(names.pieces(1) + 0), "Spark stores it");
        assertNull(ArrivingSums.uploads().stream("shuffle_1_2_3"));
    }
}
