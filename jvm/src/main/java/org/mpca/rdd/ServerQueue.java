package org.mpca.rdd;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Decides whose exchange the driver serves next, and what becomes of its bytes: events in, instructions out. No I/O, no clock,
 * no thread.
 *
 * <pre>
 *   WAITING ---its turn---&gt; FETCHING ---fetched---&gt; HERE ---answered---&gt; ANSWERED ---done---&gt; DONE
 *                              +--failed--&gt; forgotten: its executor asks again, and waits behind the others
 *   any of them ---a newer number or incarnation, the agent ended, its executor lost---&gt; forgotten, its bytes freed
 * </pre>
 *
 * One at a time is FETCHING or HERE, first come, first served: so what is fetched and not answered takes the memory of one
 * shard. What is HERE when its agent ends stays until the driver answers it or the agent's next incarnation asks, since
 * the driver may be about to take it; but it holds up nobody.
 *
 * <p>An executor repeats a question that was not answered for long. A repetition gets the same answer, or replaces the older
 * question where it stands.
 *
 * <p>Concurrency: owned by one thread, mpca-server.
 */
final class ServerQueue {
    /** One thing to do. Performed in the order of the list. */
    interface Instruction {
        void perform(Performer performer);
    }

    /** Carries instructions out. */
    interface Performer {
        /** Fetch what was sent; `fetched` or `failed` follows. */
        void fetch(Entry entry);

        /** Tell the driver that it is here. */
        void arrived(Entry entry);

        /** Reply to the question with what the driver answered. */
        void reply(Entry entry);

        /** Reply that there is no answer; with `again`, the executor may ask once more. */
        void refuse(Entry entry, String reason, boolean again);

        /** Free what was sent and what was answered, as far as they are here. */
        void free(Entry entry);
    }

    enum State {
        WAITING,
        FETCHING,
        HERE,
        ANSWERED,
        DONE
    }

    /** One exchange of one agent. */
    static final class Entry {
        final String executor;
        final int agent;
        final int incarnation;
        final int number;
        /** When it was asked first, in seconds of the driver's clock. */
        final double asked;
        /** What the performer needs of the question, its reply included: of the newest repetition. */
        Object question;

        private State state = State.WAITING;
        private boolean ended;

        Entry(String executor, int agent, int incarnation, int number, double asked, Object question) {
            this.executor = executor;
            this.agent = agent;
            this.incarnation = incarnation;
            this.number = number;
            this.asked = asked;
            this.question = question;
        }

        State state() {
            return state;
        }

        private boolean is(int ofIncarnation, int ofNumber) {
            return incarnation == ofIncarnation && number == ofNumber;
        }

        private boolean before(Entry other) {
            return incarnation != other.incarnation ? incarnation < other.incarnation : number < other.number;
        }
    }

    /** The newest of each agent. */
    private final Map<Integer, Entry> newest = new TreeMap<>();

    private final Deque<Entry> waiting = new ArrayDeque<>();
    /** FETCHING or HERE; null: none. */
    private Entry current;

    /** An executor asks for one of its agents. */
    List<Instruction> asked(Entry entry) {
        List<Instruction> out = new ArrayList<>();
        Entry known = newest.get(entry.agent);
        if (known != null && known.is(entry.incarnation, entry.number) && !known.ended) {
            known.question = entry.question;
            if (known.state == State.ANSWERED) {
                out.add(performer -> performer.reply(known));
            } else if (known.state == State.DONE) {
                out.add(performer -> performer.refuse(known, "this exchange is done", false));
            }
            return out;
        }
        if (known != null && !known.before(entry)) {
            out.add(performer -> performer.refuse(entry, "a newer exchange of the agent is known", false));
            return out;
        }
        if (known != null) {
            forget(known, "the agent asks anew", out);
        }
        newest.put(entry.agent, entry);
        waiting.add(entry);
        next(out);
        return out;
    }

    /** All bytes are here, and whole. */
    List<Instruction> fetched(Entry entry) {
        if (entry != current || entry.state != State.FETCHING) {
            return Collections.emptyList(); // others had their turn meanwhile
        }
        entry.state = State.HERE;
        return Collections.singletonList(performer -> performer.arrived(entry));
    }

    /** The bytes cannot be had now. */
    List<Instruction> failed(Entry entry, String reason) {
        List<Instruction> out = new ArrayList<>();
        if (entry == current && entry.state == State.FETCHING) {
            newest.remove(entry.agent);
            current = null;
            out.add(performer -> performer.refuse(entry, reason, true));
            next(out);
        }
        return out;
    }

    /** The driver has answered; without a `reply`, nobody waits for it any more. */
    List<Instruction> answered(int agent, int incarnation, int number) {
        List<Instruction> out = new ArrayList<>();
        Entry entry = newest.get(agent);
        if (entry == null || !entry.is(incarnation, number) || entry.state != State.HERE) {
            return out;
        }
        if (entry.ended) {
            forget(entry, null, out);
        } else {
            entry.state = State.ANSWERED;
            out.add(performer -> performer.reply(entry));
        }
        release(entry, out);
        return out;
    }

    /** The executor has the answer. */
    List<Instruction> done(int agent, int incarnation, int number) {
        Entry entry = newest.get(agent);
        if (entry == null || !entry.is(incarnation, number) || entry.state != State.ANSWERED) {
            return Collections.emptyList();
        }
        entry.state = State.DONE;
        return Collections.singletonList(performer -> performer.free(entry));
    }

    /** A process of an agent is gone. */
    List<Instruction> ended(int agent, int incarnation) {
        List<Instruction> out = new ArrayList<>();
        Entry entry = newest.get(agent);
        if (entry != null && entry.incarnation == incarnation) {
            end(entry, "the agent is gone", out);
        }
        return out;
    }

    /** So are all agents of an executor. */
    List<Instruction> lost(String executor) {
        List<Instruction> out = new ArrayList<>();
        for (Entry entry : new ArrayList<>(newest.values())) {
            if (entry.executor.equals(executor)) {
                end(entry, null, out);
            }
        }
        return out;
    }

    /** The run ends. */
    List<Instruction> close() {
        List<Instruction> out = new ArrayList<>();
        for (Entry entry : newest.values()) {
            if (entry.state != State.ANSWERED && entry.state != State.DONE) {
                out.add(performer -> performer.refuse(entry, "the run ends", false));
            }
            out.add(performer -> performer.free(entry));
        }
        newest.clear();
        waiting.clear();
        current = null;
        return out;
    }

    private void end(Entry entry, String reason, List<Instruction> out) {
        if (entry.state == State.HERE) {
            entry.ended = true;
            release(entry, out);
        } else {
            forget(entry, reason, out);
            next(out);
        }
    }

    /** Without a reason, nobody is there to hear it. */
    private void forget(Entry entry, String reason, List<Instruction> out) {
        newest.remove(entry.agent, entry);
        waiting.remove(entry);
        if (current == entry) {
            current = null;
        }
        if (reason != null && entry.state != State.ANSWERED && entry.state != State.DONE) {
            out.add(performer -> performer.refuse(entry, reason, false));
        }
        out.add(performer -> performer.free(entry));
    }

    private void release(Entry entry, List<Instruction> out) {
        if (current == entry) {
            current = null;
        }
        next(out);
    }

    private void next(List<Instruction> out) {
        if (current == null && !waiting.isEmpty()) {
            Entry entry = waiting.remove();
            entry.state = State.FETCHING;
            current = entry;
            out.add(performer -> performer.fetch(entry));
        }
    }
}
