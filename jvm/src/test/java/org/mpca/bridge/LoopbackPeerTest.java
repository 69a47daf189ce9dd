package org.mpca.bridge;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Whose connection it is: as the kernel here tells it, and with lines that a test could not bring about. */
class LoopbackPeerTest {
    private static final String HEAD =
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";

    @Test
    @SuppressWarnings("try") // closes the client before its time
    void shouldKnowTheUserOfALivingConnection() throws IOException {
        long me = ((Number) Files.getAttribute(Paths.get("/proc/self"), "unix:uid")).longValue();
        for (String name : new String[] {"127.0.0.1", "127.0.0.7"}) {
            try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getByName(name));
                    Socket client = new Socket(server.getInetAddress(), server.getLocalPort());
                    Socket accepted = server.accept()) {
                InetSocketAddress theirs = (InetSocketAddress) accepted.getRemoteSocketAddress();
                InetSocketAddress ours = (InetSocketAddress) accepted.getLocalSocketAddress();
                assertEquals(client.getLocalPort(), theirs.getPort());
                assertEquals(me, LoopbackPeer.user(theirs, ours, table()));
                client.shutdownOutput();
                assertEquals(LoopbackPeer.NOBODY, LoopbackPeer.user(theirs, ours, table()), "half closed");
                client.close();
                assertEquals(LoopbackPeer.NOBODY, LoopbackPeer.user(theirs, ours, table()), "gone");
            }
        }
    }

    @Test
    void shouldTakeTheOtherEndsLineAndNotItsOwn() {
        String own =
                "   0: 0100007F:1F90 0100007F:D2F0 01 00000000:00000000 00:00000000 00000000     0        0 7 1 0 20 4 30 10 -1";
        String other =
                "   1: 0100007F:D2F0 0100007F:1F90 01 00000000:00000000 00:00000000 00000000 65534        0 8 1 0 20 4 30 10 -1";
        InetSocketAddress theirs = new InetSocketAddress("127.0.0.1", 0xD2F0);
        InetSocketAddress ours = new InetSocketAddress("127.0.0.1", 0x1F90);
        assertEquals(65534, LoopbackPeer.user(theirs, ours, Arrays.asList(HEAD, own, other)));
        assertEquals(LoopbackPeer.NOBODY, LoopbackPeer.user(theirs, ours, Arrays.asList(HEAD, own)));
        assertEquals(
                LoopbackPeer.NOBODY,
                LoopbackPeer.user(theirs, ours, Arrays.asList(HEAD, other.replace(" 0 8 1", " 0 0 1"))));
    }

    @Test
    void shouldReadAddressesOfBothKinds() {
        String mapped =
                "   0: 0000000000000000FFFF00000100007F:D2F0 0000000000000000FFFF00000100007F:1F90 01 00000000:00000000 00:00000000"
                        + " 00000000  1000        0 8 1 0 20 4 30 10 -1";
        InetSocketAddress theirs = new InetSocketAddress("127.0.0.1", 0xD2F0);
        InetSocketAddress ours = new InetSocketAddress("127.0.0.1", 0x1F90);
        assertEquals(1000, LoopbackPeer.user(theirs, ours, Arrays.asList(HEAD, mapped)));
        String six = mapped.replace("0000000000000000FFFF00000100007F", "00000000000000000000000001000000");
        assertEquals(
                1000,
                LoopbackPeer.user(
                        new InetSocketAddress("::1", 0xD2F0),
                        new InetSocketAddress("::1", 0x1F90),
                        Arrays.asList(HEAD, six)));
    }

    private static List<String> table() throws IOException {
        List<String> lines = new ArrayList<>();
        for (String name : new String[] {"/proc/net/tcp", "/proc/net/tcp6"}) {
            Path path = Paths.get(name);
            if (Files.exists(path)) {
                lines.addAll(Files.readAllLines(path));
            }
        }
        return lines;
    }
}
