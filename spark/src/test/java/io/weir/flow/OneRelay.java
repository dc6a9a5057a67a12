package io.weir.flow;

/** Selects one relay, and keeps what the flow reports about it. */
final class OneRelay implements RelaySelector {
    /** What the flow has reported: the reason of a bypass, or the problem of a connection; null: nothing. */
    volatile String problem;
    private HostPort next;

    /** Null: the flow is direct. */
    OneRelay(HostPort relay) {
        next = relay;
    }

    @Override
    public HostPort select() {
        HostPort selected = next;
        next = null;
        return selected;
    }

    @Override
    public void onConnected(HostPort relay) {}

    @Override
    public void onConnectFailure(HostPort relay, String problem) {
        this.problem = problem;
    }

    @Override
    public void onBypass(HostPort relay, Reset reason) {
        this.problem = reason.toString();
    }
}
