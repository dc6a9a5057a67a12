package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.codahale.metrics.MetricRegistry;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class PathCountsTest {
    @Test
    void executor_reports_counts_by_shuffle_once_and_new_reasons_at_once() {
        AtomicInteger reports = new AtomicInteger();
        Counters counters = new Counters(new MetricRegistry(), reports::incrementAndGet);
        counters.countRelayed(1, 100);
        assertEquals(0, reports.get());
        counters.countDirect(1, "lost", 100);
        counters.countDirect(1, "lost", 100);
        assertEquals(1, reports.get());
        counters.countDirect(2, Counters.RELAY_PAUSED, 100);
        counters.countFallback(2, Counters.Fallback.FLOW_FAILED, 7);
        assertEquals(3, reports.get());
        Map<String, Long> first = Map.of("sent.relay.flows", 1L, "sent.direct.flows.lost", 2L);
        Map<String, Long> second = Map.of("sent.direct.flows.relay-paused", 1L, "fallback.blocks.flow-failed", 7L);
        assertEquals(Map.of(1, first, 2, second), counters.takeByShuffle());
        assertEquals(Map.of(), counters.takeByShuffle());
    }

    @Test
    void driver_sums_the_counts_of_executors() {
        MetricRegistry metrics = new MetricRegistry();
        DriverCounters counters = new DriverCounters(metrics);
        counters.add(Map.of("sent.relay.flows", 3L, "sent.direct.flows.lost", 2L));
        counters.add(Map.of("sent.direct.flows.busy", 4L, "fallback.blocks.no-number", 5L, "sent.direct.flows.of-a-later-version", 9L));
        assertEquals(3, metrics.counter("sent.relay.flows").getCount());
        assertEquals(6, metrics.counter("sent.direct.flows").getCount());
        assertEquals(2, metrics.counter("sent.direct.flows.lost").getCount());
        assertEquals(5, metrics.counter("fallback.blocks").getCount());
        assertEquals(0, metrics.counter("fallback.blocks.flow-failed").getCount());
    }

    @Test
    void counts_are_described_with_the_most_frequent_reason_first() {
        Map<String, Long> relayed = Map.of("sent.relay.flows", 3L);
        assertFalse(PathCounts.hasFallback(relayed));
        assertEquals("over relays: 3 flows", PathCounts.describe(relayed));
        Map<String, Long> direct = Map.of("sent.direct.flows.lost", 2L, "sent.direct.flows.no-relay", 9L);
        assertTrue(PathCounts.hasFallback(direct));
        assertEquals("over relays: 0 flows; direct: 11 flows (no-relay 9, lost 2)", PathCounts.describe(direct));
    }

    @Test
    void long_description_has_all_sums_and_the_most_frequent_reasons_as_a_whole() {
        Map<String, Long> counts = new HashMap<>();
        Counters.pathNames().forEach(name -> counts.put(name, 10_480L));
        counts.put("sent.direct.flows.relay-paused", 20_480L);
        counts.put("fallback.blocks.no-number", 30_480L);
        String text = PathCounts.describe(counts);
        assertEquals("over relays: 10480 flows; direct: 83360 flows (relay-paused 20480, busy 10480, corrupt 10480, ...); "
                + "Spark's own fetch: 82880 blocks (no-number 30480, flow-failed 10480, inactive 10480, ...)", text);
        assertEquals(text, CoordinatorClient.toReason(text));
        // One reason more would not fit.
        assertTrue(text.length() + ", lost 10480, peer-paused 10480".length() > PathCounts.MAX_LENGTH);
        counts.replaceAll((name, count) -> Long.MAX_VALUE / 10);
        String longest = PathCounts.describe(counts);
        assertTrue(longest.startsWith("over relays: " + Long.MAX_VALUE / 10 + " flows; direct: "), longest);
        assertTrue(longest.length() <= PathCounts.MAX_LENGTH && longest.contains("Spark's own fetch: "), longest);
    }
}
