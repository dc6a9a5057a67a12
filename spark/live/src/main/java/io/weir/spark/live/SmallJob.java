package io.weir.spark.live;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.HashPartitioner;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import scala.Tuple2;

/** A shuffle of few bytes: each map task has one record for each reduce task. */
final class SmallJob {
    private final Placement placement;
    private final int recordBytes;

    /** `bytes`: those of all records. */
    SmallJob(Placement placement, int bytes) {
        this.placement = placement;
        this.recordBytes = bytes / (placement.tasks() * placement.tasks());
    }

    /** Shuffles records that depend on the seed, and returns their hash. */
    long run(JavaSparkContext spark, long seed) {
        int tasks = placement.tasks();
        int recordBytes = this.recordBytes;
        List<Integer> numbers = IntStream.range(0, tasks).boxed().collect(Collectors.toList());
        JavaRDD<Integer> inputs = PlacedRdd.place(spark.parallelize(numbers, tasks).rdd(), placement.hosts());
        JavaRDD<Tuple2<Integer, byte[]>> shuffled = PlacedRdd.place(inputs.flatMapToPair(task -> {
            Random random = new Random(seed * tasks + task);
            List<Tuple2<Integer, byte[]>> records = new ArrayList<>();
            for (int reducer = 0; reducer < tasks; reducer++) {
                byte[] value = new byte[recordBytes];
                random.nextBytes(value);
                records.add(new Tuple2<>(reducer, value));
            }
            return records.iterator();
        }).partitionBy(new HashPartitioner(tasks)).rdd(), placement.hosts());
        List<Long> hashes = shuffled.map(record -> record._1() * 31L + Arrays.hashCode(record._2())).collect();
        if (hashes.size() != tasks * tasks) {
            throw new IllegalStateException(hashes.size() + " records arrived; expected " + tasks * tasks);
        }
        return hashes.stream().mapToLong(Long::longValue).sum();
    }
}
