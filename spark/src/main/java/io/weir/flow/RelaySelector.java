package io.weir.flow;

/** Selects the relay of each connection of one flow, and receives the results. The thread that writes the flow calls it. */
public interface RelaySelector {
    /** The relay of the next connection; null: directly to the receiver. Returns no relay twice. */
    HostPort select();

    /** A relay has accepted a connection. */
    void onConnected(HostPort relay);

    /** A connection to a relay could not be opened. The flow uses the next selected relay. */
    void onConnectFailure(HostPort relay, String problem);

    /** The flow continues directly, since the relay has ended its connections for this reason. */
    void onBypass(HostPort relay, Reset reason);
}
