package io.weir.spark;

import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;

/**
 * How the data of shuffles arrived: flows over a relay, flows sent directly, and blocks that Spark fetched, by reason. Keys are the names
 * of the counters with these facts. An executor collects counts for the driver; the driver keeps those of each shuffle.
 */
final class PathCounts {
    static final String RELAYED = "sent.relay.flows";
    static final String DIRECT = "sent.direct.flows";
    static final String FALLBACK = "fallback.blocks";
    /** Maximum length of a description in characters: that of a reason at the coordinator. */
    static final int MAX_LENGTH = 200;

    /** Beyond this number of kinds, a kind may be reported at once again. */
    private static final int MAX_KINDS = 10_000;

    // Guarded by this.
    private Map<Integer, Map<String, Long>> pending = new HashMap<>();
    private final Set<String> kinds = new HashSet<>();

    /** The counter of a path with this reason. */
    static String name(String path, String reason) {
        return path + "." + reason;
    }

    /** Adds to a count of a shuffle. Returns whether this fallback is the first of its kind, which the driver should receive at once. */
    synchronized boolean add(int shuffle, String name, long count) {
        pending.computeIfAbsent(shuffle, s -> new TreeMap<>()).merge(name, count, Long::sum);
        if (kinds.size() >= MAX_KINDS) {
            kinds.clear();
        }
        return !name.equals(RELAYED) && kinds.add(shuffle + " " + name);
    }

    /** The counts by shuffle since the last call. */
    synchronized Map<Integer, Map<String, Long>> take() {
        Map<Integer, Map<String, Long>> taken = pending;
        pending = taken.isEmpty() ? taken : new HashMap<>();
        return taken.isEmpty() ? Collections.emptyMap() : taken;
    }

    static boolean hasFallback(Map<String, Long> counts) {
        return counts.keySet().stream().anyMatch(name -> !name.equals(RELAYED));
    }

    /** The counts of one shuffle in words; reasons with high counts are first. If the text is too long, the last ones are missing. */
    static String describe(Map<String, Long> counts) {
        int maxReasons = counts.size();
        String text = describe(counts, maxReasons);
        while (text.length() > MAX_LENGTH && maxReasons > 0) {
            maxReasons--;
            text = describe(counts, maxReasons);
        }
        return text;
    }

    /** `maxReasons`: that of each path. */
    private static String describe(Map<String, Long> counts, int maxReasons) {
        StringBuilder text = new StringBuilder("over relays: ").append(counts.getOrDefault(RELAYED, 0L)).append(" flows");
        append(text, "direct: ", " flows", DIRECT, counts, maxReasons);
        append(text, "Spark's own fetch: ", " blocks", FALLBACK, counts, maxReasons);
        return text.toString();
    }

    private static void append(StringBuilder text, String subject, String unit, String path, Map<String, Long> counts, int maxReasons) {
        Map<String, Long> byReason = new TreeMap<>();
        counts.forEach((name, count) -> {
            if (name.startsWith(path + ".")) {
                byReason.put(name.substring(path.length() + 1), count);
            }
        });
        if (byReason.isEmpty()) {
            return;
        }
        long sum = byReason.values().stream().mapToLong(Long::longValue).sum();
        text.append("; ").append(subject).append(sum).append(unit);
        if (maxReasons > 0) {
            text.append(byReason.keySet().stream()
                    .sorted((a, b) -> Long.compare(byReason.get(b), byReason.get(a)))
                    .limit(maxReasons)
                    .map(reason -> reason + " " + byReason.get(reason))
                    .collect(Collectors.joining(", ", " (", byReason.size() > maxReasons ? ", ...)" : ")")));
        }
    }
}
