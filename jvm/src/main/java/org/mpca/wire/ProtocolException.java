package org.mpca.wire;

import java.io.IOException;

/** The peer sent bytes, or made a move, that the protocol does not allow. Nothing was changed on our side. */
public final class ProtocolException extends IOException {
    private static final long serialVersionUID = 1L;

    public ProtocolException(String message) {
        super(message);
    }
}
