package io.weir.spark;

import java.util.HashSet;
import java.util.Set;

/**
 * Numbers of the flows that an executor requests: 10 bits for the flow group, 12 for the executor, and 10 that count.
 *
 * A flow group is the data of a reduce task. The coordinator orders groups by ranges of numbers, so the group has the high bits.
 */
final class FlowNumbers {
    private static final int GROUP_BITS = 10;
    private static final int COUNTER_BITS = 10;
    private static final int EXECUTOR_BITS = 32 - GROUP_BITS - COUNTER_BITS;
    private static final int GROUP_SHIFT = 32 - GROUP_BITS;

    static final int MAX_GROUPS = 1 << GROUP_BITS;
    static final int MAX_EXECUTORS = 1 << EXECUTOR_BITS;
    private static final int MAX_COUNT = 1 << COUNTER_BITS;

    private final int executor;
    // Guarded by this. Counters go round, since relays remember a number for a while after its flow.
    private final int[] next = new int[MAX_GROUPS];
    private final Set<String> used = new HashSet<>();

    /** Numbers for an executor; none if it is negative. */
    FlowNumbers(int executor) {
        this.executor = executor;
    }

    /** The number of flow groups of a shuffle. If it has more partitions, consecutive ones share a group. */
    static int groups(int partitions) {
        return Math.min(partitions, MAX_GROUPS);
    }

    /** The flow group of a partition. */
    static int group(int partition, int partitions) {
        return (int) ((long) partition * groups(partitions) / Math.max(1, partitions));
    }

    /** The lowest number of the flows of a group; that of the group after the last one is 2^32. */
    static long first(int group) {
        return (long) group << GROUP_SHIFT;
    }

    /** Reserves a number until {@link #release}. Returns a negative one if none is free. */
    synchronized long reserve(String coflow, int group) {
        for (int attempt = 0; executor >= 0 && attempt < MAX_COUNT; attempt++) {
            int count = next[group];
            next[group] = (count + 1) % MAX_COUNT;
            long number = first(group) | (long) executor << COUNTER_BITS | count;
            if (used.add(key(coflow, number))) {
                return number;
            }
        }
        return -1;
    }

    synchronized void release(String coflow, long number) {
        used.remove(key(coflow, number));
    }

    private static String key(String coflow, long number) {
        return coflow + " " + number;
    }
}
