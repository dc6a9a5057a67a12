package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class FlowNumbersTest {
    @Test
    void number_consists_of_group_executor_and_counter() {
        FlowNumbers numbers = new FlowNumbers(3);
        assertEquals(3 << 10, numbers.reserve("a", 0));
        assertEquals((3 << 10) + 1, numbers.reserve("a", 0));
        assertEquals((5L << 22) + (3 << 10), numbers.reserve("a", 5));
        assertEquals(0xffff_fc00L, new FlowNumbers(4095).reserve("a", 1023));
        assertEquals(1L << 32, FlowNumbers.first(FlowNumbers.MAX_GROUPS));
    }

    @Test
    void numbers_in_use_are_skipped() {
        FlowNumbers numbers = new FlowNumbers(0);
        long first = numbers.reserve("a", 7);
        for (int n = 1; n < 1024; n++) {
            assertEquals(first + n, numbers.reserve("a", 7));
        }
        assertEquals(-1, numbers.reserve("a", 7));
        assertEquals(first, numbers.reserve("b", 7));
        numbers.release("a", first + 500);
        assertEquals(first + 500, numbers.reserve("a", 7));
        assertEquals(-1, numbers.reserve("a", 7));
        assertEquals(0, numbers.reserve("a", 0));
    }

    @Test
    void released_number_is_the_last_to_be_used_again() {
        FlowNumbers numbers = new FlowNumbers(0);
        for (int n = 0; n < 1024; n++) {
            long number = numbers.reserve("a", 0);
            assertEquals(n, number);
            numbers.release("a", number);
        }
        assertEquals(0, numbers.reserve("a", 0));
    }

    @Test
    void executor_without_a_number_has_no_flows() {
        assertEquals(-1, new FlowNumbers(-1).reserve("a", 0));
    }

    @Test
    void consecutive_partitions_share_a_group_above_1024() {
        assertEquals(0, FlowNumbers.group(0, 0));
        assertEquals(1023, FlowNumbers.group(1023, 1024));
        assertEquals(0, FlowNumbers.group(1, 2048));
        assertEquals(1, FlowNumbers.group(2, 2048));
        int before = 0;
        for (int partition = 0; partition < 5000; partition++) {
            int group = FlowNumbers.group(partition, 5000);
            assertTrue(group == before || group == before + 1);
            before = group;
        }
        assertEquals(1023, before);
    }

    @Test
    void numbers_of_removed_executors_are_used_after_all_others() {
        ExecutorNumbers numbers = new ExecutorNumbers();
        for (int executor = 0; executor < 4096; executor++) {
            assertEquals(executor, numbers.reserve("executor " + executor));
        }
        assertEquals(-1, numbers.reserve("another"));
        assertEquals(17, numbers.reserve("executor 17"));
        numbers.release("executor 17");
        numbers.release("unknown");
        assertEquals(17, numbers.reserve("another"));
    }

    @Test
    void executor_that_follows_a_removed_one_has_another_number() {
        ExecutorNumbers numbers = new ExecutorNumbers();
        for (int executor = 0; executor < 3 * FlowNumbers.MAX_EXECUTORS; executor++) {
            assertEquals(executor % FlowNumbers.MAX_EXECUTORS, numbers.reserve("executor " + executor));
            numbers.release("executor " + executor);
        }
    }
}
