package io.weir.spark;

import java.util.BitSet;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * Bytes of one shuffle between regions.
 *
 * Map tasks report exact lengths by partition. Until the reader of a partition starts, its region is unknown: the partition counts at
 * each region by the region's share of cores. A reader that starts moves its partitions to its region.
 */
final class ShuffleSizes {
    private final BitSet maps = new BitSet();
    /** By region of the map tasks: bytes by partition. */
    private final Map<String, long[]> written = new TreeMap<>();
    /** By region of the readers: the fraction that they read by partition. */
    private final Map<String, double[]> read = new TreeMap<>();
    private final Set<String> readers = new HashSet<>();
    private final Set<Integer> activeStages = new HashSet<>();
    /** Bytes by pair of regions. The order of a pair never changes: its position is the index of a registered flow. */
    private final Map<String, Flow> flows = new LinkedHashMap<>();

    /** A flow group: everything from one region to another. */
    static final class Flow {
        final String from;
        final String to;
        long bytes;

        Flow(String from, String to) {
            this.from = from;
            this.to = to;
        }
    }

    /** Adds the output of a map task. Later attempts of the same task are ignored. */
    void addMapOutput(int map, String region, long[] lengths) {
        if (maps.get(map)) {
            return;
        }
        maps.set(map);
        long[] sums = written.computeIfAbsent(region, r -> new long[lengths.length]);
        for (int partition = 0; partition < Math.min(sums.length, lengths.length); partition++) {
            sums[partition] += lengths[partition];
        }
    }

    /** Adds a task that reads partitions of some map tasks. Later attempts of the same task are ignored. */
    void addReader(int stage, int task, String region, int startMap, int endMap, int startPartition, int endPartition) {
        if (!readers.add(stage + " " + task + " " + startMap + " " + startPartition)) {
            return;
        }
        activeStages.add(stage);
        double fraction = maps.isEmpty() ? 1 : (double) (Math.min(endMap, maps.length()) - startMap) / maps.length();
        int partitions = partitions();
        double[] fractions = read.computeIfAbsent(region, r -> new double[partitions]);
        for (int partition = startPartition; partition < Math.min(endPartition, partitions); partition++) {
            fractions[partition] += Math.max(0, fraction);
        }
    }

    /** Ends a stage. Returns whether it was the last one that read this shuffle. */
    boolean endStage(int stage) {
        if (!activeStages.remove(stage) || !activeStages.isEmpty()) {
            return false;
        }
        read.clear();
        readers.clear();
        flows.clear();
        return true;
    }

    private int partitions() {
        return written.values().stream().mapToInt(lengths -> lengths.length).max().orElse(0);
    }

    /** The flows between regions with bytes, by the present shares of regions. */
    Iterable<Flow> flows(Map<String, Double> shares) {
        int partitions = partitions();
        double[] rest = new double[partitions];
        for (int partition = 0; partition < partitions; partition++) {
            rest[partition] = 1;
            for (double[] fractions : read.values()) {
                rest[partition] -= fractions[partition];
            }
        }
        Set<String> destinations = new TreeSet<>(shares.keySet());
        destinations.addAll(read.keySet());
        for (Flow flow : flows.values()) {
            flow.bytes = 0;
        }
        for (String from : written.keySet()) {
            for (String to : destinations) {
                if (!from.equals(to)) {
                    addFlow(from, to, bytes(written.get(from), read.get(to), rest, shares.getOrDefault(to, 0.0)));
                }
            }
        }
        return flows.values();
    }

    private void addFlow(String from, String to, long bytes) {
        String pair = from + " " + to;
        if (bytes > 0 || flows.containsKey(pair)) {
            flows.computeIfAbsent(pair, p -> new Flow(from, to)).bytes = bytes;
        }
    }

    private static long bytes(long[] written, double[] read, double[] rest, double share) {
        double sum = 0;
        for (int partition = 0; partition < written.length; partition++) {
            double known = read == null || partition >= read.length ? 0 : read[partition];
            sum += written[partition] * (known + Math.max(0, rest[partition]) * share);
        }
        return Math.round(sum);
    }
}
