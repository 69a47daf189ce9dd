package org.mpca.rdd;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;

/**
 * How the blocks of a run are called. Every name carries run, term and the order or broadcast that made it, so that a
 * late push of a dead attempt can never be mistaken for something current.
 *
 * <pre>
 *   mpca_RUN_TERM_y_CYCLE_ORDER_EXECUTOR_CHUNK  a chunk of an executor's frozen part on that executor
 *   mpca_RUN_TERM_p_CYCLE_ORDER_BYTES_EXECUTOR  a range of such chunks              streamed to who sums it, no block there
 *   mpca_RUN_TERM_r_ORDER_CHUNK           a chunk of a sum                          streamed to the driver, no block there
 *   mpca_RUN_TERM_s_ORDER_CHUNK           the same chunk, in case it is damaged on its way on its executor
 *   mpca_RUN_TERM_b_ID_PIECE              a piece of a broadcast                    on driver and owner
 *   mpca_RUN_TERM_d_SHARD_VERSION_CRC_PIECE  a piece of a codec's base, in full     on the driver
 *   mpca_RUN_TERM_x_AGENT_INC_NUMBER      what an agent sent to the server          on its executor
 *   mpca_RUN_TERM_a_AGENT_INC_NUMBER      the server's answer to it                 on the driver
 *   mpca_RUN_TERM_m_ID_FIRST_STEP_NUMBER_BYTES_EXECUTOR  an owner's pieces          streamed to the other owners, no block there
 * </pre>
 * Immutable.
 */
final class BlockNames implements Serializable {
    private static final long serialVersionUID = 1;

    private final String prefix;

    BlockNames(String run, int term) {
        this.prefix = ofAttempt(run, term);
    }

    /** What all our names start with. */
    static final String ALL = "mpca_";

    /** The prefix of all names of a run, in all attempts of the driver. */
    static String ofRun(String run) {
        // An underscore ends a field here, so that no run's prefix is another one's; a run's name has no tilde.
        return ALL + run.replace('_', '~') + "_";
    }

    /** The prefix of all names of a run in one attempt of the driver. */
    static String ofAttempt(String run, int term) {
        return ofRun(run) + term + "_";
    }

    String parts(long cycle, long order, String executor) {
        return prefix + "y_" + cycle + "_" + order + "_" + executor + "_";
    }

    /** So many bytes of an executor's part, checksums included. */
    String pushedPart(long cycle, long order, int bytes, String executor) {
        return prefix + "p_" + cycle + "_" + order + "_" + bytes + "_" + executor;
    }

    String sums() {
        return prefix + "r_";
    }

    String sum(long order) {
        return sums() + order + "_";
    }

    String kept(long order) {
        return prefix + "s_" + order + "_";
    }

    String pieces(int broadcast) {
        return prefix + "b_" + broadcast + "_";
    }

    String base(int shard, long version, long crc) {
        return prefix + "d_" + shard + "_" + version + "_" + crc + "_";
    }

    String sent(int agent, int incarnation, int number) {
        return prefix + "x_" + agent + "_" + incarnation + "_" + number + "_";
    }

    String answer(int agent, int incarnation, int number) {
        return prefix + "a_" + agent + "_" + incarnation + "_" + number + "_";
    }

    /** So many pieces, first, first + step, ..., with their checksums, which `executor` owns. */
    String pushedPieces(int broadcast, int first, int step, int number, int bytes, String executor) {
        return prefix + "m_" + broadcast + "_" + first + "_" + step + "_" + number + "_" + bytes + "_" + executor;
    }

    /** Whether a name is that of a chunk of a sum of any run. */
    static boolean isSum(String name) {
        return name.startsWith("r_", kindAt(name));
    }

    /** The {@link #sums} that a chunk of a sum is one of. */
    static String sumsOf(String name) {
        return name.substring(0, kindAt(name) + 2);
    }

    /** Where the letter is that says what something is; -1: no name of ours. */
    static int kindAt(String name) {
        int term = name.startsWith(ALL) ? name.indexOf('_', ALL.length()) + 1 : 0;
        int kind = term == 0 ? 0 : name.indexOf('_', term) + 1;
        return kind == 0 ? -1 : kind;
    }

    /** Names of the numbers from `first` to before `end` under a stem of this class. */
    static List<String> numbered(String stem, int first, int end) {
        List<String> names = new ArrayList<>(Math.max(0, end - first));
        for (int i = first; i < end; i++) {
            names.add(stem + i);
        }
        return names;
    }

    /** The {@link #ofRun} of one of our names. */
    static String runOf(String name) {
        return name.substring(0, name.indexOf('_', ALL.length()) + 1);
    }

    /** The last number of a name: chunk or piece. */
    static int number(String name) {
        return Integer.parseInt(name.substring(name.lastIndexOf('_') + 1));
    }

    /** The first number after a stem of this class: the order of a sum's chunk. */
    static long numberAfter(String stem, String name) {
        return Long.parseLong(name.substring(stem.length(), name.indexOf('_', stem.length())));
    }
}
