package org.mpca.rdd;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.mpca.agent.TimeOuts;

/**
 * What one executor decides while it takes part in a relay: which pieces to ask for, to push, and when to give an owner up. Events
 * in, instructions out; no I/O, no thread, and the time is an argument. Its Python twin is {@code mpca/sim/relay.py}; one set of
 * scripts, in {@code tests/golden/relay}, is run on both.
 *
 * <p>Participants: the driver, which has all pieces, and K owners, of which this executor is one. Owner i owns the pieces i,
 * i + K, i + 2K, ..., in two batches. Where there are as many pieces for each owner ({@link RelayBroadcast}), none sends more
 * than the broadcast once.
 *
 * <pre>
 *   own batch:      FROM_DRIVER, which brings them or is asked --all pieces are here--&gt; PUSHED to the other owners
 *
 *   other batch:    AWAITED from its owner --owner given up--&gt; FROM_DRIVER
 * </pre>
 *
 * An owner is given up when it cannot be reached, sends a piece that is damaged twice, or when nothing has come for long after
 * the own pieces came. A driver that was to bring the own pieces is asked for them when nothing has come of them for as long. A
 * failure of the driver ends the relay: it is tried again as a new one, which begins with the pieces that are here.
 *
 * <p>Concurrency: owned by one thread, mpca-download.
 */
final class Relay {
    /** The sender that is no owner. */
    static final int DRIVER = -1;

    private static final int BATCHES = 2;

    /** One thing to do. Performed in the order of the list. */
    interface Instruction {
        void perform(Performer performer);
    }

    /** Carries instructions out. */
    interface Performer {
        /** Ask the driver for pieces, in one request. */
        void askDriver(List<Integer> pieces);

        /** Store pieces where others fetch what came damaged, and push them to all other owners. */
        void push(List<Integer> pieces);

        /** Tell the driver that this owner damages what it sends or, if it is this executor, what it receives. */
        void blame(int owner, String why);

        /** Every piece is here. */
        void done();

        /** The driver could not send. */
        void fail(String why);
    }

    private enum State {
        AWAITED,
        FROM_DRIVER,
        PUSHED
    }

    /** Pieces that one owner pushes together. */
    private static final class Batch {
        final List<Integer> pieces;
        State state;

        Batch(List<Integer> pieces, State state) {
            this.pieces = pieces;
            this.state = state;
        }
    }

    private final int me;
    private final int pieces;
    private final BitSet here;
    /** One or two of each owner; none of one that has no piece. */
    private final List<List<Batch>> batches = new ArrayList<>();
    /** Senders of something that came damaged. */
    private final Set<Integer> damaging = new HashSet<>();

    /** The driver pushes own pieces here, and has not been asked for them. */
    private boolean bringing;

    private long began;
    /** When the newest piece came. */
    private long moved;
    /** How long the own pieces took; -1: some are missing. */
    private long ownTook = -1;

    private int arrived;
    private boolean over;

    /**
     * @param me this executor's number among the owners
     * @param present pieces that are here from an earlier attempt
     */
    Relay(int owners, int me, int pieces, BitSet present) {
        this.me = me;
        this.pieces = pieces;
        this.here = (BitSet) present.clone();
        this.arrived = here.cardinality();
        for (int owner = 0; owner < owners; owner++) {
            List<Batch> some = new ArrayList<>(BATCHES);
            for (List<Integer> batch : batches(owner, owners, pieces)) {
                some.add(new Batch(batch, owner == me ? State.FROM_DRIVER : State.AWAITED));
            }
            batches.add(some);
        }
    }

    /** Pieces of an owner, those that travel together in a list. */
    static List<List<Integer>> batches(int owner, int owners, int pieces) {
        List<List<Integer>> some = new ArrayList<>(BATCHES);
        int own = owner >= pieces ? 0 : (pieces - owner + owners - 1) / owners;
        for (int number = 0; number < BATCHES; number++) {
            List<Integer> batch = new ArrayList<>();
            for (int i = own * number / BATCHES; i < own * (number + 1) / BATCHES; i++) {
                batch.add(owner + i * owners);
            }
            if (!batch.isEmpty()) {
                some.add(batch);
            }
        }
        return some;
    }

    /** @param brings whether the driver pushes the own pieces here */
    List<Instruction> begin(boolean brings, long nowMs) {
        List<Instruction> out = new ArrayList<>();
        began = nowMs;
        moved = nowMs;
        bringing = brings;
        if (!bringing) {
            askDriver(own(), out);
        }
        advance(nowMs, out);
        return out;
    }

    private List<Integer> own() {
        List<Integer> own = new ArrayList<>();
        batches.get(me).forEach(batch -> own.addAll(missing(batch)));
        return own;
    }

    /** A piece is here; any sender may have sent it. */
    List<Instruction> arrived(int piece, long nowMs) {
        List<Instruction> out = new ArrayList<>();
        if (!over && !here.get(piece)) {
            here.set(piece);
            arrived++;
            moved = nowMs;
            advance(nowMs, out);
        }
        return out;
    }

    /** A piece came damaged, and its sender is asked for it once more. */
    void damaged(int sender) {
        damaging.add(sender);
    }

    /**
     * A sender cannot be reached, or fails to send a piece.
     *
     * @param damage a piece came damaged twice. What several senders damage is damaged by this executor or its link
     */
    List<Instruction> failed(int sender, boolean damage, String why) {
        List<Instruction> out = new ArrayList<>();
        int culprit = damaging.size() > 1 ? me : sender;
        if (damage && culprit != DRIVER) {
            out.add(performer -> performer.blame(culprit, why));
        }
        if (over) {
            return out;
        }
        if (sender == DRIVER) {
            over = true;
            out.add(performer -> performer.fail(why));
        } else {
            giveUp(sender, out);
        }
        return out;
    }

    /**
     * Time has passed.
     *
     * @param heardMs when bytes of the driver's last came
     */
    List<Instruction> tick(long heardMs, long nowMs) {
        List<Instruction> out = new ArrayList<>();
        if (!over && bringing && ownTook < 0 && nowMs - Math.max(moved, heardMs) > TimeOuts.RELAY_SILENCE_MS) {
            bringing = false;
            askDriver(own(), out);
        }
        if (!over && ownTook >= 0 && nowMs - moved > Math.max(TimeOuts.RELAY_SILENCE_MS, 3 * ownTook)) {
            for (int owner = 0; owner < batches.size(); owner++) {
                if (owner != me) {
                    giveUp(owner, out);
                }
            }
        }
        return out;
    }

    /** Whether all own pieces were pushed. */
    boolean hasPushed() {
        return batches.get(me).stream().allMatch(batch -> batch.state == State.PUSHED);
    }

    /** Ends the relay. Damage in what is still under way is reported all the same. */
    void abandon() {
        over = true;
    }

    private void advance(long nowMs, List<Instruction> out) {
        boolean all = true;
        for (Batch batch : batches.get(me)) {
            if (batch.state == State.FROM_DRIVER) {
                if (missing(batch).isEmpty()) {
                    batch.state = State.PUSHED;
                    out.add(performer -> performer.push(batch.pieces));
                } else {
                    all = false;
                }
            }
        }
        if (all && ownTook < 0) {
            ownTook = nowMs - began;
        }
        if (arrived == pieces) {
            over = true;
            out.add(Performer::done);
        }
    }

    private void giveUp(int owner, List<Instruction> out) {
        for (Batch batch : batches.get(owner)) {
            if (batch.state != State.FROM_DRIVER) {
                batch.state = State.FROM_DRIVER;
                askDriver(missing(batch), out);
            }
        }
    }

    private static void askDriver(List<Integer> wanted, List<Instruction> out) {
        if (!wanted.isEmpty()) {
            out.add(performer -> performer.askDriver(wanted));
        }
    }

    private List<Integer> missing(Batch batch) {
        List<Integer> missing = new ArrayList<>();
        batch.pieces.stream().filter(piece -> !here.get(piece)).forEach(missing::add);
        return missing;
    }
}
