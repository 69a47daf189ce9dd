package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;
import org.junit.jupiter.api.Test;
import org.mpca.agent.Arrival;
import org.mpca.agent.Sent;
import org.mpca.wire.Msgpack;
import org.mpca.wire.ProtocolException;

class ExchangesTest {
    private static final byte[] DATA = {0, 0, -128, 63};

    private final World world = new World();
    private final Exchanges exchanges = new Exchanges("7", world);

    /** Everything happens at once, but answers, which the test gives. */
    private static final class World implements Exchanges.Port {
        final List<String> done = new ArrayList<>();
        final List<Map<?, ?>> questions = new ArrayList<>();
        BiConsumer<byte[], Throwable> answer;
        BiConsumer<byte[], Throwable> fetched;
        Runnable later;
        Arrival offered;

        List<String> take() {
            List<String> taken = new ArrayList<>(done);
            done.clear();
            return taken;
        }

        @Override
        public void execute(Runnable command) {
            command.run();
        }

        @Override
        public void later(long millis, Runnable command) {
            done.add("later " + millis);
            later = command;
        }

        @Override
        public void put(String block, byte[] data) {
            done.add("put " + block);
        }

        @Override
        public void remove(String block, int length) {
            done.add("remove " + block);
        }

        @Override
        public void ask(String run, byte[] question, BiConsumer<byte[], Throwable> then) {
            Map<?, ?> fields = unpack(question);
            questions.add(fields);
            done.add("ask " + run + " " + fields.get("number"));
            answer = then;
        }

        @Override
        public void tell(String run, byte[] word) {
            Map<?, ?> fields = unpack(word);
            done.add("tell " + run + " " + fields.get("word") + " " + fields.get("number"));
        }

        @Override
        public void fetch(Peer from, String block, int length, BiConsumer<byte[], Throwable> then) {
            done.add("fetch " + block + " of " + from);
            fetched = then;
        }

        @Override
        public boolean offer(String run, int agent, int incarnation, Arrival arrival) {
            done.add("offer " + run + " " + agent + "/" + incarnation);
            offered = arrival;
            return true;
        }

        @Override
        public double onDriver(double seconds) {
            return seconds + 1000;
        }

        private static Map<?, ?> unpack(byte[] packed) {
            try {
                return (Map<?, ?>) Msgpack.unpack(packed);
            } catch (ProtocolException e) {
                throw new AssertionError(e);
            }
        }
    }

    private void expect(String... words) {
        assertEquals(Arrays.asList(words), world.take());
    }

    private void asks(int number) {
        exchanges.enter("run", 2);
        exchanges.asks("run", 3, 1, new Sent(number, 2, 130, 14, 77, true, 86.5, DATA));
    }

    private static byte[] reply() {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("block", "answer");
        fields.put("host", "h");
        fields.put("port", 9);
        fields.put("length", 4);
        fields.put("version", 15L);
        fields.put("mode", "install");
        fields.put("share", 0.25);
        return Msgpack.pack(fields);
    }

    @Test
    void shouldAskAndHandTheAnswerOver() {
        asks(1);
        expect("put mpca_run_2_x_3_1_1_", "ask run 1");
        Map<String, Object> expected = new LinkedHashMap<>();
        Object[] fields = {
            "block",
            "mpca_run_2_x_3_1_1_",
            "executor",
            "7",
            "agent",
            3L,
            "incarnation",
            1L,
            "number",
            1L,
            "shard",
            2L,
            "updates",
            130L,
            "version",
            14L,
            "length",
            4L,
            "crc",
            77L,
            "finite",
            true,
            "start",
            1086.5
        };
        for (int i = 0; i < fields.length; i += 2) {
            expected.put((String) fields[i], fields[i + 1]);
        }
        assertEquals(expected, world.questions.get(0));
        world.answer.accept(reply(), null);
        expect("fetch answer of executor driver at h:9");
        world.fetched.accept(DATA, null);
        expect("remove mpca_run_2_x_3_1_1_", "tell run done 1", "offer run 3/1");
        Arrival arrival = world.offered;
        assertEquals(
                "2 15 install 0.25", arrival.shard + " " + arrival.version + " " + arrival.mode + " " + arrival.alpha);
        assertArrayEquals(DATA, arrival.data);
        assertTrue(arrival.answer);
        exchanges.ended("run", 3, 1);
        expect();
    }

    @Test
    void shouldAskAgainAfterAnyFailure() {
        asks(1);
        world.take();
        world.answer.accept(null, new IOException("no answer"));
        expect("later 500");
        world.later.run();
        expect("ask run 1");
        world.answer.accept(ExchangeServer.refusal("executor 7 is gone", true), null);
        expect("later 500");
        world.later.run();
        world.answer.accept(reply(), null);
        world.take();
        world.fetched.accept(null, new CheckedBlocks.Damaged("twice"));
        expect("later 500");
        world.later.run();
        world.answer.accept(reply(), null);
        world.fetched.accept(DATA, null);
        assertTrue(world.take().contains("offer run 3/1"));
    }

    @Test
    void shouldGiveUpWhatTheDriverRefusesForGood() {
        asks(1);
        world.take();
        world.answer.accept(ExchangeServer.refusal("the run is over", false), null);
        expect("remove mpca_run_2_x_3_1_1_");
        exchanges.ended("run", 3, 1);
        expect();
    }

    @Test
    void shouldGiveUpWithItsAgent() {
        asks(1);
        world.answer.accept(null, new IOException("no answer"));
        world.take();
        exchanges.ended("run", 3, 0); // an older incarnation
        exchanges.ended("run", 3, 1);
        expect("remove mpca_run_2_x_3_1_1_", "tell run ended 1");
        world.later.run();
        world.answer.accept(reply(), null);
        expect();
    }

    @Test
    void shouldDropAnAnswerThatCameAfterTheAgentAskedAnew() {
        asks(1);
        BiConsumer<byte[], Throwable> late = world.answer;
        world.take();
        asks(2);
        expect("remove mpca_run_2_x_3_1_1_", "put mpca_run_2_x_3_1_2_", "ask run 2");
        late.accept(reply(), null);
        expect();
        world.answer.accept(reply(), null);
        BiConsumer<byte[], Throwable> fetch = world.fetched;
        asks(3);
        world.take();
        fetch.accept(DATA, null);
        expect();
    }

    @Test
    void shouldForgetARun() throws Exception {
        asks(1);
        world.take();
        exchanges.endRun("run").get();
        world.answer.accept(reply(), null);
        exchanges.ended("run", 3, 1);
        expect();
    }
}
