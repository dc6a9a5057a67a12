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

    /** Queries the driver. Returns null if it does not know the executor. */
    interface Lookup {
        Peer find(String executor) throws Exception;
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

    private final Lookup lookup;
    private final Map<String, Peer> known = new ConcurrentHashMap<>();
    /** Executors to which no request is sent until the time given: after an error, and those that the driver does not know. */
    private final Map<String, Long> paused = new ConcurrentHashMap<>();
    private final Map<String, Long> unknown = new ConcurrentHashMap<>();

    Peers(Lookup lookup) {
        this.lookup = lookup;
    }

    /** The executor; null if the driver does not know it. */
    Peer find(String executor) {
        Peer peer = known.get(executor);
        if (peer == null && !isBefore(unknown.get(executor))) {
            try {
                peer = lookup.find(executor);
            } catch (Exception e) {
                // The driver may be busy: Spark's own fetch needs no answer.
            }
            if (peer == null) {
                unknown.put(executor, System.nanoTime() + UNKNOWN_NANOS);
            } else {
                known.put(executor, peer);
            }
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

    /** Sends no request to an executor for some time. Returns false if it was paused already. */
    boolean pause(String executor, long nanos) {
        return !isBefore(paused.put(executor, System.nanoTime() + nanos));
    }

    private static boolean isBefore(Long end) {
        return end != null && end - System.nanoTime() > 0;
    }
}
