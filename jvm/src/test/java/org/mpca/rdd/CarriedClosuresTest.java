package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.broadcast.BroadcastFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class CarriedClosuresTest {
    private static final byte[] CLOSURE = {3, 1, 4, 1, 5};

    /** What reached Spark's own factory. */
    private final List<String> passed = new ArrayList<>();

    private final BroadcastFactory factory = CarriedClosures.before((BroadcastFactory) Proxy.newProxyInstance(
            getClass().getClassLoader(), new Class<?>[] {BroadcastFactory.class}, (self, method, arguments) -> {
                passed.add(method.getName());
                if (method.getName().equals("stop")) {
                    throw new IllegalStateException("it does not stop");
                }
                return null;
            }));

    @AfterEach
    void forget() {
        broadcast(0, "what a test has left for the next one");
    }

    /** By reflection, as numbers of arguments differ between versions of Spark. */
    private Broadcast<?> broadcast(long id, Object value) {
        for (Method method : BroadcastFactory.class.getMethods()) {
            if (method.getName().equals("newBroadcast")) {
                Object[] arguments = new Object[method.getParameterCount()];
                arguments[0] = value;
                for (int i = 1; i < arguments.length; i++) {
                    Class<?> type = method.getParameterTypes()[i];
                    arguments[i] = type == boolean.class ? (Object) false : type == long.class ? (Object) id : null;
                }
                try {
                    return (Broadcast<?>) method.invoke(factory, arguments);
                } catch (ReflectiveOperationException e) {
                    throw new AssertionError(e);
                }
            }
        }
        throw new AssertionError("Spark makes no broadcasts");
    }

    private static byte[] written(Object object) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
            out.writeObject(object);
        }
        return bytes.toByteArray();
    }

    private static Broadcast<?> read(byte[] bytes) throws IOException, ClassNotFoundException {
        try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(bytes))) {
            return (Broadcast<?>) in.readObject();
        }
    }

    @Test
    void shouldCarryTheClosureOfOurJobsAndNothingElse() throws Exception {
        CarriedClosures.serialised(4);
        Broadcast<?> carried = broadcast(7, CLOSURE);
        assertEquals(7, carried.id());
        assertArrayEquals(CLOSURE, (byte[]) read(written(carried)).value());
        assertTrue(passed.isEmpty());
        broadcast(8, CLOSURE);
        assertEquals(Arrays.asList("newBroadcast"), passed, "a user's own job");
    }

    @Test
    void shouldCarryWhatTheSameThreadHasSerialised() throws Exception {
        Thread other = new Thread(() -> CarriedClosures.serialised(4));
        other.start();
        other.join();
        broadcast(7, CLOSURE);
        assertEquals(Arrays.asList("newBroadcast"), passed);
    }

    @Test
    void shouldLeaveMuchToSpark() {
        CarriedClosures.serialised(4);
        broadcast(7, new byte[CarriedClosures.MOST_BYTES / 4]);
        assertTrue(passed.isEmpty());
        CarriedClosures.serialised(4);
        broadcast(8, new byte[CarriedClosures.MOST_BYTES / 4 + 1]);
        CarriedClosures.serialised(1024);
        broadcast(9, new byte[300]);
        assertEquals(Arrays.asList("newBroadcast", "newBroadcast"), passed);
    }

    @Test
    void shouldBotherNoExecutorWhenOneIsGarbage() {
        CarriedClosures.serialised(4);
        broadcast(7, CLOSURE);
        factory.unbroadcast(7, true, false);
        assertTrue(passed.isEmpty());
        factory.unbroadcast(7, true, false);
        factory.unbroadcast(8, true, false);
        assertEquals(Arrays.asList("unbroadcast", "unbroadcast"), passed);
    }

    @Test
    void shouldThrowWhatSparkThrows() {
        assertEquals(
                "it does not stop",
                assertThrows(IllegalStateException.class, factory::stop).getMessage());
    }

    @Test
    void shouldStandThereOnce() {
        assertSame(factory, CarriedClosures.before(factory));
        assertFalse(passed.contains("initialize"));
    }

    @Test
    void shouldRefuseWhatWasDamagedOnItsWay() throws Exception {
        CarriedClosures.serialised(4);
        byte[] written = written(broadcast(7, CLOSURE));
        for (int at = 0; at <= written.length - CLOSURE.length; at++) {
            if (Arrays.equals(Arrays.copyOfRange(written, at, at + CLOSURE.length), CLOSURE)) {
                written[at + 2] ^= 8;
            }
        }
        Broadcast<?> damaged = read(written);
        String why = assertThrows(IllegalStateException.class, damaged::value).getMessage();
        assertTrue(why.contains("damaged"), why);
    }
}
