package io.weir.spark;

import com.codahale.metrics.Counter;
import com.codahale.metrics.MetricRegistry;
import io.weir.flow.Reset;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** What an executor counts for Spark's metrics system. docs/spark.md describes the names. */
final class Counters {
    /** Why Spark fetches blocks of other executors. */
    enum Fallback {
        /** The flow of the blocks has failed. */
        FLOW_FAILED("flow-failed"),
        /** A flow of the same executor has failed shortly before. */
        PEER_PAUSED("peer-paused"),
        /** The driver knows no Weir in the other executor. */
        PEER_UNKNOWN("peer-unknown"),
        /** This executor has no number, or all numbers of the group are in use. */
        NO_NUMBER("no-number"),
        /** The task is one of a later attempt of its stage, which uses Spark's own fetch only. */
        STAGE_ATTEMPT("stage-attempt"),
        /** Weir is not active in this executor. */
        INACTIVE("inactive");

        final String word;

        Fallback(String word) {
            this.word = word;
        }
    }

    /** Flows that had no relay from the beginning. */
    static final String NO_RELAY = "no-relay";
    /** Flows whose relays had all failed shortly before. */
    static final String RELAY_PAUSED = "relay-paused";

    final Counter flowBlocks;
    final Counter flowBytes;
    private final Counter fallbackBlocks;
    private final Counter relayBytes;
    private final Counter directFlows;
    private final Counter directBytes;
    private final Map<String, Counter> byReason = new TreeMap<>();
    private final PathCounts byShuffle = new PathCounts();
    private final Runnable onNewFallback;

    /**
     * Creates all counters: Spark publishes those that exist when the plugin has started.
     *
     * @param onNewFallback called after a fallback whose reason is new for its shuffle
     */
    Counters(MetricRegistry registry, Runnable onNewFallback) {
        this.onNewFallback = onNewFallback;
        flowBlocks = registry.counter("flow.blocks");
        flowBytes = registry.counter("flow.bytes");
        fallbackBlocks = registry.counter(PathCounts.FALLBACK);
        relayBytes = registry.counter("sent.relay.bytes");
        directFlows = registry.counter(PathCounts.DIRECT);
        directBytes = registry.counter("sent.direct.bytes");
        pathNames().forEach(name -> byReason.put(name, registry.counter(name)));
    }

    /** The names of counters of flows over a relay, and of fallbacks by reason. */
    static List<String> pathNames() {
        List<String> names = new ArrayList<>();
        names.add(PathCounts.RELAYED);
        for (Fallback reason : Fallback.values()) {
            names.add(PathCounts.name(PathCounts.FALLBACK, reason.word));
        }
        for (Reset reason : Reset.values()) {
            if (reason.isOfRelay()) {
                names.add(PathCounts.name(PathCounts.DIRECT, reason.toString()));
            }
        }
        names.add(PathCounts.name(PathCounts.DIRECT, NO_RELAY));
        names.add(PathCounts.name(PathCounts.DIRECT, RELAY_PAUSED));
        return names;
    }

    void countBlock(long bytes) {
        flowBlocks.inc();
        flowBytes.inc(bytes);
    }

    void countFallback(int shuffle, Fallback reason, int blocks) {
        fallbackBlocks.inc(blocks);
        countPath(shuffle, PathCounts.name(PathCounts.FALLBACK, reason.word), blocks);
    }

    void countRelayed(int shuffle, long bytes) {
        relayBytes.inc(bytes);
        countPath(shuffle, PathCounts.RELAYED, 1);
    }

    void countDirect(int shuffle, String reason, long bytes) {
        directFlows.inc();
        directBytes.inc(bytes);
        countPath(shuffle, PathCounts.name(PathCounts.DIRECT, reason), 1);
    }

    private void countPath(int shuffle, String name, long count) {
        byReason.get(name).inc(count);
        if (byShuffle.add(shuffle, name, count)) {
            onNewFallback.run();
        }
    }

    /** The counts of flows and fallbacks by shuffle since the last call. */
    Map<Integer, Map<String, Long>> takeByShuffle() {
        return byShuffle.take();
    }

    long fallbackBlocks(Fallback reason) {
        return byReason.get(PathCounts.name(PathCounts.FALLBACK, reason.word)).getCount();
    }
}
