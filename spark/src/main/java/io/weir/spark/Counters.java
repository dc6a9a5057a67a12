package io.weir.spark;

import com.codahale.metrics.Counter;
import com.codahale.metrics.MetricRegistry;
import io.weir.flow.Reset;
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
        NO_NUMBER("no-number");

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
    private final Counter relayFlows;
    private final Counter relayBytes;
    private final Counter directFlows;
    private final Counter directBytes;
    private final Map<String, Counter> byReason = new TreeMap<>();

    /** Creates all counters: Spark publishes those that exist when the plugin has started. */
    Counters(MetricRegistry registry) {
        flowBlocks = registry.counter("flow.blocks");
        flowBytes = registry.counter("flow.bytes");
        fallbackBlocks = registry.counter("fallback.blocks");
        relayFlows = registry.counter("sent.relay.flows");
        relayBytes = registry.counter("sent.relay.bytes");
        directFlows = registry.counter("sent.direct.flows");
        directBytes = registry.counter("sent.direct.bytes");
        for (Fallback reason : Fallback.values()) {
            add(registry, "fallback.blocks." + reason.word);
        }
        for (Reset reason : Reset.values()) {
            if (reason.isOfRelay()) {
                add(registry, "sent.direct.flows." + reason);
            }
        }
        add(registry, "sent.direct.flows." + NO_RELAY);
        add(registry, "sent.direct.flows." + RELAY_PAUSED);
    }

    private void add(MetricRegistry registry, String name) {
        byReason.put(name, registry.counter(name));
    }

    void countBlock(long bytes) {
        flowBlocks.inc();
        flowBytes.inc(bytes);
    }

    void countFallback(Fallback reason, int blocks) {
        fallbackBlocks.inc(blocks);
        byReason.get("fallback.blocks." + reason.word).inc(blocks);
    }

    void countRelayed(long bytes) {
        relayFlows.inc();
        relayBytes.inc(bytes);
    }

    void countDirect(String reason, long bytes) {
        directFlows.inc();
        directBytes.inc(bytes);
        byReason.get("sent.direct.flows." + reason).inc();
    }

    long fallbackBlocks(Fallback reason) {
        return byReason.get("fallback.blocks." + reason.word).getCount();
    }
}
