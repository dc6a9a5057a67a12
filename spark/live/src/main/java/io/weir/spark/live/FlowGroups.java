package io.weir.spark.live;

import java.util.Arrays;
import java.util.Comparator;
import java.util.stream.IntStream;

/** The flow groups that the reduce tasks of one region receive: in which order they complete. */
final class FlowGroups {
    private final double[] sizes;
    private final double[] ends;

    /** `ends`: when the task of each group had received all data. */
    FlowGroups(double[] sizes, double[] ends) {
        this.sizes = sizes;
        this.ends = ends;
    }

    /**
     * Spearman's rank correlation of size and completion: -1 if the largest group is always first, 1 if it is last. NaN if all sizes or
     * all times are equal: these groups have no order.
     */
    double rankCorrelation() {
        double[] a = ranks(sizes);
        double[] b = ranks(ends);
        double mean = (sizes.length - 1) / 2.0;
        double product = 0;
        double squaresA = 0;
        double squaresB = 0;
        for (int at = 0; at < sizes.length; at++) {
            product += (a[at] - mean) * (b[at] - mean);
            squaresA += (a[at] - mean) * (a[at] - mean);
            squaresB += (b[at] - mean) * (b[at] - mean);
        }
        return product / Math.sqrt(squaresA * squaresB);
    }

    /** The rank of each value, from 0. Equal values have the mean of their ranks. */
    private static double[] ranks(double[] values) {
        double[] ranks = new double[values.length];
        for (int at = 0; at < values.length; at++) {
            double value = values[at];
            long lower = Arrays.stream(values).filter(other -> other < value).count();
            long equal = Arrays.stream(values).filter(other -> other == value).count();
            ranks[at] = lower + (equal - 1) / 2.0;
        }
        return ranks;
    }

    /** The mean completion of the larger half of the groups, or of the smaller one. */
    double meanEnd(boolean isLarger) {
        int[] order = IntStream.range(0, sizes.length).boxed().sorted(Comparator.comparingDouble(at -> sizes[at])).mapToInt(at -> at).toArray();
        int half = sizes.length / 2;
        return Arrays.stream(order).skip(isLarger ? sizes.length - half : 0).limit(half).mapToDouble(at -> ends[at]).average().orElse(Double.NaN);
    }
}
