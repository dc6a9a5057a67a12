package io.weir.flow;

import java.util.Locale;

/** Why a receiver or a relay ends a connection. */
public enum Reset {
    UNKNOWN_COFLOW,
    BUSY,
    UNREACHABLE,
    LOST,
    CORRUPT,
    GAP,
    REPLACED,
    INVALID;

    /** Whether another connection cannot continue the flow. */
    boolean isFatal() {
        return this == GAP || this == REPLACED || this == INVALID;
    }

    /** Whether a flow bypasses its relay for this reason, at once or after some connections. */
    public boolean isOfRelay() {
        return !isFatal();
    }

    /** Whether the next connection bypasses the relay. */
    boolean requiresDirect() {
        return this == BUSY || this == UNREACHABLE || this == CORRUPT;
    }

    /** The reason with this word. A word of a later version counts as a lost connection. */
    static Reset parse(String word) {
        for (Reset reset : values()) {
            if (reset.toString().equals(word)) {
                return reset;
            }
        }
        return LOST;
    }

    @Override
    public String toString() {
        return name().toLowerCase(Locale.ROOT).replace('_', '-');
    }
}
