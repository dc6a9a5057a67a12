package io.weir.spark;

import io.weir.flow.HostPort;
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
