package org.mpca.bridge;

import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.FilterConfig;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;

/**
 * Lets only the user whose process this is see Spark's web pages, on the machine itself. A local cluster's Master and Workers
 * serve theirs whatever <code>spark.ui.enabled</code> says; they show executors' logs, and one ends applications. Spark's own
 * access lists let a request pass that has no user name.
 *
 * <p>Made and called by Jetty's threads; keeps only what does not change. The twin in src/spark3 has other imports.
 */
public final class OwnerFilter implements Filter {
    private PageOwner owner;

    @Override
    public void init(FilterConfig config) throws ServletException {
        try {
            owner = new PageOwner();
        } catch (IOException | RuntimeException error) {
            throw new ServletException("whose process this is cannot be told", error);
        }
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        if (owner.asks(
                request.getRemoteAddr(), request.getRemotePort(), request.getLocalAddr(), request.getLocalPort())) {
            chain.doFilter(request, response);
        } else {
            ((HttpServletResponse) response).sendError(HttpServletResponse.SC_FORBIDDEN);
        }
    }

    @Override
    public void destroy() {}
}
