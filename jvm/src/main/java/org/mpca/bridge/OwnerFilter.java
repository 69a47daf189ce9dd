package org.mpca.bridge;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import javax.servlet.Filter;
import javax.servlet.FilterChain;
import javax.servlet.FilterConfig;
import javax.servlet.ServletException;
import javax.servlet.ServletRequest;
import javax.servlet.ServletResponse;
import javax.servlet.http.HttpServletResponse;

/**
 * Lets only the user whose process this is see Spark's web pages, on the machine itself. A local cluster's Master and Workers
 * serve theirs whatever <code>spark.ui.enabled</code> says; they show executors' logs, and one ends applications. Spark's own
 * access lists let a request pass that has no user name. Who is at the other end the kernel knows ({@link LoopbackPeer}).
 *
 * <p>Made and called by Jetty's threads; keeps only what does not change.
 */
public final class OwnerFilter implements Filter {
    private static final Path SELF = Paths.get("/proc/self");
    private static final Path[] TABLES = {Paths.get("/proc/net/tcp"), Paths.get("/proc/net/tcp6")};

    private long owner = -1;

    @Override
    public void init(FilterConfig config) throws ServletException {
        try {
            owner = ((Number) Files.getAttribute(SELF, "unix:uid")).longValue();
        } catch (IOException | RuntimeException error) {
            throw new ServletException("whose process this is cannot be told", error);
        }
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        InetSocketAddress theirs = new InetSocketAddress(request.getRemoteAddr(), request.getRemotePort());
        InetSocketAddress ours = new InetSocketAddress(request.getLocalAddr(), request.getLocalPort());
        if (LoopbackPeer.user(theirs, ours, sockets()) == owner) {
            chain.doFilter(request, response);
        } else {
            ((HttpServletResponse) response).sendError(HttpServletResponse.SC_FORBIDDEN);
        }
    }

    @Override
    public void destroy() {}

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
