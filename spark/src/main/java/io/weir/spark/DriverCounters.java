package io.weir.spark;

import com.codahale.metrics.Counter;
import com.codahale.metrics.MetricRegistry;
import java.util.HashMap;
import java.util.Map;

/** What the driver counts for Spark's metrics system: how coflows ended, and sums over executors. docs/spark.md describes the names. */
final class DriverCounters {
    final Counter completedCoflows;
    final Counter failedCoflows;
    private final Map<String, Counter> sums = new HashMap<>();

    /** Creates all counters: Spark publishes those that exist when the plugin has started. */
    DriverCounters(MetricRegistry registry) {
        completedCoflows = registry.counter("coflows.completed");
        failedCoflows = registry.counter("coflows.failed");
        sums.put(PathCounts.DIRECT, registry.counter(PathCounts.DIRECT));
        sums.put(PathCounts.FALLBACK, registry.counter(PathCounts.FALLBACK));
        Counters.pathNames().forEach(name -> sums.put(name, registry.counter(name)));
    }

    /** Adds counts of an executor. */
    void add(Map<String, Long> counts) {
        counts.forEach((name, count) -> {
            Counter sum = sums.get(name);
            if (sum == null) {
                return;
            }
            sum.inc(count);
            int end = name.lastIndexOf('.');
            Counter ofPath = name.equals(PathCounts.RELAYED) ? null : sums.get(name.substring(0, end));
            if (ofPath != null) {
                ofPath.inc(count);
            }
        });
    }
}
