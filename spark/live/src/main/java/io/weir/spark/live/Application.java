package io.weir.spark.live;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.StringJoiner;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.java.JavaSparkContext;
import scala.Tuple2;

/**
 * A Spark application that runs the jobs named on its standard input, one a line, and prints a line for each.
 *
 * Arguments: the master, the driver's address, the jars of executors, cores by region, and settings.
 */
public final class Application {
    /** Counters of executors, and their names in the line of results: blocks that Spark fetched, blocks of flows, and sent flows. */
    private static final String[] COUNTERS = {"fallback.blocks", "flow.blocks", "sent.relay.flows", "sent.direct.flows"};
    private static final String[] COUNTER_WORDS = {"fallback", "flows", "relayed", "direct"};

    private final JavaSparkContext spark;
    private final Placement placement;
    private final StageTimes times = new StageTimes();

    private Application(JavaSparkContext spark, Placement placement) {
        this.spark = spark;
        this.placement = placement;
        spark.sc().addSparkListener(times);
    }

    public static void main(String[] args) throws Exception {
        int[] tasks = IntStream.of(Lab.numbers(args[3])).toArray();
        SparkConf conf = new SparkConf().setMaster(args[0])
                .set("spark.driver.host", args[1])
                .set("spark.driver.bindAddress", args[1])
                .set("spark.ui.enabled", "false")
                .set("spark.executor.memory", "700m")
                // One executor stands for all of its region: Spark gets as many connections as two regions of two workers have.
                .set("spark.shuffle.io.numConnectionsPerPeer", "4")
                .set("spark.executor.extraClassPath", args[2])
                .set("spark.executor.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss512k -XX:-UsePerfData -Djava.io.tmpdir="
                        + System.getProperty("java.io.tmpdir"))
                .set("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
                // Tasks with a place wait for it.
                .set("spark.locality.wait", "120s")
                .set("spark.shuffle.reduceLocality.enabled", "false")
                .set("spark.cores.max", Integer.toString(IntStream.of(tasks).sum()))
                .set("spark.scheduler.minRegisteredResourcesRatio", "1.0")
                .set("spark.scheduler.maxRegisteredResourcesWaitingTime", "300s")
                .setAppName("live");
        for (int at = 4; at < args.length; at++) {
            String[] setting = args[at].split("=", 2);
            conf.set(setting[0], setting[1]);
        }
        try (JavaSparkContext spark = new JavaSparkContext(conf)) {
            spark.setLogLevel("WARN");
            Application application = new Application(spark, new Placement(tasks));
            System.out.println("ready");
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
            for (String line; (line = in.readLine()) != null; ) {
                application.run(line.split(" "));
            }
        }
    }

    private void run(String[] words) {
        try {
            times.take();
            long started = System.nanoTime();
            StringBuilder line = new StringBuilder("result");
            switch (words[0]) {
                case "sort":
                    List<SortJob.Output> outputs = new SortJob(placement, Long.parseLong(words[1]), Double.parseDouble(words[2]) * 1e6,
                            Double.parseDouble(words[3])).run(spark);
                    double seconds = (System.nanoTime() - started) / 1e9;
                    List<StageTimes.Stage> stages = takeTimes();
                    line.append(" hash=").append(SortJob.hash(outputs));
                    add(line, "map", stages.get(0).seconds);
                    add(line, "reduce", stages.get(1).seconds);
                    add(line, "job", seconds);
                    line.append(" reads=").append(outputs.stream()
                            .map(output -> Double.toString((output.readMillis - stages.get(1).launches.get(output.task)) / 1e3))
                            .collect(Collectors.joining(",")));
                    line.append(" ends=").append(outputs.stream()
                            .map(output -> Double.toString((output.readMillis - stages.get(1).submissionMillis) / 1e3))
                            .collect(Collectors.joining(",")));
                    line.append(" sizes=").append(outputs.stream().map(output -> Long.toString(output.records)).collect(Collectors.joining(",")));
                    add(line, "megabytes", stages.stream().mapToLong(stage -> stage.remoteBytes).sum() / 1e6);
                    break;
                case "small":
                    runSmall(words, line);
                    break;
                case "counts":
                    long[] counts = counts();
                    for (int at = 0; at < COUNTERS.length; at++) {
                        line.append(' ').append(COUNTER_WORDS[at]).append('=').append(counts[at]);
                    }
                    break;
                default:
                    double result = Workloads.run(spark, words[0], placement);
                    double time = (System.nanoTime() - started) / 1e9;
                    List<StageTimes.Stage> all = takeTimes();
                    line.append(" hash=").append(String.format(Locale.ROOT, "%.6g", result));
                    add(line, "job", time);
                    add(line, "read", all.stream().mapToDouble(stage -> stage.slowestReadSeconds).sum());
                    add(line, "megabytes", all.stream().mapToLong(stage -> stage.remoteBytes).sum() / 1e6);
                    line.append(" stages=").append(all.size());
            }
            System.out.println(line);
        } catch (Throwable e) {
            e.printStackTrace();
            System.out.println("error " + e.toString().split("\n")[0]);
        }
    }

    /** Small shuffles: their seed, number and bytes, and the tasks of each region. */
    private void runSmall(String[] words, StringBuilder line) {
        SmallJob job = new SmallJob(new Placement(Lab.numbers(words[4].replace(',', ' '))), Integer.parseInt(words[3]));
        StringJoiner seconds = new StringJoiner(",");
        long hash = 0;
        long first = System.nanoTime();
        for (int shuffle = 0; shuffle < Integer.parseInt(words[2]); shuffle++) {
            long started = System.nanoTime();
            hash = hash * 31 + job.run(spark, Long.parseLong(words[1]) * 1000 + shuffle);
            seconds.add(String.format(Locale.ROOT, "%.4f", (System.nanoTime() - started) / 1e9));
        }
        add(line, "job", (System.nanoTime() - first) / 1e9);
        line.append(" hash=").append(hash).append(" shuffles=").append(seconds);
    }

    private static void add(StringBuilder line, String name, double value) {
        line.append(String.format(Locale.ROOT, " %s=%.3f", name, value));
    }

    private List<StageTimes.Stage> takeTimes() throws Exception {
        spark.sc().listenerBus().waitUntilEmpty();
        return times.take();
    }

    /** The sums of {@link #COUNTERS} since the executors started. */
    private long[] counts() {
        int tasks = placement.tasks();
        List<Integer> numbers = IntStream.range(0, tasks).boxed().collect(Collectors.toList());
        long[] sums = new long[COUNTERS.length];
        spark.parallelize(numbers, tasks).mapToPair(task -> {
            Thread.sleep(100);
            scala.collection.Seq<org.apache.spark.metrics.source.Source> sources =
                    SparkEnv.get().metricsSystem().getSourcesByName("plugin.io.weir.spark.WeirPlugin");
            long[] counts = new long[COUNTERS.length];
            for (int at = 0; at < counts.length && !sources.isEmpty(); at++) {
                counts[at] = sources.head().metricRegistry().counter(COUNTERS[at]).getCount();
            }
            return new Tuple2<>(SparkEnv.get().executorId(), counts);
        }).collectAsMap().values().forEach(counts -> {
            Arrays.setAll(sums, at -> sums[at] + counts[at]);
        });
        return sums;
    }
}
