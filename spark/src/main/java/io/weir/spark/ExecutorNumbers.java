package io.weir.spark;

import java.util.BitSet;
import java.util.HashMap;
import java.util.Map;

/**
 * The numbers of the executors that run, from 0.
 *
 * The number of a removed executor is used again after all others: relays and receivers remember flows of that executor for a while, and
 * would take a flow with the same number for a replaced one.
 */
final class ExecutorNumbers {
    // Guarded by this.
    private final Map<String, Integer> numbers = new HashMap<>();
    private final BitSet used = new BitSet();
    private int next;

    /** The number of an executor: the next free one if it has none. Returns a negative one if none is free. */
    synchronized int reserve(String executor) {
        Integer known = numbers.get(executor);
        if (known != null) {
            return known;
        }
        int number = used.nextClearBit(next);
        if (number >= FlowNumbers.MAX_EXECUTORS) {
            number = used.nextClearBit(0);
        }
        if (number >= FlowNumbers.MAX_EXECUTORS) {
            return -1;
        }
        used.set(number);
        next = number + 1;
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
