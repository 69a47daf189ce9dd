package org.mpca.reduce;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.fasterxml.jackson.databind.JsonNode;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.mpca.Golden;

class WeightedSumTest {
    @Test
    void shouldGiveTheBytesThatNumpyGives() {
        for (JsonNode one : Golden.read("wire/sums.json")) {
            byte[] expected = Golden.hex(one.get("sum").asText());
            WeightedSum sum = new WeightedSum(expected.length);
            for (int i = 0; i < one.get("weights").size(); i++) {
                sum.add(
                        Golden.hex(one.get("parts").get(i).asText()),
                        one.get("weights").get(i).asDouble());
            }
            assertArrayEquals(expected, sum.result());
        }
    }

    @Test
    void shouldRoundOncePerProductAndOncePerSum() {
        Random random = new Random(11);
        float[][] parts = new float[5][200];
        double[] weights = {0.2, 1.0 / 3.0, 0.1, 7.0 / 60.0, 0.25};
        WeightedSum sum = new WeightedSum(800);
        float[] expected = new float[200];
        for (int p = 0; p < parts.length; p++) {
            for (int i = 0; i < 200; i++) {
                parts[p][i] = (float) (random.nextGaussian() * Math.pow(10, random.nextInt(20) - 10));
                // Exact product and sum in decimal, each rounded to float64 as the formula says, then to float32.
                double product = new BigDecimal(weights[p])
                        .multiply(new BigDecimal(parts[p][i]))
                        .doubleValue();
                expected[i] = (float)
                        new BigDecimal(expected[i]).add(new BigDecimal(product)).doubleValue();
            }
            sum.add(bytes(parts[p]), weights[p]);
        }
        assertArrayEquals(bytes(expected), sum.result());
    }

    @Test
    void shouldDependOnTheOrderOfPartsOnlyAsItIsGiven() {
        byte[] large = bytes(1e8f);
        byte[] small = bytes(1f);
        byte[] minus = bytes(-1e8f);
        assertArrayEquals(bytes(0f), sum(large, small, minus)); // the small one is lost in the large one
        assertArrayEquals(bytes(1f), sum(large, minus, small));
    }

    @Test
    void shouldAddWhatIsLeftInABufferAndLeaveItsPosition() {
        ByteBuffer block = ByteBuffer.wrap(bytes(9f, 1f, 2f));
        block.position(4);
        WeightedSum sum = new WeightedSum(8);
        sum.add(block, 0.5);
        assertArrayEquals(bytes(0.5f, 1f), sum.result());
        assertEquals(4, block.position());
    }

    @Test
    void shouldAverageTheGoldenAgentsByExecutor() {
        JsonNode golden = Golden.read("histories/averages.json");
        for (JsonNode one : golden.get("cases")) {
            if (one.get("mean").isNull()) {
                continue;
            }
            WeightedSum all = new WeightedSum(12);
            double total = 0;
            for (JsonNode tau : one.get("taus")) {
                total += tau.asDouble();
            }
            for (JsonNode executor : one.get("executors")) {
                double weight = 0;
                List<byte[]> shards = new ArrayList<>();
                List<Double> taus = new ArrayList<>();
                for (JsonNode agent : executor) {
                    JsonNode x = golden.get("agents").get(agent.asInt());
                    shards.add(
                            bytes((float) x.get(0).asDouble(), (float) x.get(1).asDouble(), (float)
                                    x.get(2).asDouble()));
                    taus.add(one.get("taus").get(agent.asInt()).asDouble());
                    weight += one.get("taus").get(agent.asInt()).asDouble();
                }
                all.add(WeightedSum.mean(shards, taus), weight / total);
            }
            ByteBuffer mean = ByteBuffer.wrap(all.result()).order(ByteOrder.LITTLE_ENDIAN);
            for (JsonNode expected : one.get("mean")) {
                assertEquals(expected.asDouble(), mean.getFloat(), 1e-6);
            }
        }
    }

    @Test
    void shouldReturnASingleAgentsShardUnchanged() {
        byte[] shard = bytes(Float.MIN_VALUE, 3f);
        assertSame(shard, WeightedSum.mean(Collections.singletonList(shard), Collections.singletonList(7.0)));
    }

    @Test
    void shouldRefuseWhatCannotBeAveraged() {
        byte[] one = bytes(1f);
        assertThrows(
                IllegalArgumentException.class,
                () -> WeightedSum.mean(Arrays.asList(one, one), Arrays.asList(0.0, 0.0)));
        assertThrows(
                IllegalArgumentException.class,
                () -> WeightedSum.mean(Collections.emptyList(), Collections.emptyList()));
        assertThrows(IllegalArgumentException.class, () -> new WeightedSum(8).add(one, 1.0));
        assertThrows(IllegalArgumentException.class, () -> new WeightedSum(6));
    }

    private static byte[] sum(byte[]... parts) {
        WeightedSum sum = new WeightedSum(parts[0].length);
        for (byte[] part : parts) {
            sum.add(part, 1.0);
        }
        return sum.result();
    }

    private static byte[] bytes(float... values) {
        ByteBuffer bytes = ByteBuffer.allocate(4 * values.length).order(ByteOrder.LITTLE_ENDIAN);
        for (float value : values) {
            bytes.putFloat(value);
        }
        return bytes.array();
    }
}
