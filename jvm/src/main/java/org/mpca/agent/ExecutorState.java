package org.mpca.agent;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import org.mpca.wire.Late;

/**
 * What one executor knows of the yields and arrivals of its agents, and what it decides: events in, instructions out.
 * No I/O, no clock, no thread. Its Python twin is {@code mpca/sim/executor.py}; one set of scripts, in
 * {@code tests/golden/executor}, is run on both.
 *
 * <p><b>Yields.</b> A yield, of one agent for one cycle, goes through these states:
 *
 * <pre>
 *   MADE ----freeze----&gt; ASKED ----snapshot----&gt; FROZEN      read again: the same values, no second interruption
 *     |                    |
 *     |                    +--deadline, agent_gone, forget--&gt; CLOSED, with a reason
 *     +----freeze, but no such incarnation------------------&gt; CLOSED
 *
 *   CLOSED ---freeze again, of an agent that lives---&gt; ASKED
 * </pre>
 *
 * An agent has at most one interruption outstanding; a second yield of it waits until the first was answered, even if
 * that one is closed by then: its late bytes are discarded, and the agent is back. Asking again for a cycle (the driver
 * paused, or an order was submitted again) opens what was closed: only an accepted yield is final. A frozen yield counts
 * whatever becomes of its agent. A freeze is answered as soon as each of its yields is frozen or closed. What is forgotten while
 * merely MADE was never read, and is counted.
 *
 * <p><b>Arrivals.</b> The slot of one shard of one agent is free, or offered from its writing until the agent's
 * Installed. An arrival at an offered slot waits for it, and is superseded by a newer one. Acknowledged is whatever the
 * executor holds for the agent, and whatever came too late to be of use. An answer to an Exchange is never too late: the agent
 * waits for it.
 *
 * <p>Concurrency: owned by one thread, mpca-snapshots.
 */
public final class ExecutorState {
    /** One thing to do. Performed in the order of the list. */
    public interface Instruction {
        void perform(Performer performer);
    }

    /** Carries instructions out. */
    public interface Performer {
        /** Send the agent a SnapshotRequest. */
        void interrupt(int agent, int cycle, int shard);

        /** A freeze is complete; lists in agent order. {@code ticket} is what the freeze was given. */
        void answer(long ticket, int cycle, int shard, List<Taken> frozen, Map<Integer, Late> late);

        /** A late agent answered after all: report it. */
        void back(int agent, int incarnation);

        /** Drop the bytes of a snapshot that nobody waits for. */
        void discard(int agent, int cycle, int shard);

        /** Put an arrival into its slot and send Install. */
        void write(int agent, Arrival arrival);

        /** An arrival was made useless by a newer one. */
        void supersede(int agent, int shard, long version);

        /** The executor has this arrival for the agent. */
        void acknowledge(int agent, int shard, long version);

        /** Drop all yields of a cycle; {@code unread} of them were never asked for. */
        void drop(int cycle, int unread);
    }

    /** A frozen yield, without its bytes. */
    public static final class Taken {
        public final int agent;
        public final int incarnation;
        public final int tau;
        public final long crc;
        public final boolean finite;

        Taken(int agent, int incarnation, int tau, long crc, boolean finite) {
            this.agent = agent;
            this.incarnation = incarnation;
            this.tau = tau;
            this.crc = crc;
            this.finite = finite;
        }
    }

    private enum State {
        MADE,
        ASKED,
        FROZEN,
        CLOSED
    }

    private static final class Entry {
        final int cycle;
        final int shard;
        final int agent;
        final int incarnation;
        State state = State.MADE;
        Taken taken;
        Late reason;

        Entry(int cycle, int shard, int agent, int incarnation) {
            this.cycle = cycle;
            this.shard = shard;
            this.agent = agent;
            this.incarnation = incarnation;
        }

        void close(Late why) {
            state = State.CLOSED;
            reason = why;
        }

        boolean settled() {
            return state == State.FROZEN || state == State.CLOSED;
        }
    }

    /** A living agent. */
    private static final class Seat {
        final int incarnation;
        /** The interruption that it has not answered yet; its entry may be closed or forgotten. */
        Entry outstanding;

        final Deque<Entry> queue = new ArrayDeque<>();
        final Map<Integer, Slot> slots = new HashMap<>();

        Seat(int incarnation) {
            this.incarnation = incarnation;
        }
    }

    private static final class Slot {
        /** Versions; null: none. */
        Long newest;

        Long offered;
        Arrival waiting;
    }

    private static final class Request {
        final long ticket;
        final int cycle;
        final int shard;
        /** By agent. */
        final TreeMap<Integer, Entry> entries = new TreeMap<>();

        Request(long ticket, int cycle, int shard) {
            this.ticket = ticket;
            this.cycle = cycle;
            this.shard = shard;
        }
    }

    private final Map<Integer, Seat> seats = new TreeMap<>();
    /** Cycle, then agent and incarnation. */
    private final NavigableMap<Integer, Map<Long, Entry>> entries = new TreeMap<>();

    private final List<Request> requests = new ArrayList<>();

    /** An agent said Hello. An older incarnation of it is gone by that. */
    public List<Instruction> agentUp(int agent, int incarnation) {
        Seat seat = seats.get(agent);
        if (seat != null && seat.incarnation >= incarnation) {
            return Collections.emptyList();
        }
        List<Instruction> out = seat == null ? new ArrayList<>() : agentGone(agent, seat.incarnation);
        seats.put(agent, new Seat(incarnation));
        return out;
    }

    /** The process of an agent ended; everything that it had sent was handled before. */
    public List<Instruction> agentGone(int agent, int incarnation) {
        List<Instruction> out = new ArrayList<>();
        if (seat(agent, incarnation) == null) {
            return out;
        }
        seats.remove(agent);
        for (Map<Long, Entry> cycle : entries.values()) {
            Entry entry = cycle.get(key(agent, incarnation));
            if (entry != null && entry.state == State.ASKED) {
                entry.close(Late.DIED);
            }
        }
        answerSettled(out);
        return out;
    }

    /** A yield was made; nobody is interrupted. */
    public List<Instruction> made(int cycle, int shard, int agent, int incarnation) {
        entry(cycle, shard, agent, incarnation);
        return Collections.emptyList();
    }

    /**
     * Yields are to be frozen.
     *
     * @param agents pairs of agent and incarnation
     */
    public List<Instruction> freeze(long ticket, int cycle, int shard, List<int[]> agents) {
        List<Instruction> out = new ArrayList<>();
        Request request = new Request(ticket, cycle, shard);
        for (int[] pair : agents) {
            Entry entry = entry(cycle, shard, pair[0], pair[1]);
            request.entries.put(entry.agent, entry);
            if (entry.state == State.ASKED || entry.state == State.FROZEN) {
                continue;
            }
            Seat seat = seat(entry.agent, entry.incarnation);
            if (seat != null) {
                entry.state = State.ASKED;
                if (seat.outstanding != entry) {
                    seat.queue.add(entry);
                    interruptNext(seat, out);
                }
            } else if (entry.state == State.MADE) {
                entry.close(Late.NO_SUCH_INCARNATION);
            }
        }
        requests.add(request);
        answerSettled(out);
        return out;
    }

    /** An agent handed a shard over, and its bytes were read whole. */
    public List<Instruction> snapshot(
            int agent, int incarnation, int cycle, int shard, int tau, long crc, boolean finite) {
        List<Instruction> out = new ArrayList<>();
        Seat seat = seat(agent, incarnation);
        Entry entry = seat == null ? null : seat.outstanding;
        if (entry == null || entry.cycle != cycle || entry.shard != shard) {
            out.add(performer -> performer.discard(agent, cycle, shard));
            return out;
        }
        seat.outstanding = null;
        if (entry.state == State.ASKED) {
            entry.state = State.FROZEN;
            entry.taken = new Taken(agent, incarnation, tau, crc, finite);
            answerSettled(out);
        } else {
            out.add(performer -> performer.discard(agent, cycle, shard));
            out.add(performer -> performer.back(agent, incarnation));
        }
        interruptNext(seat, out);
        return out;
    }

    /** The time of a cycle is over: what was not handed over is late, and its bytes will never be accepted. */
    public List<Instruction> deadline(int cycle) {
        List<Instruction> out = new ArrayList<>();
        closeAsked(entries.getOrDefault(cycle, Collections.emptyMap()), Late.DEADLINE);
        answerSettled(out);
        return out;
    }

    /** The driver needs the yields of this cycle and of those before it no more. */
    public List<Instruction> forget(int cycle) {
        List<Instruction> out = new ArrayList<>();
        Map<Integer, Map<Long, Entry>> old = entries.headMap(cycle, true);
        for (Map<Long, Entry> one : old.values()) {
            closeAsked(one, Late.FORGOTTEN);
        }
        answerSettled(out);
        for (Map.Entry<Integer, Map<Long, Entry>> one : old.entrySet()) {
            int number = one.getKey();
            int unread = (int) one.getValue().values().stream()
                    .filter(entry -> entry.state == State.MADE)
                    .count();
            out.add(performer -> performer.drop(number, unread));
        }
        old.clear();
        return out;
    }

    /** A joint shard was downloaded for an agent. Its bytes are passed on, and not looked at. */
    public List<Instruction> offer(int agent, int incarnation, Arrival arrival) {
        List<Instruction> out = new ArrayList<>();
        int shard = arrival.shard;
        long version = arrival.version;
        Seat seat = seat(agent, incarnation);
        if (seat == null) {
            return out;
        }
        Slot slot = seat.slots.computeIfAbsent(shard, key -> new Slot());
        if (slot.newest != null && version < slot.newest && !arrival.answer) {
            out.add(performer -> performer.supersede(agent, shard, version));
        } else if (slot.newest == null || version > slot.newest || arrival.mode.equals("replace") || arrival.answer) {
            // A replacement is written though its version is there already: the agent's own state was not finite. So is
            // an
            // answer: the server's state need not have changed since the last one.
            slot.newest = version;
            if (slot.offered == null) {
                slot.offered = version;
                out.add(performer -> performer.write(agent, arrival));
            } else {
                Arrival older = slot.waiting;
                if (older != null) {
                    out.add(performer -> performer.supersede(agent, shard, older.version));
                }
                // The agent holds its other shards until this one replaces its own too.
                boolean replaces = older != null && older.mode.equals("replace") && !arrival.answer;
                slot.waiting = replaces ? arrival.replacing() : arrival;
            }
        }
        out.add(performer -> performer.acknowledge(agent, shard, version));
        return out;
    }

    /** An agent has read the arrival slot of a shard. */
    public List<Instruction> installed(int agent, int incarnation, int shard, long version) {
        List<Instruction> out = new ArrayList<>();
        Seat seat = seat(agent, incarnation);
        Slot slot = seat == null ? null : seat.slots.get(shard);
        if (slot == null || slot.offered == null || slot.offered != version) {
            return out;
        }
        Arrival next = slot.waiting;
        slot.offered = next == null ? null : next.version;
        slot.waiting = null;
        if (next != null) {
            out.add(performer -> performer.write(agent, next));
        }
        return out;
    }

    /** Whether this is the incarnation that an agent lives in. */
    boolean lives(int agent, int incarnation) {
        return seat(agent, incarnation) != null;
    }

    /** Whether a snapshot of this key was accepted: its bytes are to be kept. */
    boolean isFrozen(int cycle, int agent, int incarnation) {
        Entry entry = entries.getOrDefault(cycle, Collections.emptyMap()).get(key(agent, incarnation));
        return entry != null && entry.state == State.FROZEN;
    }

    private Entry entry(int cycle, int shard, int agent, int incarnation) {
        Entry entry = entries.computeIfAbsent(cycle, key -> new LinkedHashMap<>())
                .computeIfAbsent(key(agent, incarnation), key -> new Entry(cycle, shard, agent, incarnation));
        if (entry.shard != shard) {
            throw new IllegalArgumentException(
                    "a cycle has one shard: cycle=" + cycle + ", shard=" + entry.shard + ", then shard=" + shard);
        }
        return entry;
    }

    private Seat seat(int agent, int incarnation) {
        Seat seat = seats.get(agent);
        return seat != null && seat.incarnation == incarnation ? seat : null;
    }

    private static long key(int agent, int incarnation) {
        return (long) agent << 32 | incarnation;
    }

    private static void interruptNext(Seat seat, List<Instruction> out) {
        while (seat.outstanding == null && !seat.queue.isEmpty()) {
            Entry entry = seat.queue.remove();
            if (entry.state == State.ASKED) {
                seat.outstanding = entry;
                out.add(performer -> performer.interrupt(entry.agent, entry.cycle, entry.shard));
            }
        }
    }

    private static void closeAsked(Map<Long, Entry> cycle, Late reason) {
        for (Entry entry : cycle.values()) {
            if (entry.state == State.ASKED) {
                entry.close(reason);
            }
        }
    }

    private void answerSettled(List<Instruction> out) {
        for (Request request : new ArrayList<>(requests)) {
            if (!request.entries.values().stream().allMatch(Entry::settled)) {
                continue;
            }
            requests.remove(request);
            List<Taken> frozen = new ArrayList<>();
            Map<Integer, Late> late = new LinkedHashMap<>();
            for (Entry entry : request.entries.values()) {
                if (entry.state == State.FROZEN) {
                    frozen.add(entry.taken);
                } else {
                    late.put(entry.agent, entry.reason);
                }
            }
            out.add(performer -> performer.answer(request.ticket, request.cycle, request.shard, frozen, late));
        }
    }
}
