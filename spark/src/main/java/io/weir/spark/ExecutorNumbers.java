package io.weir.spark;

import java.util.BitSet;
import java.util.HashMap;
import java.util.Map;

/** The numbers of the executors that run, from 0. Numbers of removed executors are free again. */
final class ExecutorNumbers {
    // Guarded by this.
    private final Map<String, Integer> numbers = new HashMap<>();
    private final BitSet used = new BitSet();

    /** The number of an executor: the lowest free one if it has none. Returns a negative one if none is free. */
    synchronized int reserve(String executor) {
        Integer known = numbers.get(executor);
        if (known != null) {
            return known;
        }
        int number = used.nextClearBit(0);
        if (number >= FlowNumbers.MAX_EXECUTORS) {
            return -1;
        }
        used.set(number);
        numbers.put(executor, number);
        return number;
    }

    synchronized void release(String executor) {
        Integer number = numbers.remove(executor);
        if (number != null) {
            used.clear(number);
        }
    }
}
