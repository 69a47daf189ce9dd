package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.mpca.wire.Msgpack;
import org.mpca.wire.Order;

class DownloadTest {
  private Order order;
  private Download download;

  @BeforeEach
  void makeAnOrderWithADownload() throws Exception {
    Map<String, Object> what = new HashMap<>();
    what.put("broadcast", 5);
    what.put("shard", 1);
    what.put("version", 2);
    what.put("mode", "install");
    what.put("length", 8);
    what.put("alpha", 0.25);
    List<Object> agent = new ArrayList<>();
    Collections.addAll(agent, "0", 3, 1);
    what.put("agents", Collections.singletonList(agent));
    Map<String, Object> fields = new HashMap<>();
    fields.put("order", 1);
    fields.put("run", "r");
    fields.put("epoch", 0);
    fields.put("cycle", 0);
    fields.put("deadline", 0.0);
    fields.put("description", "");
    fields.put("forget_cycle", -1);
    fields.put("downloads", Collections.singletonList(what));
    for (String name : new String[] {"executors", "begin", "stop", "forget_broadcasts"}) {
      fields.put(name, Collections.emptyList());
    }
    order = Order.unpack(Msgpack.pack(fields));
    download = new Download(order, order.downloads.get(0));
  }

  private Download.Attempt attempt(int number) {
    return new Download.Attempt(number, null, order.downloads.get(0).agents);
  }

  @Test
  void shouldBeQueuedOnceUntilItsNewestAttemptIsDone() {
    Download.Attempt first = attempt(1);
    Download.Attempt second = attempt(2);
    assertTrue(download.renew(first));
    assertFalse(download.renew(second));
    assertFalse(download.leave(first));
    assertTrue(download.leave(second));
    assertTrue(download.renew(attempt(3)));
  }

  @Test
  void shouldAbandonAnAttemptThatIsSuperseded() {
    Download.Attempt first = attempt(1);
    download.renew(first);
    assertDoesNotThrow(() -> download.check(first));
    download.renew(attempt(2));
    assertThrows(Download.Abandoned.class, () -> download.check(first));
  }

  @Test
  void shouldLeaveAtOnceWhenForgotten() {
    download.renew(attempt(1));
    download.forget();
    assertTrue(download.leave(attempt(0)));
    assertThrows(Download.Abandoned.class, () -> download.check(download.attempt()));
  }

  @Test
  void shouldCopyEachPieceOnceAndCountItOnce() {
    assertTrue(download.fill(1, 4, ByteBuffer.wrap(new byte[] {5, 6, 7, 8}), true));
    assertFalse(download.fill(1, 4, ByteBuffer.wrap(new byte[] {0, 0, 0, 0}), true));
    assertTrue(download.fill(0, 0, ByteBuffer.wrap(new byte[] {1, 2, 3, 4}), false));
    assertArrayEquals(new byte[] {1, 2, 3, 4, 5, 6, 7, 8}, download.data());
    assertEquals(2, download.count());
    assertEquals(8, download.takeBytesIn());
    assertEquals(4, download.takeBytesFromDriver());
    assertEquals(0, download.takeBytesIn());
  }

  @Test
  void shouldOfferOnceToEachIncarnation() {
    Order.Place agent = order.downloads.get(0).agents.get(0);
    assertTrue(download.offerOnce(agent));
    assertFalse(download.offerOnce(agent));
    download.takeBackOffer(agent);
    assertTrue(download.offerOnce(agent));
  }
}
