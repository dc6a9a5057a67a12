package io.weir.spark;

import com.codahale.metrics.Counter;
import java.util.HashSet;
import java.util.Set;
import org.slf4j.Logger;

/** Logs each problem once: executors have the same ones. */
final class Problems {
    /** Further ones are counted only. */
    private static final int MAX_LOGGED = 50;

    private final Logger log;
    private final Counter counter;
    // Guarded by this.
    private final Set<String> logged = new HashSet<>();

    Problems(Logger log, Counter counter) {
        this.log = log;
        this.counter = counter;
    }

    /** `kind` identifies the problem; `text` may name one of the executors that have it. */
    synchronized void report(String kind, String text) {
        counter.inc();
        if (!logged.contains(kind) && logged.size() < MAX_LOGGED) {
            logged.add(kind);
            log.warn(text);
        }
    }

    /** Logs a problem that has begun again. */
    void repeat(String text) {
        counter.inc();
        log.warn(text);
    }
}
