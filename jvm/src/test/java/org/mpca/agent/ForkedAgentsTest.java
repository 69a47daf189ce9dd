package org.mpca.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.file.Files;
import java.util.Collections;
import org.junit.jupiter.api.Test;

/** The same with agents that a parent forks; and what becomes of them when it does not, or ends. */
class ForkedAgentsTest extends AgentRegistryTest {
    @Override
    FakeAgents make() {
        return new FakeAgents(true);
    }

    private static int parentOf(int pid) throws Exception {
        String stat = new String(Files.readAllBytes(new File("/proc/" + pid + "/stat").toPath()));
        return Integer.parseInt(stat.substring(stat.lastIndexOf(')') + 2).split(" ")[1]);
    }

    private static int own() throws Exception {
        return Integer.parseInt(new File("/proc/self").getCanonicalFile().getName());
    }

    @Test
    void shouldBeForkedByAParentOfThisJvm() throws Exception {
        int parent = parentOf(agents.train(0, 0));
        assertNotEquals(own(), parent);
        assertEquals(own(), parentOf(parent));
    }

    @Test
    void shouldStartAnAgentItselfWhenTheParentRefuses() throws Exception {
        assertEquals(own(), parentOf(agents.train(0, 0, "refuses")));
        assertEquals(Collections.emptyList(), agents.events.all("died"));
    }

    @Test
    void shouldStartAnAgentItselfWhenTheParentCannotMakePipes() throws Exception {
        assertEquals(own(), parentOf(agents.train(0, 0, "full")));
        assertEquals(Collections.emptyList(), agents.events.all("died"));
    }

    @Test
    void shouldLeaveAParentAloneThatAnswersThoughItsAgentDoesNotEnd() throws Exception {
        int pid = agents.train(0, 0, "spares");
        int parent = parentOf(pid);
        agents.registry.close(FakeAgents.RUN);
        Thread.sleep(TimeOuts.END_MS); // longer than the agent was given
        assertFalse(FakeAgents.gone(pid));
        assertFalse(FakeAgents.gone(parent));
        FakeAgents.signal("KILL", pid);
    }

    @Test
    void shouldStartAnAgentItselfWhenParentsEndBeforeTheyFork() throws Exception {
        assertEquals(own(), parentOf(agents.train(0, 0, "dies")));
        assertEquals(Collections.emptyList(), agents.events.all("died"));
    }

    @Test
    void shouldReportTheDeathOfEachAgentWhoseParentWasKilledOnceAndStartTheNextByANewOne() throws Exception {
        int pid = agents.train(0, 0);
        int parent = parentOf(pid);
        FakeAgents.signal("STOP", pid); // no end of file reaches it
        FakeAgents.signal("KILL", parent);
        assertTrue(agents.events.await("died 0/0").startsWith("died 0/0 exit=137 pid=" + pid));
        FakeAgents.waitUntil("the agent is gone", () -> FakeAgents.gone(pid));
        assertNotEquals(parent, parentOf(agents.train(0, 1)));
        assertEquals(1, agents.events.all("died").size());
    }

    @Test
    void shouldEndTheAgentOfAParentThatIsStopped() throws Exception {
        int pid = agents.train(0, 0);
        FakeAgents.signal("STOP", parentOf(pid));
        agents.registry.close(FakeAgents.RUN);
        FakeAgents.waitUntil("the agent is gone", () -> FakeAgents.gone(pid));
    }
}
