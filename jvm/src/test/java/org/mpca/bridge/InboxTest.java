package org.mpca.bridge;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.mpca.rdd.Peer;
import org.mpca.wire.Msgpack;

class InboxTest {
    private final Inbox inbox = Inbox.open();

    private List<String> poll(String run) throws Exception {
        List<String> seen = new ArrayList<>();
        for (byte[] packed : inbox.poll(run, 0)) {
            Map<?, ?> event = (Map<?, ?>) Msgpack.unpack(packed);
            seen.add(event.get("kind") + " " + event.get("executor"));
        }
        return seen;
    }

    @Test
    void shouldCallAnExecutorReadyOnceBothHaveSpoken() throws Exception {
        inbox.subscribe("run");
        inbox.added("0", "host", 2);
        assertEquals(Collections.emptyList(), poll("run"));
        inbox.hello(new Peer("0", "host", 1));
        inbox.hello(new Peer("0", "host", 1));
        assertEquals(Collections.singletonList("ExecutorReady 0"), poll("run"));
        inbox.hello(new Peer("1", "host", 1));
        inbox.added("1", "host", 2);
        assertEquals(Collections.singletonList("ExecutorReady 1"), poll("run"));
        assertEquals(2, inbox.executors().size());
    }

    @Test
    void shouldTellALaterRunWhichExecutorsThereAre() throws Exception {
        inbox.added("0", "host", 2);
        inbox.hello(new Peer("0", "host", 1));
        inbox.added("1", "host", 2);
        inbox.hello(new Peer("1", "host", 1));
        inbox.removed("0", "killed");
        inbox.subscribe("late");
        assertEquals(Collections.singletonList("ExecutorReady 1"), poll("late"));
    }

    @Test
    void shouldReportALossOnceAndIgnoreWhatComesAfterIt() throws Exception {
        inbox.subscribe("run");
        inbox.added("0", "host", 2);
        inbox.hello(new Peer("0", "host", 1));
        inbox.removed("0", "killed");
        inbox.removed("0", "killed");
        inbox.hello(new Peer("0", "host", 1));
        inbox.added("0", "host", 2);
        assertEquals(Arrays.asList("ExecutorReady 0", "ExecutorLost 0"), poll("run"));
        assertTrue(inbox.executors().isEmpty());
    }

    @Test
    void shouldDropEventsOfARunThatIsOver() throws Exception {
        inbox.subscribe("run");
        inbox.unsubscribe("run");
        inbox.post("run", Msgpack.pack(Collections.singletonMap("kind", "Output")));
        inbox.subscribe("run");
        assertEquals(Collections.emptyList(), poll("run"));
    }

    @Test
    void shouldRefuseASecondRunOfTheSameName() {
        inbox.subscribe("run");
        assertThrows(IllegalArgumentException.class, () -> inbox.subscribe("run"));
    }
}
