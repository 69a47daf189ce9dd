package org.mpca.bridge;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;

/**
 * Whether a request comes from the user whose process this is, on the machine itself: see OwnerFilter. Who is at the other end
 * the kernel knows ({@link LoopbackPeer}).
 *
 * <p>Keeps only what does not change; any thread may ask.
 */
final class PageOwner {
    private static final Path SELF = Paths.get("/proc/self");
    private static final Path[] TABLES = {Paths.get("/proc/net/tcp"), Paths.get("/proc/net/tcp6")};

    private final long owner;

    PageOwner() throws IOException {
        owner = ((Number) Files.getAttribute(SELF, "unix:uid")).longValue();
    }

    boolean asks(String theirs, int theirPort, String ours, int ourPort) throws IOException {
        InetSocketAddress from = new InetSocketAddress(theirs, theirPort);
        return LoopbackPeer.user(from, new InetSocketAddress(ours, ourPort), sockets()) == owner;
    }

    private static List<String> sockets() throws IOException {
        List<String> lines = new ArrayList<>();
        for (Path table : TABLES) {
            if (Files.exists(table)) { // none for IPv6 where the kernel has none
                lines.addAll(Files.readAllLines(table, StandardCharsets.US_ASCII));
            }
        }
        return lines;
    }
}
