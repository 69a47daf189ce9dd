package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.zip.CRC32;
import org.junit.jupiter.api.Test;
import org.mpca.reduce.ChunkPlan;

class CheckedBlocksTest {
    private static final String NAME = "mpca_r_0_y_3_4_5";

    private static byte[] sealed(byte[] data) {
        return CheckedBlocks.seal(NAME, Arrays.copyOf(data, data.length + CheckedBlocks.TRAILER_BYTES))
                .array();
    }

    @Test
    void shouldOpenWhatItSealed() {
        byte[] data = {1, 2, 3, 4, 5, 6, 7, 8};
        ByteBuffer opened = CheckedBlocks.open(NAME, ByteBuffer.wrap(sealed(data)));
        byte[] got = new byte[opened.remaining()];
        opened.get(got);
        assertArrayEquals(data, got);
    }

    @Test
    void shouldBeTheCrcOfNameAndBytes() {
        byte[] data = {9, 8, 7, 6};
        CRC32 crc = new CRC32();
        crc.update((NAME + new String(data, StandardCharsets.ISO_8859_1)).getBytes(StandardCharsets.ISO_8859_1));
        assertEquals((int) crc.getValue(), ByteBuffer.wrap(sealed(data)).getInt(4));
        assertEquals(
                (int) crc.getValue(),
                ByteBuffer.wrap(CheckedBlocks.checksumOf(NAME, data)).getInt());
    }

    @Test
    void shouldRefuseEachFlippedBit() {
        byte[] block = sealed(new byte[] {0, 0, -128, 63, 1, 2, 3, 4});
        for (int bit = 0; bit < 8 * block.length; bit++) {
            byte[] damaged = block.clone();
            damaged[bit / 8] ^= 1 << bit % 8;
            assertNull(CheckedBlocks.open(NAME, ByteBuffer.wrap(damaged)), "bit " + bit);
        }
    }

    @Test
    void shouldRefuseAnotherBlockOfTheSameLength() {
        assertNull(CheckedBlocks.open("mpca_r_0_y_3_4_6", ByteBuffer.wrap(sealed(new byte[8]))));
    }

    @Test
    void shouldRefuseWhatIsTooShort() {
        assertNull(CheckedBlocks.open(NAME, ByteBuffer.wrap(new byte[3])));
        assertNull(CheckedBlocks.open(NAME, ByteBuffer.wrap(new byte[0])));
        assertNotNull(CheckedBlocks.open(NAME, ByteBuffer.wrap(sealed(new byte[0]))));
    }

    @Test
    void shouldLookAtTheBufferFromItsPositionOn() {
        ByteBuffer frame = ByteBuffer.allocate(30);
        frame.position(10);
        frame.put(sealed(new byte[] {5, 5, 5, 5}));
        frame.flip().position(10);
        assertEquals(4, CheckedBlocks.open(NAME, frame).remaining());
        assertEquals(10, frame.position());
    }

    @Test
    void shouldNameTheExecutorThatSumsAChunk() {
        ChunkPlan grid = ChunkPlan.of(1 << 20, 3);
        StringBuilder owners = new StringBuilder();
        for (int chunk = 0; chunk < grid.chunks(); chunk++) {
            owners.append(RangesStep.owner(grid, Arrays.asList("a", "b"), chunk));
        }
        int half = grid.chunks() / 2;
        assertEquals(
                String.join("", java.util.Collections.nCopies(half, "a"))
                        + String.join("", java.util.Collections.nCopies(grid.chunks() - half, "b")),
                owners.toString());
    }
}
