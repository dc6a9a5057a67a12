package io.weir.spark.live;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.mllib.linalg.DenseMatrix;
import org.apache.spark.mllib.linalg.Matrix;
import org.apache.spark.mllib.linalg.Vector;
import org.apache.spark.mllib.linalg.Vectors;
import org.apache.spark.mllib.linalg.distributed.BlockMatrix;
import org.apache.spark.mllib.linalg.distributed.RowMatrix;
import org.apache.spark.mllib.recommendation.ALS;
import org.apache.spark.mllib.recommendation.MatrixFactorizationModel;
import org.apache.spark.mllib.recommendation.Rating;
import scala.Tuple2;

/** Workloads of Siphon's Table 2 from Spark's MLlib, small enough for one machine. Inputs are random, and placed as those of the sort. */
final class Workloads {
    private Workloads() {}

    /** Runs a workload. The result is a number that depends on all records. */
    static double run(JavaSparkContext spark, String name, Placement placement) {
        switch (name) {
            case "als":
                return factorize(spark, placement);
            case "bmm":
                return multiply(spark, placement);
            case "pca":
                return findComponents(spark, placement);
            default:
                throw new IllegalArgumentException("unknown workload: " + name);
        }
    }

    private static JavaRDD<Integer> inputs(JavaSparkContext spark, Placement placement) {
        List<Integer> numbers = IntStream.range(0, placement.tasks()).boxed().collect(Collectors.toList());
        return PlacedRdd.place(spark.parallelize(numbers, placement.tasks()).rdd(), placement.hosts());
    }

    /** Alternating least squares. */
    private static double factorize(JavaSparkContext spark, Placement placement) {
        int tasks = placement.tasks();
        JavaRDD<Rating> ratings = inputs(spark, placement).flatMap(task -> {
            Random random = new Random(task);
            List<Rating> list = new ArrayList<>();
            for (int n = 0; n < 200_000 / tasks; n++) {
                list.add(new Rating(random.nextInt(12_000), random.nextInt(6_000), random.nextInt(5) + 1));
            }
            return list.iterator();
        });
        MatrixFactorizationModel model = ALS.train(ratings.rdd(), 20, 3, 0.1, tasks, 1);
        return model.userFeatures().toJavaRDD().mapToDouble(feature -> {
            double sum = 0;
            for (double value : feature._2()) {
                sum += value * value;
            }
            return sum;
        }).sum();
    }

    /** Multiplication of two matrices of blocks. */
    private static double multiply(JavaSparkContext spark, Placement placement) {
        int blocks = 6;
        int size = 200;
        BlockMatrix product = matrix(spark, placement, blocks, size, 1).multiply(matrix(spark, placement, blocks, size, 2));
        return product.blocks().toJavaRDD().mapToDouble(block -> {
            double sum = 0;
            for (double value : block._2().toArray()) {
                sum += value * value;
            }
            return sum;
        }).sum();
    }

    private static BlockMatrix matrix(JavaSparkContext spark, Placement placement, int blocks, int size, long seed) {
        int tasks = placement.tasks();
        JavaRDD<Tuple2<Tuple2<Object, Object>, Matrix>> list = inputs(spark, placement).flatMap(task -> {
            List<Tuple2<Tuple2<Object, Object>, Matrix>> own = new ArrayList<>();
            for (int block = task; block < blocks * blocks; block += tasks) {
                Random random = new Random(seed * 1000 + block);
                double[] values = random.doubles((long) size * size).toArray();
                own.add(new Tuple2<>(new Tuple2<>(block / blocks, block % blocks), new DenseMatrix(size, size, values)));
            }
            return own.iterator();
        });
        return new BlockMatrix(list.rdd(), size, size);
    }

    /** Principal components. */
    private static double findComponents(JavaSparkContext spark, Placement placement) {
        int tasks = placement.tasks();
        JavaRDD<Vector> rows = inputs(spark, placement).flatMap(task -> {
            Random random = new Random(task);
            List<Vector> list = new ArrayList<>();
            for (int n = 0; n < 4_000 / tasks; n++) {
                list.add(Vectors.dense(random.doubles(500).toArray()));
            }
            return list.iterator();
        });
        Matrix components = new RowMatrix(rows.rdd()).computePrincipalComponents(3);
        double sum = 0;
        for (double value : components.toArray()) {
            sum += Math.abs(value);
        }
        return sum;
    }
}
