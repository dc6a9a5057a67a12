package io.weir.spark;

import io.weir.flow.FlowTls;
import io.weir.flow.HostPort;
import io.weir.flow.RelayProbe;
import io.weir.flow.RelaySelector;
import io.weir.flow.Reset;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;

/**
 * The relays of this executor's region. Flows divide among them by their numbers, except those that are paused:
 *
 * - a relay that cannot be reached, for all coflows. The pause doubles with each failure. After the pause, one flow tries the relay;
 *   others follow when it is connected.
 * - a relay that does not know a coflow, or that lost flows of it, for this coflow.
 *
 * Other reasons may be those of one receiver, so they pause nothing.
 */
final class Relays {
    static final long MIN_PAUSE_NANOS = TimeUnit.SECONDS.toNanos(5);
    static final long MAX_PAUSE_NANOS = TimeUnit.SECONDS.toNanos(60);

    /** Receives problems of relays. */
    interface Problems {
        void report(HostPort relay, String problem);
    }

    /** A relay that could not be reached, until a connection succeeds. */
    private static final class Pause {
        long lengthNanos = MIN_PAUSE_NANOS;
        long endNanos;
        /** Whether a flow tries the relay after the pause. */
        boolean isTried;
    }

    private final List<HostPort> relays;
    private final Problems problems;
    private final LongSupplier clock;

    // Guarded by this.
    private final Map<HostPort, Pause> pauses = new HashMap<>();
    /** By relay and coflow: the end of the pause. */
    private final Map<String, Long> coflowPauses = new HashMap<>();

    /** `clock`: {@code System::nanoTime}. */
    Relays(List<HostPort> relays, Problems problems, LongSupplier clock) {
        this.relays = relays;
        this.problems = problems;
        this.clock = clock;
    }

    boolean isEmpty() {
        return relays.isEmpty();
    }

    /** The relays of one flow, each at most once. */
    RelaySelector of(String coflow, long flow) {
        return new OfFlow(coflow, flow);
    }

    /** Probes all relays. Waits for up to 15 s for each one. `receiver`: the address of this executor. */
    void probe(HostPort receiver, FlowTls tls) {
        for (HostPort relay : relays) {
            String problem = RelayProbe.findProblem(relay, receiver, tls);
            if (problem == null) {
                resume(relay);
            } else {
                pause(relay, problem);
            }
        }
    }

    private final class OfFlow implements RelaySelector {
        private final String coflow;
        private final long flow;
        private final Set<HostPort> used = new HashSet<>();

        OfFlow(String coflow, long flow) {
            this.coflow = coflow;
            this.flow = flow;
        }

        @Override
        public HostPort select() {
            for (int at = 0; at < relays.size(); at++) {
                HostPort relay = relays.get((index(flow, relays.size()) + at) % relays.size());
                if (!used.contains(relay) && admit(relay, coflow)) {
                    used.add(relay);
                    return relay;
                }
            }
            return null;
        }

        @Override
        public void onConnected(HostPort relay) {
            resume(relay);
        }

        @Override
        public void onConnectFailure(HostPort relay, String problem) {
            pause(relay, problem);
        }

        @Override
        public void onBypass(HostPort relay, Reset reason) {
            if (reason == Reset.LOST || reason == Reset.UNKNOWN_COFLOW) {
                pauseFor(relay, coflow);
            }
            problems.report(relay, reason.toString());
        }
    }

    /**
     * The position of a flow's first relay: the finalizer of MurmurHash3. The relay chooses among those of the next region by another hash,
     * so each relay sends to all of them.
     */
    static int index(long flow, int count) {
        long hash = (flow ^ flow >>> 33) * 0xff51afd7ed558ccdL;
        hash = (hash ^ hash >>> 33) * 0xc4ceb9fe1a85ec53L;
        return (int) Long.remainderUnsigned(hash ^ hash >>> 33, count);
    }

    /** Whether a flow of a coflow may use a relay. */
    private synchronized boolean admit(HostPort relay, String coflow) {
        long now = clock.getAsLong();
        coflowPauses.values().removeIf(end -> end - now <= 0);
        if (coflowPauses.containsKey(key(relay, coflow))) {
            return false;
        }
        Pause pause = pauses.get(relay);
        if (pause == null) {
            return true;
        }
        if (pause.endNanos - now > 0) {
            return false;
        }
        // Until the result of this flow, others do not wait for the relay. Without a result, another flow tries it.
        pause.isTried = true;
        pause.endNanos = now + MIN_PAUSE_NANOS;
        return true;
    }

    private void pause(HostPort relay, String problem) {
        synchronized (this) {
            long now = clock.getAsLong();
            Pause pause = pauses.get(relay);
            if (pause == null) {
                pause = new Pause();
                pause.endNanos = now + pause.lengthNanos;
                pauses.put(relay, pause);
            } else if (pause.isTried) {
                pause.isTried = false;
                pause.lengthNanos = Math.min(2 * pause.lengthNanos, MAX_PAUSE_NANOS);
                pause.endNanos = now + pause.lengthNanos;
            }
            // Otherwise the flow began to connect before the pause.
        }
        problems.report(relay, problem);
    }

    private synchronized void resume(HostPort relay) {
        pauses.remove(relay);
    }

    private synchronized void pauseFor(HostPort relay, String coflow) {
        coflowPauses.put(key(relay, coflow), clock.getAsLong() + MIN_PAUSE_NANOS);
    }

    private static String key(HostPort relay, String coflow) {
        return relay + " " + coflow;
    }
}
