package org.mpca.bridge;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.mpca.rdd.Peer;
import org.mpca.wire.Msgpack;

class InboxTest {
    private static final Path HERE = Paths.get("/proc/self");

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
        inbox.subscribe("run", HERE);
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
        inbox.subscribe("late", HERE);
        assertEquals(Collections.singletonList("ExecutorReady 1"), poll("late"));
    }

    @Test
    void shouldReportALossOnceAndIgnoreWhatComesAfterIt() throws Exception {
        inbox.subscribe("run", HERE);
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
        inbox.subscribe("run", HERE);
        inbox.unsubscribe("run");
        inbox.post("run", Msgpack.pack(Collections.singletonMap("kind", "Output")));
        inbox.subscribe("run", HERE);
        assertEquals(Collections.emptyList(), poll("run"));
    }

    @Test
    void shouldRefuseASecondRunOfTheSameName() {
        inbox.subscribe("run", HERE);
        assertThrows(IllegalArgumentException.class, () -> inbox.subscribe("run", HERE));
    }

    @Test
    void shouldKnowARunWhosePythonHasDiedUntilItIsClosed() {
        inbox.subscribe("run", HERE);
        assertFalse(inbox.abandoned());
        inbox.subscribe("other", Paths.get("/proc/4194305/fd/7")); // more than the kernel's largest number of a process
        assertTrue(inbox.abandoned());
        inbox.unsubscribe("other");
        assertFalse(inbox.abandoned());
    }
}
