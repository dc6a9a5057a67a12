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
    /** Executors to which no request is sent until the time given. */
    private final Map<String, Long> paused = new ConcurrentHashMap<>();

    Peers(Lookup lookup) {
        this.lookup = lookup;
    }

    /** The executor if requests can be sent to it; otherwise null. */
    Peer find(String executor) {
        Long until = paused.get(executor);
        if (until != null && until - System.nanoTime() > 0) {
            return null;
        }
        Peer peer = known.get(executor);
        if (peer == null) {
            try {
                peer = lookup.find(executor);
            } catch (Exception e) {
                // The driver may be busy: Spark's own fetch needs no answer.
            }
            if (peer == null) {
                pause(executor, UNKNOWN_NANOS);
            } else {
                known.put(executor, peer);
            }
        }
        return peer;
    }

    void pause(String executor, long nanos) {
        paused.put(executor, System.nanoTime() + nanos);
    }
}
