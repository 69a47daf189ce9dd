package org.mpca.bridge;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteOrder;
import java.util.List;

/**
 * Which user is at the other end of a connection within this machine, out of the kernel's table of sockets:
 *
 * <pre>
 *   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
 *    1: 0100007F:D2F0 0100007F:1F90 01 00000000:00000000 00:00000000 00000000 65534        0 43215 ...
 * </pre>
 *
 * Addresses are in words of four bytes as the processor keeps them. Only a connection that is established (01) and has a
 * process (inode) counts: one that its process has left may be shown as root's.
 */
final class LoopbackPeer {
    static final long NOBODY = -1;

    private static final int LOCAL = 1;
    private static final int REMOTE = 2;
    private static final int STATE = 3;
    private static final int USER = 7;
    private static final int INODE = 9;
    private static final String ESTABLISHED = "01";

    private LoopbackPeer() {}

    /** The user of the socket that is bound to theirs and connected to ours, or NOBODY. */
    static long user(InetSocketAddress theirs, InetSocketAddress ours, List<String> lines) {
        for (String line : lines) {
            String[] words = line.trim().split("\\s+");
            if (words.length > INODE
                    && words[STATE].equals(ESTABLISHED)
                    && !words[INODE].equals("0")
                    && theirs.equals(address(words[LOCAL]))
                    && ours.equals(address(words[REMOTE]))) {
                return Long.parseLong(words[USER]);
            }
        }
        return NOBODY;
    }

    private static InetSocketAddress address(String text) {
        int colon = text.indexOf(':');
        byte[] bytes = new byte[colon / 2];
        boolean little = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;
        for (int at = 0; at < bytes.length; at++) {
            int from = little ? at ^ 3 : at;
            bytes[at] = (byte) Integer.parseInt(text.substring(2 * from, 2 * from + 2), 16);
        }
        try {
            // Makes an IPv4 address of one that is mapped into IPv6.
            return new InetSocketAddress(
                    InetAddress.getByAddress(bytes), Integer.parseInt(text.substring(colon + 1), 16));
        } catch (UnknownHostException impossible) {
            throw new IllegalArgumentException("no address: " + text, impossible);
        }
    }
}
