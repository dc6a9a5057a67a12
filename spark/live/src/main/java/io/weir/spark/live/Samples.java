package io.weir.spark.live;

import java.util.Arrays;
import java.util.Locale;
import java.util.stream.DoubleStream;

/** Values of several runs. */
final class Samples {
    /** 97.5 % quantiles of Student's t distribution for 1 to 10 degrees of freedom. */
    private static final double[] T = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228};

    private double[] values = {};

    void add(double value) {
        values = DoubleStream.concat(Arrays.stream(values), DoubleStream.of(value)).toArray();
    }

    double mean() {
        return Arrays.stream(values).average().orElse(Double.NaN);
    }

    double min() {
        return Arrays.stream(values).min().orElse(Double.NaN);
    }

    double max() {
        return Arrays.stream(values).max().orElse(Double.NaN);
    }

    /** Of an even number of values, the mean of the two in the middle. */
    double median() {
        double[] sorted = values.clone();
        Arrays.sort(sorted);
        return sorted.length == 0 ? Double.NaN : (sorted[(sorted.length - 1) / 2] + sorted[sorted.length / 2]) / 2;
    }

    /** Half of the 95 % confidence interval of the mean. */
    double interval() {
        if (values.length < 2) {
            return Double.NaN;
        }
        double mean = mean();
        double variance = Arrays.stream(values).map(value -> (value - mean) * (value - mean)).sum() / (values.length - 1);
        double t = values.length - 1 <= T.length ? T[values.length - 2] : 1.96;
        return t * Math.sqrt(variance / values.length);
    }

    /** The mean and its interval with this number of decimals. */
    String format(int decimals) {
        String mean = String.format(Locale.ROOT, "%." + decimals + "f", mean());
        return values.length < 2 ? mean : mean + String.format(Locale.ROOT, " ± %." + decimals + "f", interval());
    }

    /** The median, the minimum and the maximum with this number of decimals. */
    String formatRange(int decimals) {
        String number = "%." + decimals + "f";
        return values.length < 2
                ? String.format(Locale.ROOT, number, median())
                : String.format(Locale.ROOT, number + " (" + number + " to " + number + ")", median(), min(), max());
    }

    /** A quantile of values, 0 to 1. */
    static double quantile(double[] values, double fraction) {
        double[] sorted = values.clone();
        Arrays.sort(sorted);
        return sorted[Math.max(0, (int) Math.ceil(fraction * sorted.length) - 1)];
    }
}
