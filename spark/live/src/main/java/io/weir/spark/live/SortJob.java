package io.weir.spark.live;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.Partitioner;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import scala.Tuple2;

/**
 * The sort of Siphon's section 5.2: random records are at the regions, and the tasks of a region together read in proportion to their
 * number. Single tasks differ by a random factor of up to three.
 */
final class SortJob {
    private static final int RECORD = 1000;
    private static final int KEYS = 1 << 30;

    private final Placement placement;
    private final long seed;
    private final double bytes;
    private final double secondsPerMegabyte;

    SortJob(Placement placement, long seed, double bytes, double secondsPerMegabyte) {
        this.placement = placement;
        this.seed = seed;
        this.bytes = bytes;
        this.secondsPerMegabyte = secondsPerMegabyte;
    }

    /** What a reduce task has done. */
    static final class Output implements Serializable {
        private static final long serialVersionUID = 1;

        int task;
        long records;
        long hash;
        /** When it had read and sorted all records. */
        long readMillis;
    }

    /** Sorts, and returns what the reduce tasks have done. */
    List<Output> run(JavaSparkContext spark) {
        int tasks = placement.tasks();
        long seed = this.seed;
        double secondsPerMegabyte = this.secondsPerMegabyte;
        int[] records = IntStream.range(0, tasks).map(task -> (int) (bytes * placement.dataFraction(task) / RECORD)).toArray();
        List<Integer> numbers = IntStream.range(0, tasks).boxed().collect(Collectors.toList());
        JavaRDD<Integer> inputs = PlacedRdd.place(spark.parallelize(numbers, tasks).rdd(), placement.hosts());
        JavaRDD<Tuple2<Integer, byte[]>> sorted = PlacedRdd.place(
                inputs.flatMapToPair(task -> new Records(seed * tasks + task, records[task]))
                        .repartitionAndSortWithinPartitions(new Ranges(bounds())).rdd(),
                placement.hosts());
        List<Output> outputs = sorted.mapPartitionsWithIndex((task, iterator) -> {
            Output output = consume(iterator);
            output.task = task;
            // The tasks share the processors of this machine, so they wait in place of computing.
            Thread.sleep((long) (output.records * RECORD * secondsPerMegabyte / 1000));
            return Collections.singletonList(output).iterator();
        }, true).collect();
        long total = outputs.stream().mapToLong(output -> output.records).sum();
        if (total != Arrays.stream(records).asLongStream().sum()) {
            throw new IllegalStateException(total + " records are sorted; expected " + Arrays.stream(records).asLongStream().sum());
        }
        return outputs;
    }

    /** The reader sorts all records before it returns the first one. */
    private static Output consume(Iterator<Tuple2<Integer, byte[]>> records) {
        Output output = new Output();
        output.readMillis = System.currentTimeMillis();
        int before = -1;
        while (records.hasNext()) {
            Tuple2<Integer, byte[]> record = records.next();
            if (record._1() < before) {
                throw new IllegalStateException("key " + record._1() + " follows " + before);
            }
            before = record._1();
            // Records with equal keys have no order.
            output.hash += record._1() * 31L + Arrays.hashCode(record._2());
            output.records++;
        }
        return output;
    }

    /** The first key after each partition. */
    private int[] bounds() {
        Random random = new Random(seed);
        int tasks = placement.tasks();
        double[] sizes = new double[tasks];
        double[] sums = new double[tasks];
        for (int task = 0; task < tasks; task++) {
            sizes[task] = 0.5 + random.nextDouble();
            sums[placement.region(task)] += sizes[task];
        }
        int[] bounds = new int[tasks];
        double end = 0;
        for (int task = 0; task < tasks; task++) {
            int region = placement.region(task);
            end += sizes[task] / sums[region] * placement.tasksOf(region) / tasks;
            bounds[task] = (int) Math.min(KEYS, Math.round(end * KEYS));
        }
        bounds[tasks - 1] = KEYS;
        return bounds;
    }

    /** The records of a map task. */
    private static final class Records implements Iterator<Tuple2<Integer, byte[]>> {
        private final Random random;
        private int left;

        Records(long seed, int count) {
            random = new Random(seed);
            left = count;
        }

        @Override
        public boolean hasNext() {
            return left > 0;
        }

        @Override
        public Tuple2<Integer, byte[]> next() {
            if (left-- <= 0) {
                throw new NoSuchElementException();
            }
            byte[] value = new byte[RECORD];
            random.nextBytes(value);
            return new Tuple2<>(random.nextInt(KEYS), value);
        }
    }

    private static final class Ranges extends Partitioner {
        private static final long serialVersionUID = 1;

        private final int[] bounds;

        Ranges(int[] bounds) {
            this.bounds = bounds;
        }

        @Override
        public int numPartitions() {
            return bounds.length;
        }

        @Override
        public int getPartition(Object key) {
            int at = Arrays.binarySearch(bounds, (Integer) key);
            // A key that equals a bound is in the next partition.
            return at >= 0 ? at + 1 : -at - 1;
        }
    }

    static long hash(List<Output> outputs) {
        List<Output> list = new ArrayList<>(outputs);
        list.sort((a, b) -> Integer.compare(a.task, b.task));
        long hash = 0;
        for (Output output : list) {
            hash = hash * 31 + output.hash;
        }
        return hash;
    }
}
