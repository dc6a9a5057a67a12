package io.weir.spark;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * Bytes of one shuffle between regions, by flow group.
 *
 * Map tasks report exact lengths by partition. Until the reader of a partition starts, its region is unknown: the partition counts at
 * each region by the region's share of cores. A reader that starts moves its partitions to its region, and to the group of its first
 * partition.
 */
final class ShuffleSizes {
    /** The maximum number of registered flows. With more groups and pairs of regions, consecutive groups are registered as one. */
    static final int MAX_FLOWS = 8192;

    private final BitSet maps = new BitSet();
    /** By region of the map tasks: bytes by partition. */
    private final Map<String, long[]> written = new TreeMap<>();
    /** What readers have in common that read the same partitions in the same region. */
    private final Map<String, Read> reads = new LinkedHashMap<>();
    private final Set<String> readers = new HashSet<>();
    private final Set<Integer> activeStages = new HashSet<>();
    /** The maximum number of registered groups. Their ranges of numbers must not change while flows use them, so it never rises. */
    private int maxGroups = FlowNumbers.MAX_GROUPS;

    /** The data of a flow group from one region to another, or inside one. */
    static final class Flow {
        final String from;
        final String to;
        final long bytes;
        /** The numbers of the flows of blocks. */
        final long firstNumber;
        final long lastNumber;

        Flow(String from, String to, long bytes, long firstNumber, long lastNumber) {
            this.from = from;
            this.to = to;
            this.bytes = bytes;
            this.firstNumber = firstNumber;
            this.lastNumber = lastNumber;
        }
    }

    /** Partitions that are read in a region. */
    private static final class Read {
        final String region;
        final int start;
        final int end;
        /** The fraction of the map tasks, summed over readers. */
        double fraction;

        Read(String region, int start, int end) {
            this.region = region;
            this.start = start;
            this.end = end;
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
        if (activeStages.isEmpty()) {
            // The readers of earlier stages have read their bytes.
            reads.clear();
            readers.clear();
        }
        if (!readers.add(stage + " " + task + " " + startMap + " " + startPartition)) {
            return;
        }
        activeStages.add(stage);
        double fraction = maps.isEmpty() ? 1 : (double) (Math.min(endMap, maps.length()) - startMap) / maps.length();
        String key = region + " " + startPartition + " " + endPartition;
        reads.computeIfAbsent(key, k -> new Read(region, startPartition, endPartition)).fraction += Math.max(0, fraction);
    }

    /** Ends a stage. Returns whether it was the last one that read this shuffle. */
    boolean endStage(int stage) {
        return activeStages.remove(stage) && activeStages.isEmpty();
    }

    private int partitions() {
        return written.values().stream().mapToInt(lengths -> lengths.length).max().orElse(0);
    }

    /**
     * The flows with bytes; none if no bytes leave a region. O(pairs of regions x partitions).
     *
     * @param shares the present shares of regions in the cores of the application; if empty, only partitions count whose reader has started
     * @param regions the regions whose flows count; null: all
     */
    List<Flow> flows(Map<String, Double> shares, Set<String> regions) {
        int partitions = partitions();
        Set<String> destinations = new TreeSet<>(shares.keySet());
        reads.values().forEach(read -> destinations.add(read.region));
        // Map tasks of further regions may end later: they have executors already.
        Set<String> all = new TreeSet<>(destinations);
        all.addAll(written.keySet());
        if (regions != null) {
            all.retainAll(regions);
        }
        int pairs = Math.max(1, all.size() * all.size());
        maxGroups = Math.min(maxGroups, Math.max(1, MAX_FLOWS / pairs));
        int groups = Math.min(FlowNumbers.groups(partitions), maxGroups);
        double[] rest = rest(partitions);
        List<Flow> flows = new ArrayList<>();
        boolean isBetweenRegions = false;
        for (Map.Entry<String, long[]> entry : written.entrySet()) {
            for (String to : destinations) {
                if (!all.contains(to) || !all.contains(entry.getKey())) {
                    continue;
                }
                double[] bytes = bytes(entry.getValue(), rest, shares.getOrDefault(to, 0.0), to, groups);
                int before = flows.size();
                addFlows(entry.getKey(), to, bytes, partitions, flows);
                isBetweenRegions |= flows.size() > before && !entry.getKey().equals(to);
            }
        }
        return isBetweenRegions ? flows : Collections.emptyList();
    }

    /** A hash of flows: equal for equal ones, and otherwise different with overwhelming probability. */
    static long hash(List<Flow> flows) {
        long hash = flows.size();
        for (Flow flow : flows) {
            for (long part : new long[] {flow.from.hashCode(), flow.to.hashCode(), flow.bytes, flow.firstNumber, flow.lastNumber}) {
                hash = (hash ^ part) * 0x9e3779b97f4a7c15L;
                hash ^= hash >>> 32;
            }
        }
        return hash;
    }

    /** The fraction of each partition whose reader has not started. */
    private double[] rest(int partitions) {
        double[] rest = new double[partitions];
        for (int partition = 0; partition < partitions; partition++) {
            rest[partition] = 1;
        }
        for (Read read : reads.values()) {
            for (int partition = read.start; partition < Math.min(read.end, partitions); partition++) {
                rest[partition] = Math.max(0, rest[partition] - read.fraction);
            }
        }
        return rest;
    }

    /** The bytes by registered group of what was written in one region and is, or will be, read in another. */
    private double[] bytes(long[] written, double[] rest, double share, String to, int groups) {
        double[] bytes = new double[groups];
        long[] sums = new long[written.length + 1];
        for (int partition = 0; partition < written.length; partition++) {
            sums[partition + 1] = sums[partition] + written[partition];
            bytes[registeredGroup(partition, rest.length, groups)] += written[partition] * rest[partition] * share;
        }
        for (Read read : reads.values()) {
            if (read.region.equals(to) && read.start < written.length) {
                long sum = sums[Math.min(read.end, written.length)] - sums[read.start];
                bytes[registeredGroup(read.start, rest.length, groups)] += sum * read.fraction;
            }
        }
        return bytes;
    }

    /** The group of a partition if only this number of groups is registered. */
    private static int registeredGroup(int partition, int partitions, int groups) {
        return FlowNumbers.group(partition, partitions) * groups / FlowNumbers.groups(partitions);
    }

    private static void addFlows(String from, String to, double[] bytes, int partitions, List<Flow> flows) {
        int all = FlowNumbers.groups(partitions);
        for (int group = 0; group < bytes.length; group++) {
            long rounded = Math.round(bytes[group]);
            if (rounded > 0) {
                long first = FlowNumbers.first(ceilingOf(group * all, bytes.length));
                long end = FlowNumbers.first(ceilingOf((group + 1) * all, bytes.length));
                flows.add(new Flow(from, to, rounded, first, end - 1));
            }
        }
    }

    private static int ceilingOf(int dividend, int divisor) {
        return (dividend + divisor - 1) / divisor;
    }
}
