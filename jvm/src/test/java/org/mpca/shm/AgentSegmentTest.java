package org.mpca.shm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.stream.IntStream;
import java.util.zip.CRC32;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.mpca.Golden;
import org.mpca.reduce.SpareArrays;
import org.mpca.shm.SlotDescriptor.Header;
import org.mpca.wire.ProtocolException;

class AgentSegmentTest {
    private static final SpareArrays SPARE = new SpareArrays(2);

    private static final int ELEMENTS = 150_001; // more than two steps of the copy, and a rest
    private static final List<Long> BOUNDS = Arrays.asList(0L, (long) ELEMENTS, (long) ELEMENTS + 2);
    private static final List<Long> SLOTS = Arrays.asList(0L, 602_112L, 1_204_224L);
    private static final long BYTES = 1_208_320L;

    @TempDir
    File folder;

    @Test
    void shouldReadAndWriteTheGoldenHeaders() throws ProtocolException {
        for (JsonNode one : Golden.read("wire/slots.json").get("good")) {
            byte[] bytes = Golden.hex(one.get("bytes").asText());
            Header header = Header.unpack(ByteBuffer.wrap(bytes));
            JsonNode fields = one.get("fields");
            assertEquals(fields.get("shard").asInt(), header.shard);
            assertEquals(fields.get("seq").asLong(), header.seq);
            assertEquals(fields.get("version").asLong(), header.version);
            assertEquals(fields.get("updates").asLong(), header.updates);
            assertEquals(fields.get("length").asLong(), header.length);
            assertEquals(fields.get("mode").asInt(), header.mode);
            assertArrayEquals(bytes, header.pack());
        }
    }

    @Test
    void shouldRefuseForeignHeaders() {
        for (JsonNode one : Golden.read("wire/slots.json").get("bad")) {
            byte[] bytes = Golden.hex(one.get("bytes").asText());
            assertThrows(
                    ProtocolException.class,
                    () -> Header.unpack(ByteBuffer.wrap(bytes)),
                    one.get("why").asText());
        }
    }

    @Test
    void shouldReadASnapshotWithItsChecksum() throws IOException {
        byte[] state = floats(ELEMENTS, 7);
        put(0, new Header(0, 4, 41, 9, state.length, SlotDescriptor.SNAPSHOT), state);
        try (AgentSegment segment = open()) {
            AgentSegment.Read read = segment.readSnapshot(0, 41, SPARE);
            assertArrayEquals(state, read.data.data);
            CRC32 crc = new CRC32();
            crc.update(state);
            assertEquals(crc.getValue(), read.crc);
            assertTrue(read.finite);
        }
    }

    @Test
    void shouldMeasureHowFarASnapshotIsFromTheNewestArrival() throws IOException {
        byte[] state = floats(ELEMENTS, 7);
        byte[] initial = floats(ELEMENTS, 5);
        put(0, new Header(0, 4, 41, 9, state.length, SlotDescriptor.SNAPSHOT), state);
        put(602_112, new Header(0, 0, 0, 0, initial.length, SlotDescriptor.INSTALL), initial);
        try (AgentSegment segment = open()) {
            assertEquals(
                    distance(state, initial),
                    segment.readSnapshot(0, 41, SPARE).distance,
                    1e-9 * distance(state, initial));
            byte[] joint = floats(ELEMENTS, 11);
            segment.writeArrival(0, 1, "install", joint);
            assertEquals(
                    distance(state, joint), segment.readSnapshot(0, 41, SPARE).distance, 1e-9 * distance(state, joint));
            segment.writeArrival(0, 1, "replace", state);
            assertEquals(0.0, segment.readSnapshot(0, 41, SPARE).distance);
        }
    }

    @Test
    void shouldMeasureEveryElementOfWhateverSize() throws IOException {
        for (int at : new int[] {0, 65_535, 65_536, ELEMENTS - 2, ELEMENTS - 1}) {
            for (float moved : new float[] {-0.5f, 1e30f, Float.MAX_VALUE}) {
                byte[] state = new byte[4 * ELEMENTS];
                ByteBuffer.wrap(state).order(ByteOrder.LITTLE_ENDIAN).putFloat(4 * at, moved);
                put(0, new Header(0, 4, 41, 9, state.length, SlotDescriptor.SNAPSHOT), state);
                try (AgentSegment segment = open()) {
                    assertEquals(
                            Math.abs((double) moved),
                            segment.readSnapshot(0, 41, SPARE).distance,
                            1e-12 * Math.abs((double) moved));
                }
            }
        }
    }

    @Test
    void shouldHaveNoDistanceOfWhatIsNotFinite() throws IOException {
        byte[] state = floats(ELEMENTS, 7);
        ByteBuffer.wrap(state).order(ByteOrder.LITTLE_ENDIAN).putFloat(4, Float.NEGATIVE_INFINITY);
        put(0, new Header(0, 4, 41, 9, state.length, SlotDescriptor.SNAPSHOT), state);
        try (AgentSegment segment = open()) {
            assertTrue(Double.isNaN(segment.readSnapshot(0, 41, SPARE).distance));
        }
    }

    @Test
    void shouldSeeASingleElementThatIsNotFinite() throws IOException {
        for (float wrong : new float[] {Float.NaN, Float.POSITIVE_INFINITY, Float.NEGATIVE_INFINITY}) {
            for (int at : new int[] {0, 65_536, ELEMENTS - 1}) {
                byte[] state = floats(ELEMENTS, 7);
                ByteBuffer.wrap(state).order(ByteOrder.LITTLE_ENDIAN).putFloat(4 * at, wrong);
                put(0, new Header(0, 4, 41, 9, state.length, SlotDescriptor.SNAPSHOT), state);
                try (AgentSegment segment = open()) {
                    assertFalse(segment.readSnapshot(0, 41, SPARE).finite, wrong + " at " + at);
                }
            }
        }
    }

    @Test
    void shouldTakeTheLargestFloatForFinite() throws IOException {
        byte[] state = new byte[8];
        ByteBuffer.wrap(state)
                .order(ByteOrder.LITTLE_ENDIAN)
                .putFloat(Float.MAX_VALUE)
                .putFloat(-Float.MIN_VALUE);
        put(0, new Header(1, 2, 5, 1, 8, SlotDescriptor.SNAPSHOT), state);
        try (AgentSegment segment = open()) {
            assertTrue(segment.readSnapshot(1, 5, SPARE).finite);
        }
    }

    @Test
    void shouldRefuseASnapshotThatIsNotTheOneAskedFor() throws IOException {
        byte[] state = new byte[8];
        Header[] wrong = {
            new Header(1, 2, 6, 1, 8, SlotDescriptor.SNAPSHOT), // another cycle
            new Header(0, 2, 5, 1, 8, SlotDescriptor.SNAPSHOT), // another shard
            new Header(1, 3, 5, 1, 8, SlotDescriptor.SNAPSHOT), // being written
            new Header(1, 2, 5, 1, 4, SlotDescriptor.SNAPSHOT), // too short
            new Header(1, 2, 5, 1, 8, SlotDescriptor.INSTALL), // an arrival
        };
        for (Header header : wrong) {
            put(0, header, state);
            try (AgentSegment segment = open()) {
                assertThrows(ProtocolException.class, () -> segment.readSnapshot(1, 5, SPARE));
            }
        }
    }

    @Test
    void shouldWriteAnArrivalWithAnEvenAndGrowingSeq() throws IOException {
        byte[] state = floats(ELEMENTS, 3);
        try (AgentSegment segment = open()) {
            for (int version = 1; version <= 3; version++) {
                segment.writeArrival(0, version, version == 3 ? "replace" : "install", state);
                Header header = Header.unpack(ByteBuffer.wrap(get(602_112, 64)));
                assertEquals(2L * version, header.seq);
                assertEquals(version, header.version);
                assertEquals(state.length, header.length);
                assertEquals(version == 3 ? SlotDescriptor.REPLACE : SlotDescriptor.INSTALL, header.mode);
                assertArrayEquals(state, get(602_112 + 64, state.length));
            }
            assertEquals(0, get(1_204_224, 1)[0]); // the neighbour's slot was not touched
        }
    }

    @Test
    void shouldRefuseAnArrivalOfAnotherSize() throws IOException {
        try (AgentSegment segment = open()) {
            assertThrows(IllegalArgumentException.class, () -> segment.writeArrival(1, 1, "install", new byte[12]));
            assertThrows(IllegalArgumentException.class, () -> segment.writeArrival(2, 1, "install", new byte[8]));
        }
    }

    @Test
    void shouldRejectShortSegment() throws IOException {
        put(0, new Header(0, 0, 0, 0, 0, 0), new byte[0]);
        assertThrows(ProtocolException.class, () -> AgentSegment.open(file().getPath(), BYTES + 4096, SLOTS, BOUNDS));
    }

    @Test
    void shouldRejectSlotsThatDoNotHoldTheirShard() {
        assertThrows(
                ProtocolException.class,
                () -> AgentSegment.open(file().getPath(), BYTES, Arrays.asList(0L, 602_112L, BYTES - 70), BOUNDS));
        assertThrows(
                ProtocolException.class,
                () -> AgentSegment.open(file().getPath(), BYTES, Arrays.asList(0L, 602_112L), BOUNDS));
        assertThrows(
                ProtocolException.class,
                () -> AgentSegment.open(file().getPath(), BYTES, SLOTS, Arrays.asList(0L, 9L, 8L)));
    }

    private File file() {
        return new File(folder, "segment");
    }

    private AgentSegment open() throws IOException {
        put(BYTES - 1, new byte[1]);
        return AgentSegment.open(file().getPath(), BYTES, SLOTS, BOUNDS);
    }

    private void put(long slot, Header header, byte[] data) throws IOException {
        put(slot, header.pack());
        put(slot + SlotDescriptor.HEADER_BYTES, data);
    }

    private void put(long at, byte[] data) throws IOException {
        try (RandomAccessFile file = new RandomAccessFile(file(), "rw")) {
            file.seek(at);
            file.write(data);
        }
    }

    private byte[] get(long at, int size) throws IOException {
        byte[] data = new byte[size];
        try (RandomAccessFile file = new RandomAccessFile(file(), "r")) {
            file.seek(at);
            file.readFully(data);
        }
        return data;
    }

    private static double distance(byte[] one, byte[] other) {
        ByteBuffer a = ByteBuffer.wrap(one).order(ByteOrder.LITTLE_ENDIAN);
        ByteBuffer b = ByteBuffer.wrap(other).order(ByteOrder.LITTLE_ENDIAN);
        return Math.sqrt(IntStream.range(0, one.length / 4)
                .mapToDouble(i -> Math.pow((double) a.getFloat(4 * i) - b.getFloat(4 * i), 2))
                .sum());
    }

    private static byte[] floats(int elements, long seed) {
        ByteBuffer bytes = ByteBuffer.allocate(4 * elements).order(ByteOrder.LITTLE_ENDIAN);
        Random random = new Random(seed);
        while (bytes.hasRemaining()) {
            bytes.putFloat((float) random.nextGaussian());
        }
        return bytes.array();
    }
}
