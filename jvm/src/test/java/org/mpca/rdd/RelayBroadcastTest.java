package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.mpca.reduce.ChunkPlan;

class RelayBroadcastTest {
    private static final int MOST = ChunkPlan.DEFAULT_BYTES;

    /** Bytes that the busiest owner sends, in broadcasts: it sends each of its pieces to all others. */
    private static double busiest(int length, int owners, int cutFor) {
        int piece = RelayBroadcast.pieceBytes(length, cutFor, MOST);
        long most = 0;
        for (int owner = 0; owner < owners; owner++) {
            long own = 0;
            for (long at = (long) owner * piece; at < length; at += (long) owners * piece) {
                own += Math.min(piece, length - at);
            }
            most = Math.max(most, own);
        }
        return (double) most * (owners - 1) / length;
    }

    @Test
    void shouldLetNoOwnerSendMoreThanTheBroadcast() {
        for (int owners : new int[] {2, 3, 4, 7, 8, 50, 64, 100, 256, 1000, 1024}) {
            int least = owners * ChunkPlan.MIN_BYTES;
            for (int length :
                    new int[] {least, least + 4, least / 2 * 3, 2 * least - 4, 3 * least + 12, 100 << 20, 800 << 20}) {
                if (length >= least) {
                    assertTrue(
                            busiest(length, owners, owners) <= 1.001,
                            "owners=" + owners + " length=" + length + " sends=" + busiest(length, owners, owners));
                }
            }
        }
    }

    @Test
    void shouldStayNearItWhenAnOwnerIsLostAfterTheCut() {
        for (int owners : new int[] {8, 64, 256, 1024}) {
            assertTrue(busiest(8 * owners * ChunkPlan.MIN_BYTES, owners - 1, owners) <= 1.13);
        }
    }

    @Test
    void shouldCutIntoPiecesOfBoundedSize() {
        assertEquals(ChunkPlan.MIN_BYTES, RelayBroadcast.pieceBytes(30_000, 4, MOST));
        assertEquals(ChunkPlan.MIN_BYTES, RelayBroadcast.pieceBytes(4, 1024, MOST));
        assertEquals(32 << 10, RelayBroadcast.pieceBytes(1 << 20, 4, MOST));
        assertEquals(MOST, RelayBroadcast.pieceBytes(200 << 20, 4, MOST));
        assertTrue(RelayBroadcast.pieceBytes(2_000_000_000, 1, MOST) <= MOST);
    }
}
