package io.weir.spark;

import io.weir.flow.FlowSocket;
import io.weir.flow.FlowTls;
import io.weir.flow.HostPort;
import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/** The executors of the application: their regions and ports. */
final class Peers {
    private static final long UNKNOWN_NANOS = TimeUnit.SECONDS.toNanos(10);

    /** Queries the driver. */
    interface Lookup {
        Answer find(String executor) throws Exception;
    }

    /** Receives why this executor must not use flows any more. */
    interface RefusalListener {
        void onRefusal(String reason);
    }

    /** An executor. */
    static final class Peer {
        final String region;
        final HostPort address;

        Peer(String region, HostPort address) {
            this.region = region;
            this.address = address;
        }
    }

    /** The driver's answer about an executor. */
    static final class Answer {
        /** Null if no flow may use the executor, or the driver does not know it. */
        final Peer peer;
        /** Why the executor that queries must not use flows; null if it may. */
        final String refusal;
        /** Whether a later answer may be a refusal. */
        final boolean isProvisional;

        Answer(Peer peer, String refusal, boolean isProvisional) {
            this.peer = peer;
            this.refusal = refusal;
            this.isProvisional = isProvisional;
        }
    }

    private final Lookup lookup;
    private final RefusalListener refusals;
    private final Map<String, Peer> known = new ConcurrentHashMap<>();
    /** Executors to which no request is sent until the time given: after an error, and those that the driver does not know. */
    private final Map<String, Long> paused = new ConcurrentHashMap<>();
    private final Map<String, Long> unknown = new ConcurrentHashMap<>();
    private final long provisionalNanos;
    /** Until when known executors need no query; null: without end. */
    private volatile Long provisionalEnd;
    private volatile boolean isRefused;

    Peers(Lookup lookup, RefusalListener refusals) {
        this(lookup, refusals, UNKNOWN_NANOS);
    }

    /** `provisionalNanos`: the time between queries whether this executor is refused, as long as the driver does not know that. */
    Peers(Lookup lookup, RefusalListener refusals, long provisionalNanos) {
        this.lookup = lookup;
        this.refusals = refusals;
        this.provisionalNanos = provisionalNanos;
    }

    /** The executor; null if the driver does not know it, or one of the two must not use flows. */
    Peer find(String executor) {
        if (isRefused) {
            return null;
        }
        Peer peer = known.get(executor);
        Long end = provisionalEnd;
        boolean isStale = end != null && !isBefore(end);
        if (peer != null && !isStale || isBefore(unknown.get(executor))) {
            return peer;
        }
        if (isStale) {
            // One query is enough for all executors.
            provisionalEnd = System.nanoTime() + provisionalNanos;
        }
        try {
            Answer answer = lookup.find(executor);
            provisionalEnd = answer.isProvisional ? (Long) (System.nanoTime() + provisionalNanos) : null;
            peer = answer.peer;
            if (answer.refusal != null) {
                isRefused = true;
                refusals.onRefusal(answer.refusal);
                return null;
            }
        } catch (Exception e) {
            // The driver may be busy: Spark's own fetch needs no answer.
        }
        if (peer == null) {
            known.remove(executor);
            unknown.put(executor, System.nanoTime() + UNKNOWN_NANOS);
        } else {
            known.put(executor, peer);
        }
        return peer;
    }

    /**
     * Connects to an executor. After a failure, the driver is queried again: it does not know executors that have exited.
     *
     * @param tls null: plain text
     * @param millis the timeout of the connection
     */
    FlowSocket connect(String executor, Peer peer, FlowTls tls, int millis) throws IOException {
        try {
            return FlowSocket.connect(peer.address, tls, false, millis);
        } catch (IOException | RuntimeException e) {
            known.remove(executor, peer);
            throw e;
        }
    }

    /** Whether an error has occurred shortly before. */
    boolean isPaused(String executor) {
        return isBefore(paused.get(executor));
    }

    /**
     * Sends no request to an executor for some time. Returns false if it was paused already. The driver is queried again: it may have
     * refused the executor meanwhile.
     */
    boolean pause(String executor, long nanos) {
        known.remove(executor);
        return !isBefore(paused.put(executor, System.nanoTime() + nanos));
    }

    private static boolean isBefore(Long end) {
        return end != null && end - System.nanoTime() > 0;
    }
}
