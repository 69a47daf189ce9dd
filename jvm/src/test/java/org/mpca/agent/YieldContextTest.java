package org.mpca.agent;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.esotericsoftware.kryo.Kryo;
import com.esotericsoftware.kryo.io.Input;
import com.esotericsoftware.kryo.io.Output;
import com.esotericsoftware.kryo.serializers.FieldSerializer;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.zip.CRC32;
import org.apache.spark.SparkConf;
import org.apache.spark.serializer.KryoSerializer;
import org.apache.spark.serializer.SerializerInstance;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.mpca.wire.Late;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/** What the paper promises of a YieldContext, on a real child process. */
@Timeout(60)
class YieldContextTest {
  private final FakeAgents agents = new FakeAgents();

  @AfterEach
  void nothingIsLeft() throws InterruptedException {
    agents.close();
  }

  @Test
  void shouldNotInterruptAnAgentWhoseYieldIsNotRead() throws Exception {
    agents.train(0, 0);
    for (int cycle = 0; cycle < 5; cycle++) {
      YieldContext unread = agents.yield(cycle, cycle % 3, 0);
      assertEquals(0, unread.key().agent);
      assertTrue(unread.toString().endsWith("unread"));
      assertFalse(unread.touched() || unread.frozen());
    }
    agents.events.await("progress 0/0", 3);
    agents.registry.forget(FakeAgents.RUN, 0, 3);
    FakeAgents.waitUntil("four are counted", () -> agents.registry.unread(FakeAgents.RUN) == 4);
    assertEquals("0", interruptions());
  }

  @Test
  void shouldGiveTheSameBytesHoweverOftenAndHoweverItIsRead() throws Exception {
    agents.train(0, 0);
    agents.events.await("progress 0/0");
    YieldContext context = agents.yield(7, 1, 0);
    FrozenYield first = context.freeze(FakeAgents.soon());
    String hash = hash(first);
    assertEquals(FakeAgents.SHARD_BYTES, first.data.length);
    assertTrue(first.finite && first.tau > 0 && first.end >= first.start);
    CRC32 crc = new CRC32();
    crc.update(first.data);
    assertEquals(crc.getValue(), first.crc);
    assertEquals(first.tau, ByteBuffer.wrap(first.data).order(ByteOrder.LITTLE_ENDIAN).getFloat(), "x counts steps");

    assertSame(first, context.freeze(0), "frozen needs no time");
    assertSame(context, agents.yield(7, 1, 0));
    assertEquals(hash, hash(javaCopy(context).freeze(0)));
    assertEquals(hash, hash(kryoCopy(context).freeze(0)));
    agents.events.await("progress 0/0", agents.events.all("progress").size() + 6); // more than 100 steps later
    assertEquals(hash, hash(agents.yield(7, 1, 0).freeze(0)));
    assertEquals(hash, hash(kryoCopy(javaCopy(context)).freeze(0)));
    FrozenYield again = agents.registry.freeze(Arrays.asList(context.key()), FakeAgents.soon()).frozen.get(0);
    assertEquals(hash, hash(again), "a re-run task");
    assertEquals("1", interruptions());
    assertEquals(hash, hash(context.freeze(0)), "the agent has ended by now");
  }

  @Test
  void shouldBeFrozenByJavaSerialisation() throws Exception {
    agents.train(0, 0);
    YieldContext context = agents.yield(3, 0, 0);
    YieldContext copy = javaCopy(context);
    assertTrue(context.touched() && context.frozen() && copy.frozen());
    assertEquals(context.key(), copy.key());
    assertEquals(hash(context.freeze(0)), hash(copy.freeze(0)));
    assertEquals("1", interruptions());
  }

  @Test
  void shouldBeFrozenByKryoWhichSparkConfigures() throws Exception {
    agents.train(0, 0);
    YieldContext context = agents.yield(3, 2, 0);
    YieldContext copy = kryoCopy(context);
    assertTrue(context.touched() && context.frozen() && copy.frozen());
    assertEquals(context.key(), copy.key());
    assertEquals(hash(context.freeze(0)), hash(copy.freeze(0)));
    assertEquals("1", interruptions());
  }

  @Test
  void shouldBeFrozenOncePerReferenceInsideALargerObjectUnderKryo() throws Exception {
    agents.train(0, 0);
    YieldContext context = agents.yield(3, 2, 0);
    Object[] copy = kryo(new Object[] {context, context}, ClassTag$.MODULE$.<Object[]>apply(Object[].class));
    assertSame(copy[0], copy[1]);
    assertTrue(((YieldContext) copy[0]).frozen());
    assertEquals("1", interruptions());
  }

  @Test
  void shouldFailAtTheFirstAccessOfACopyThatOnlyCopiedFields() throws Exception {
    agents.train(0, 0);
    Kryo kryo = new Kryo();
    kryo.register(YieldContext.class, new FieldSerializer<>(kryo, YieldContext.class));
    Output output = new Output(1024, -1);
    kryo.writeObject(output, agents.yield(3, 2, 0));
    YieldContext copy = kryo.readObject(new Input(output.toBytes()), YieldContext.class);
    assertThrows(IllegalStateException.class, () -> copy.freeze(FakeAgents.soon()));
    assertThrows(IllegalStateException.class, () -> javaCopy(copy));
    assertEquals("0", interruptions());
  }

  @Test
  void shouldRefuseToSerialiseWhatIsNotHandedOver() throws Exception {
    agents.train(0, 0, "die-when-asked");
    IOException refused = assertThrows(IOException.class, () -> javaCopy(agents.yield(3, 2, 0)));
    assertTrue(refused.getMessage().contains(Late.DIED.text), refused.getMessage());
  }

  @Test
  void shouldNotFreezeANewStateForAForgottenCycle() throws Exception {
    agents.train(0, 0);
    YieldContext held = agents.yield(3, 2, 0);
    agents.registry.forget(FakeAgents.RUN, 0, 3);
    FakeAgents.waitUntil("forgotten", () -> agents.registry.unread(FakeAgents.RUN) == 1);
    assertThrows(AgentGoneException.class, () -> held.freeze(FakeAgents.soon()));
    assertEquals("0", interruptions());
  }

  private String interruptions() throws InterruptedException {
    agents.registry.stop(FakeAgents.RUN, 0, 0, "test is over");
    String finished = agents.events.await("finished 0/0");
    assertTrue(agents.registry.awaitEnd(FakeAgents.RUN, 0, 0, 10_000));
    return finished.substring("finished 0/0 ".length());
  }

  private static String hash(FrozenYield state) throws Exception {
    byte[] digest = MessageDigest.getInstance("SHA-256").digest(state.data);
    return Arrays.toString(digest) + " tau=" + state.tau + " crc=" + state.crc;
  }

  private static YieldContext javaCopy(YieldContext context) throws IOException, ClassNotFoundException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
      out.writeObject(context);
    }
    try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(bytes.toByteArray()))) {
      YieldContext copy = (YieldContext) in.readObject();
      assertArrayEquals(context.freeze(0).data, copy.freeze(0).data);
      return copy;
    } catch (LateAgentException | AgentGoneException | InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  private static YieldContext kryoCopy(YieldContext context) {
    return kryo(context, ClassTag$.MODULE$.<YieldContext>apply(YieldContext.class));
  }

  /** As a cluster does it that sets spark.serializer. */
  private static <T> T kryo(T value, ClassTag<T> type) {
    SerializerInstance serializer = new KryoSerializer(new SparkConf(false)).newInstance();
    return serializer.deserialize(serializer.serialize(value, type), type);
  }
}
