package io.weir.spark.live;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class FlowGroupsTest {
    private static double correlation(double[] sizes, double... ends) {
        return new FlowGroups(sizes, ends).rankCorrelation();
    }

    @Test
    void rank_correlation_is_minus_one_if_larger_groups_complete_first() {
        double[] sizes = {30, 10, 20};
        assertEquals(-1, correlation(sizes, 1, 3, 2), 1e-12);
        assertEquals(1, correlation(sizes, 9, 3, 5), 1e-12);
        // Ranks (2, 0, 1) and (1, 0, 2): 1 - 6 * 2 / (3 * 8).
        assertEquals(0.5, correlation(sizes, 5, 3, 9), 1e-12);
    }

    @Test
    void equal_values_have_the_mean_of_their_ranks() {
        // Ranks (0.5, 0.5, 2) and (0, 1, 2): 1.5 / sqrt(1.5 * 2).
        assertEquals(Math.sqrt(0.75), correlation(new double[] {10, 10, 20}, 1, 2, 3), 1e-12);
    }

    @Test
    void equal_sizes_or_times_have_no_correlation() {
        assertEquals(Double.NaN, correlation(new double[] {10, 10}, 1, 2));
        assertEquals(Double.NaN, correlation(new double[] {10, 20}, 1, 1));
    }

    @Test
    void mean_end_is_that_of_half_of_the_groups() {
        FlowGroups groups = new FlowGroups(new double[] {30, 10, 20, 40}, new double[] {1, 2, 3, 5});
        assertEquals(3, groups.meanEnd(true));
        assertEquals(2.5, groups.meanEnd(false));
    }
}
