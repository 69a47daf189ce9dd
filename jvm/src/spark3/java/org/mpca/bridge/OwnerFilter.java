package org.mpca.bridge;

import java.io.IOException;
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
 * access lists let a request pass that has no user name.
 *
 * <p>Made and called by Jetty's threads; keeps only what does not change. The twin in src/spark4 has the imports of Jakarta.
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
