package io.weir.spark;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.executor.ShuffleReadMetrics;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import scala.Tuple2;

/**
 * Converts the event log of an application to a trace, by {@code weir trace convert}, and compares the coflows with what this listener has
 * counted in the same application.
 */
final class EventLogCheck extends SparkListener {
    private static final Pattern PORT = Pattern.compile("port (\\d+) (\\S+)");
    private static final Pattern COFLOW = Pattern.compile("coflow (\\d+) .*?(?:parents=(\\S+).*)?");

    private final String weir;
    private final Path scratch;
    private final Map<Integer, Stage> stages = new TreeMap<>();
    private int[] chain;

    /** The shuffle bytes of a stage's tasks. */
    private static final class Stage {
        long remote;
        long local;
        long written;
        final Map<String, Long> remoteByHost = new TreeMap<>();
    }

    /** A coflow of the trace. */
    private static final class Coflow {
        String parents;
        int flows;
        double bytes;
        final Map<String, Double> bytesByHost = new TreeMap<>();
    }

    /**
     * @param weir the program
     * @param scratch a directory for the log and the trace
     */
    EventLogCheck(String weir, Path scratch) {
        this.weir = weir;
        this.scratch = scratch;
    }

    /** The configuration of an application that writes one uncompressed log. */
    SparkConf withLog(SparkConf conf) throws IOException {
        return conf.set("spark.eventLog.enabled", "true")
                .set("spark.eventLog.dir", Files.createDirectories(scratch.resolve("events")).toUri().toString())
                .set("spark.eventLog.compress", "false")
                .set("spark.eventLog.rolling.enabled", "false");
    }

    /** Runs a job of three stages, each of which reads all that the one before has written. */
    void runChain(JavaSparkContext spark) {
        spark.setJobGroup("chain", "three stages");
        List<Integer> numbers = new ArrayList<>();
        for (int n = 0; n < 50_000; n++) {
            numbers.add(n);
        }
        long groups = spark.parallelize(numbers, 8).mapToPair(n -> new Tuple2<>(n % 20_000, 1L)).reduceByKey(Long::sum, 6)
                .mapToPair(pair -> new Tuple2<>(pair._1() % 300, pair._2())).groupByKey(4).count();
        spark.clearJobGroup();
        check(groups == 300, "the chain has " + groups + " groups");
        int[] jobs = spark.statusTracker().getJobIdsForGroup("chain");
        check(jobs.length == 1, "the chain has " + jobs.length + " jobs");
        chain = spark.statusTracker().getJobInfo(jobs[0]).stageIds();
        Arrays.sort(chain);
        check(chain.length == 3, "the chain has " + chain.length + " stages");
    }

    @Override
    public void onTaskEnd(SparkListenerTaskEnd end) {
        if (!end.taskInfo().successful()) {
            return;
        }
        Stage stage = stages.computeIfAbsent(end.stageId(), id -> new Stage());
        ShuffleReadMetrics read = end.taskMetrics().shuffleReadMetrics();
        stage.remote += read.remoteBytesRead();
        stage.local += read.localBytesRead();
        stage.written += end.taskMetrics().shuffleWriteMetrics().bytesWritten();
        stage.remoteByHost.merge(end.taskInfo().host(), read.remoteBytesRead(), Long::sum);
    }

    /** Converts the log, after the end of the application, and checks the trace. */
    void checkTrace() throws Exception {
        Path trace = scratch.resolve("spark.weir");
        Path flows = scratch.resolve("spark-flows.csv");
        run("trace", "convert", "--from", "spark", log().toString(), trace.toString());
        run("sim", trace.toString(), "--policy", "fair", "--quiet", "--out", scratch.resolve("spark-sim.txt").toString(), "--per-flow",
                flows.toString());
        Map<Integer, Coflow> coflows = readCoflows(trace, flows);
        double bytes = 0;
        for (Map.Entry<Integer, Stage> entry : stages.entrySet()) {
            Stage stage = entry.getValue();
            Coflow coflow = coflows.getOrDefault(entry.getKey(), new Coflow());
            String name = "stage " + entry.getKey();
            checkBytes(name, coflow, coflow.bytes, stage.remote);
            stage.remoteByHost.forEach((host, remote) ->
                    checkBytes(name + " at " + host, coflow, coflow.bytesByHost.getOrDefault(host, 0.0), remote));
            bytes += coflow.bytes;
        }
        check(stages.keySet().containsAll(coflows.keySet()), "coflows " + coflows.keySet() + " of stages " + stages.keySet());
        // What a stage of the chain reads is what the one before has written.
        for (int at = 1; at < chain.length; at++) {
            Stage stage = stages.get(chain[at]);
            long written = stages.get(chain[at - 1]).written;
            check(stage.remote > 0 && stage.remote + stage.local == written,
                    "stage " + chain[at] + " reads " + stage.remote + " + " + stage.local + " bytes of " + written);
        }
        String parents = coflows.get(chain[1]).parents + ", " + coflows.get(chain[2]).parents;
        check(parents.equals("null, " + chain[1]), "parents of the chain: " + parents);
        System.out.printf("ok: event log: %d coflows of %d stages, %.0f bytes%n", coflows.size(), stages.size(), bytes);
    }

    /** Each flow of a coflow is rounded to a byte. */
    private static void checkBytes(String name, Coflow coflow, double found, long expected) {
        check(Math.abs(found - expected) <= coflow.flows, name + ": the trace has " + found + " bytes; expected " + expected);
    }

    private Path log() throws IOException {
        List<Path> logs = new ArrayList<>();
        try (DirectoryStream<Path> files = Files.newDirectoryStream(scratch.resolve("events"), "app-*")) {
            files.forEach(logs::add);
        }
        check(logs.size() == 1, "event logs: " + logs);
        return logs.get(0);
    }

    private void run(String... arguments) throws Exception {
        List<String> command = new ArrayList<>(Arrays.asList(arguments));
        command.add(0, weir);
        int code = new ProcessBuilder(command).inheritIO().start().waitFor();
        check(code == 0, command + " exits with " + code);
    }

    private static Map<Integer, Coflow> readCoflows(Path trace, Path flows) throws IOException {
        Map<String, String> hosts = new HashMap<>();
        Map<Integer, Coflow> coflows = new TreeMap<>();
        for (String line : Files.readAllLines(trace)) {
            Matcher port = PORT.matcher(line);
            Matcher coflow = COFLOW.matcher(line);
            if (port.matches()) {
                hosts.put(port.group(1), port.group(2));
            } else if (coflow.matches()) {
                coflows.computeIfAbsent(Integer.parseInt(coflow.group(1)), id -> new Coflow()).parents = coflow.group(2);
            }
        }
        List<String> lines = Files.readAllLines(flows);
        List<String> columns = Arrays.asList(lines.get(0).split(","));
        for (String line : lines.subList(1, lines.size())) {
            String[] fields = line.split(",");
            Coflow coflow = coflows.get(Integer.parseInt(fields[columns.indexOf("coflow")]));
            double bytes = Double.parseDouble(fields[columns.indexOf("bytes")]);
            coflow.flows++;
            coflow.bytes += bytes;
            coflow.bytesByHost.merge(hosts.get(fields[columns.indexOf("dst")]), bytes, Double::sum);
        }
        return coflows;
    }

    private static void check(boolean condition, String message) {
        if (!condition) {
            throw new AssertionError(message);
        }
    }
}
