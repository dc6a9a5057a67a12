package io.weir.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaSparkContext;
import scala.Tuple2;

/** Sorts the same records with unmodified Spark and with Weir. Arguments: the master, the driver's address, jars, cores, megabytes. */
public final class Demo {
    private static final int RECORD = 1000;

    public static void main(String[] args) {
        SparkConf conf = new SparkConf().setMaster(args[0])
                .set("spark.driver.host", args[1])
                .set("spark.driver.bindAddress", args[1])
                .set("spark.ui.enabled", "false")
                .set("spark.executor.memory", "700m")
                .set("spark.executor.extraClassPath", args[2])
                .set("spark.cores.max", args[3])
                .set("spark.locality.wait", "0s")
                .set("spark.scheduler.minRegisteredResourcesRatio", "1.0")
                .set("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s");
        int cores = Integer.parseInt(args[3]);
        int records = Integer.parseInt(args[4]) * 1_000_000 / RECORD / cores;
        long plain = sort(conf.clone().setAppName("unmodified Spark"), cores, records);
        SparkConf weir = conf.clone().setAppName("with Weir")
                .set("spark.shuffle.manager", "io.weir.spark.WeirShuffleManager")
                .set("spark.plugins", "io.weir.spark.WeirPlugin");
        if (System.getenv("WEIR_COORDINATOR") != null) {
            weir.set("spark.weir.coordinator", System.getenv("WEIR_COORDINATOR"));
        }
        if (sort(weir, cores, records) != plain) {
            throw new AssertionError("results differ");
        }
        System.out.println("both results are equal");
    }

    private static long sort(SparkConf conf, int cores, int records) {
        try (JavaSparkContext spark = new JavaSparkContext(conf)) {
            spark.setLogLevel("WARN");
            List<Integer> seeds = IntStream.range(0, cores).boxed().collect(Collectors.toList());
            JavaPairRDD<Integer, byte[]> input = spark.parallelize(seeds, cores).flatMapToPair(seed -> {
                Random random = new Random(seed);
                List<Tuple2<Integer, byte[]>> list = new ArrayList<>();
                for (int n = 0; n < records; n++) {
                    byte[] value = new byte[RECORD];
                    random.nextBytes(value);
                    list.add(new Tuple2<>(random.nextInt(), value));
                }
                return list.iterator();
            }).cache();
            // The first jobs load the executors' classes, and cache the input at its executors.
            input.mapToPair(record -> new Tuple2<>(record._1() % 10, 1)).reduceByKey(Integer::sum).count();
            JavaPairRDD<Integer, byte[]> sorted = input.sortByKey(true, cores);
            long started = System.nanoTime();
            long hash = sorted.mapPartitions(partition -> {
                long sum = 0;
                while (partition.hasNext()) {
                    Tuple2<Integer, byte[]> record = partition.next();
                    sum = sum * 31 + record._1() + Arrays.hashCode(record._2());
                }
                return Collections.singletonList(sum).iterator();
            }).reduce((a, b) -> a + b);
            System.out.printf("%-20s sort of %d MB: %.1f s%n", conf.get("spark.app.name"), (long) cores * records * RECORD / 1_000_000,
                    (System.nanoTime() - started) / 1e9);
            if (conf.contains("spark.plugins")) {
                System.out.println("    " + ClusterCases.counts(spark.sc()));
            }
            return hash;
        }
    }
}
