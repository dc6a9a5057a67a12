package io.weir.spark.live;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class DemoTest {
    private static Samples samples(double... values) {
        Samples samples = new Samples();
        for (double value : values) {
            samples.add(value);
        }
        return samples;
    }

    @Test
    void unmodified_spark_is_first_in_odd_rounds_only() {
        List<Boolean> first = IntStream.rangeClosed(1, 4).mapToObj(Demo::isPlainFirst).collect(Collectors.toList());
        assertEquals(List.of(true, false, true, false), first);
    }

    @Test
    void range_is_median_minimum_and_maximum() {
        assertEquals("3.0 (1.0 to 9.0)", samples(9, 1, 3).formatRange(1));
        assertEquals("4 (1 to 9)", samples(9, 1, 3, 5).formatRange(0));
        assertEquals("2.5", samples(2.5).formatRange(1));
    }
}
