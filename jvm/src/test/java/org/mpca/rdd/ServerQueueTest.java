package org.mpca.rdd;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.mpca.rdd.ServerQueue.Entry;
import org.mpca.rdd.ServerQueue.Instruction;

class ServerQueueTest {
    private final ServerQueue queue = new ServerQueue();

    private static Entry entry(int agent, int incarnation, int number) {
        return new Entry("executor of " + agent, agent, incarnation, number, 0.0, "first");
    }

    /** Instructions in words: "fetch 1/0/7" for number 7 of agent 1's incarnation 0. */
    private static List<String> said(List<Instruction> instructions) {
        List<String> words = new ArrayList<>();
        for (Instruction one : instructions) {
            one.perform(new ServerQueue.Performer() {
                private void note(String word, Entry entry) {
                    words.add(word + " " + entry.agent + "/" + entry.incarnation + "/" + entry.number);
                }

                @Override
                public void fetch(Entry entry) {
                    note("fetch", entry);
                }

                @Override
                public void arrived(Entry entry) {
                    note("arrived", entry);
                }

                @Override
                public void reply(Entry entry) {
                    note("reply to " + entry.question, entry);
                }

                @Override
                public void refuse(Entry entry, String reason, boolean again) {
                    note("refuse" + (again ? " for now" : "") + " (" + reason + ")", entry);
                }

                @Override
                public void free(Entry entry) {
                    note("free", entry);
                }
            });
        }
        return words;
    }

    private static void expect(List<Instruction> instructions, String... words) {
        assertEquals(Arrays.asList(words), said(instructions));
    }

    private Entry here(int agent, int incarnation, int number) {
        Entry entry = entry(agent, incarnation, number);
        queue.asked(entry);
        queue.fetched(entry);
        return entry;
    }

    @Test
    void shouldServeOneAfterTheOtherInTheOrderOfTheQuestions() {
        Entry first = entry(1, 0, 7);
        Entry second = entry(0, 0, 3);
        expect(queue.asked(first), "fetch 1/0/7");
        expect(queue.asked(second));
        expect(queue.asked(entry(2, 0, 1)));
        expect(queue.fetched(first), "arrived 1/0/7");
        expect(queue.answered(1, 0, 7), "reply to first 1/0/7", "fetch 0/0/3");
        expect(queue.done(1, 0, 7), "free 1/0/7");
        expect(queue.asked(entry(1, 0, 8)), "free 1/0/7");
        expect(queue.fetched(second), "arrived 0/0/3");
        expect(queue.answered(0, 0, 3), "reply to first 0/0/3", "fetch 2/0/1");
    }

    @Test
    void shouldGiveARepetitionTheSameAnswer() {
        here(1, 0, 7);
        Entry again = entry(1, 0, 7);
        again.question = "second";
        expect(queue.asked(again));
        expect(queue.answered(1, 0, 7), "reply to second 1/0/7");
        Entry third = entry(1, 0, 7);
        third.question = "third";
        expect(queue.asked(third), "reply to third 1/0/7");
        expect(queue.done(1, 0, 7), "free 1/0/7");
        expect(queue.asked(entry(1, 0, 7)), "refuse (this exchange is done) 1/0/7");
    }

    @Test
    void shouldKeepThePlaceAndTheTimeOfAQuestionThatIsRepeated() {
        Entry first = entry(0, 0, 1);
        queue.asked(first);
        Entry second = new Entry("executor of 1", 1, 0, 1, 5.0, "first");
        queue.asked(second);
        queue.asked(entry(2, 0, 1));
        expect(queue.asked(new Entry("executor of 1", 1, 0, 1, 9.0, "second")));
        queue.fetched(first);
        expect(queue.answered(0, 0, 1), "reply to first 0/0/1", "fetch 1/0/1");
        assertEquals("5.0 second", second.asked + " " + second.question);
    }

    @Test
    void shouldLetOthersHaveTheirTurnWhenAFetchFails() {
        Entry first = entry(1, 0, 7);
        queue.asked(first);
        queue.asked(entry(0, 0, 3));
        expect(queue.failed(first, "it is gone"), "refuse for now (it is gone) 1/0/7", "fetch 0/0/3");
        expect(queue.fetched(first));
        expect(queue.failed(first, "it is gone"));
        expect(queue.asked(entry(1, 0, 7)));
        expect(queue.failed(entry(0, 0, 3), "of another question"));
    }

    @Test
    void shouldRefuseWhatIsOlder() {
        here(1, 1, 2);
        expect(queue.asked(entry(1, 1, 1)), "refuse (a newer exchange of the agent is known) 1/1/1");
        expect(queue.asked(entry(1, 0, 9)), "refuse (a newer exchange of the agent is known) 1/0/9");
        expect(queue.answered(1, 1, 1));
        expect(queue.answered(1, 0, 2));
        expect(queue.answered(5, 0, 1));
    }

    @Test
    void shouldForgetAnAgentThatEndedWhileItWaited() {
        Entry first = entry(1, 0, 7);
        queue.asked(first);
        queue.asked(entry(0, 0, 3));
        queue.asked(entry(2, 0, 3));
        expect(queue.ended(0, 0), "refuse (the agent is gone) 0/0/3", "free 0/0/3");
        expect(queue.ended(1, 0), "refuse (the agent is gone) 1/0/7", "free 1/0/7", "fetch 2/0/3");
        expect(queue.fetched(first));
        expect(queue.ended(2, 1));
    }

    @Test
    void shouldKeepWhatIsHereForTheDriverWhenItsAgentEndsButLetOthersPass() {
        here(1, 0, 7);
        Entry second = entry(0, 0, 3);
        queue.asked(second);
        expect(queue.ended(1, 0), "fetch 0/0/3");
        expect(queue.fetched(second), "arrived 0/0/3");
        expect(queue.answered(1, 0, 7), "free 1/0/7");
        expect(queue.answered(0, 0, 3), "reply to first 0/0/3");
    }

    @Test
    void shouldFreeWhatADeadAgentLeftWhenItsNextIncarnationAsks() {
        here(1, 0, 7);
        queue.ended(1, 0);
        expect(queue.asked(entry(1, 1, 1)), "refuse (the agent asks anew) 1/0/7", "free 1/0/7", "fetch 1/1/1");
    }

    @Test
    void shouldFreeAnAnswerThatNobodyFetches() {
        here(1, 0, 7);
        queue.answered(1, 0, 7);
        expect(queue.ended(1, 0), "free 1/0/7");
        here(1, 1, 1);
        queue.answered(1, 1, 1);
        expect(queue.lost("executor of 1"), "free 1/1/1");
        expect(queue.done(1, 1, 1));
    }

    @Test
    void shouldForgetAllOfALostExecutor() {
        queue.asked(entry(1, 0, 7));
        queue.asked(entry(0, 0, 3));
        expect(queue.lost("executor of 1"), "free 1/0/7", "fetch 0/0/3");
        expect(queue.lost("executor of 9"));
    }

    @Test
    void shouldRefuseAllWhoWaitWhenTheRunEnds() {
        here(2, 0, 1);
        queue.answered(2, 0, 1);
        queue.asked(entry(0, 0, 3));
        queue.asked(entry(1, 0, 7));
        expect(
                queue.close(),
                "refuse (the run ends) 0/0/3",
                "free 0/0/3",
                "refuse (the run ends) 1/0/7",
                "free 1/0/7",
                "free 2/0/1");
        assertEquals(Collections.emptyList(), said(queue.close()));
    }
}
