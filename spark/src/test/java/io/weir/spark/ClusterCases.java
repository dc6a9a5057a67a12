package io.weir.spark;

import static org.apache.spark.sql.functions.expr;

import com.sun.net.httpserver.HttpServer;
import io.weir.flow.TestRelay;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.core.config.Configurator;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import scala.Tuple2;

/**
 * Runs the same jobs on a cluster with and without Weir, and compares results. spark/test-cluster starts it.
 *
 * Arguments: the master, the address of the driver, the jars for executors, a scratch directory, and names of groups.
 */
public final class ClusterCases {
    private static final int RECORDS = 200_000;
    /** Texts that no log has without a fault. */
    private static final List<String> FAULTS = List.of("Socket closed", "returned reply for one-way message");

    private final String master;
    private final String host;
    private final String jars;
    private final Path scratch;
    private final Map<String, Long> expected = new TreeMap<>();
    private int passed;

    private ClusterCases(String[] args) {
        master = args[0];
        host = args[1];
        jars = args[2];
        scratch = Paths.get(args[3]);
    }

    /** A job: its result identifies the records and, where it is defined, their order. */
    private interface Job {
        long run(SparkSession spark) throws Exception;
    }

    /** What the executors have counted. */
    static final class Counts {
        long flowBlocks;
        long flowBytes;
        long fallbackBlocks;
        long laterAttemptBlocks;
        long inactiveBlocks;
        int executors;
        int inactiveExecutors;

        @Override
        public String toString() {
            return flowBlocks + " blocks (" + flowBytes + " bytes) as flows, " + fallbackBlocks + " by Spark after a failure, "
                    + laterAttemptBlocks + " for later attempts of stages, " + inactiveBlocks + " without Weir";
        }
    }

    public static void main(String[] args) throws Exception {
        ClusterCases cases = new ClusterCases(args);
        List<String> groups = Arrays.asList(args).subList(4, args.length);
        cases.runVanilla();
        for (String group : groups) {
            long started = System.nanoTime();
            cases.runGroup(group);
            System.out.printf("==> group %s took %d s%n", group, (System.nanoTime() - started) / 1_000_000_000);
        }
        System.out.println(cases.passed + " passed, 0 failed");
    }

    private static Map<String, Job> jobs() {
        Map<String, Job> jobs = new LinkedHashMap<>();
        jobs.put("sort", spark -> hash(pairs(spark).sortByKey(true, 6).collect()));
        jobs.put("group", spark -> sum(pairs(spark).mapToPair(r -> new Tuple2<>(r._1() % 500, r._2())).groupByKey(6)
                .mapValues(values -> {
                    long sum = 0;
                    for (String value : values) {
                        sum += value.hashCode();
                    }
                    return sum;
                }).collect()));
        jobs.put("reduce", spark -> sum(pairs(spark).mapToPair(r -> new Tuple2<>(r._1() % 5000, (long) r._2().hashCode()))
                .reduceByKey(Long::sum, 6).collect()));
        jobs.put("join", spark -> pairs(spark).join(pairs(spark), 6).map(r -> (long) r.hashCode()).reduce(Long::sum));
        jobs.put("reuse", spark -> {
            JavaPairRDD<Integer, String> sorted = pairs(spark).sortByKey(true, 4);
            return sorted.count() * 31 + hash(sorted.collect());
        });
        jobs.put("sql-coalesce", spark -> {
            spark.conf().set("spark.sql.shuffle.partitions", "50");
            return collect("coalesced", spark.range(0, 300_000, 1, 6).selectExpr("id % 7919 as k", "id * 31 as v").groupBy("k").sum("v")
                    .orderBy("k"));
        });
        jobs.put("sql-skew", spark -> {
            spark.conf().set("spark.sql.shuffle.partitions", "8");
            spark.conf().set("spark.sql.autoBroadcastJoinThreshold", "-1");
            spark.conf().set("spark.sql.adaptive.advisoryPartitionSizeInBytes", "64k");
            spark.conf().set("spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes", "64k");
            spark.conf().set("spark.sql.adaptive.skewJoin.skewedPartitionFactor", "2");
            return collect("skew=true", spark.range(0, 200_000, 1, 6).selectExpr("if(id % 4 < 3, 1, id % 1000) as k", "hash(id) as v")
                    .join(spark.range(0, 1000, 1, 3).selectExpr("id as j", "id * 7 as w"), expr("k = j"))
                    .groupBy(expr("(v + w) % 97 as g")).agg(expr("sum(v + w)")).orderBy("g"));
        });
        return jobs;
    }

    private static JavaPairRDD<Integer, String> pairs(SparkSession spark) {
        List<Integer> seeds = IntStream.range(0, 8).boxed().collect(Collectors.toList());
        return new JavaSparkContext(spark.sparkContext()).parallelize(seeds, 8).flatMapToPair(seed -> {
            Random random = new Random(seed);
            List<Tuple2<Integer, String>> records = new ArrayList<>();
            for (int n = 0; n < RECORDS / 8; n++) {
                int key = random.nextInt(1_000_000) * 8 + seed;
                records.add(new Tuple2<>(key, Long.toHexString(random.nextLong()) + Long.toHexString(random.nextLong())));
            }
            return records.iterator();
        });
    }

    /** Collects the rows of a query whose plan has a property. */
    private static long collect(String property, Dataset<Row> query) throws ReflectiveOperationException {
        long hash = hash(query.collectAsList());
        // In Spark 4 the method is one of a subclass.
        Object execution = query.getClass().getMethod("queryExecution").invoke(query);
        check(execution.toString().contains(property), "the plan has no " + property + ": " + execution);
        return hash;
    }

    private static long hash(List<?> records) {
        return records.size() * 31L + records.hashCode();
    }

    private static long sum(List<?> records) {
        return records.stream().mapToLong(Object::hashCode).sum();
    }

    private SparkConf conf(String name) {
        return new SparkConf().setMaster(master).setAppName(name)
                .set("spark.driver.host", host)
                .set("spark.driver.bindAddress", host)
                .set("spark.ui.enabled", "false")
                .set("spark.executor.memory", "600m")
                .set("spark.executor.extraClassPath", jars)
                .set("spark.executor.extraJavaOptions", "-XX:-UsePerfData -Djava.io.tmpdir=" + System.getProperty("java.io.tmpdir"))
                .set("spark.locality.wait", "0s")
                .set("spark.cores.max", "4")
                .set("spark.scheduler.minRegisteredResourcesRatio", "1.0")
                .set("spark.scheduler.maxRegisteredResourcesWaitingTime", "60s")
                .set("spark.sql.warehouse.dir", scratch.resolve("warehouse").toString());
    }

    private SparkConf weirConf(String name) {
        return conf(name)
                .set("spark.shuffle.manager", "io.weir.spark.WeirShuffleManager")
                .set("spark.plugins", "io.weir.spark.WeirPlugin");
    }

    private interface Body {
        void run(SparkSession spark) throws Exception;
    }

    private static void withSession(SparkConf conf, Body body) throws Exception {
        SparkSession spark = SparkSession.builder().config(conf).getOrCreate();
        spark.sparkContext().setLogLevel("WARN");
        // The driver logs answers to one-way messages, and most events of Weir, at this level.
        Configurator.setLevel("org.apache.spark.internal.plugin", Level.INFO);
        Configurator.setLevel("io.weir", Level.INFO);
        try {
            body.run(spark);
        } finally {
            spark.stop();
        }
    }

    private void runVanilla() throws Exception {
        EventLogCheck eventLog = new EventLogCheck(System.getProperty("weir.binary"), scratch);
        withSession(eventLog.withLog(conf("vanilla")), spark -> {
            spark.sparkContext().addSparkListener(eventLog);
            for (Map.Entry<String, Job> job : jobs().entrySet()) {
                long started = System.nanoTime();
                expected.put(job.getKey(), job.getValue().run(spark));
                System.out.printf("    unmodified Spark: %s, %d ms%n", job.getKey(), (System.nanoTime() - started) / 1_000_000);
            }
            eventLog.runChain(new JavaSparkContext(spark.sparkContext()));
        });
        eventLog.checkTrace();
        passed++;
        System.out.println("==> unmodified Spark " + org.apache.spark.package$.MODULE$.SPARK_VERSION() + " gave " + expected.size() + " results");
    }

    private void runJobs(String group, SparkSession spark) throws Exception {
        for (Map.Entry<String, Job> job : jobs().entrySet()) {
            runJob(group, spark, job.getKey(), job.getValue());
        }
    }

    private void runJob(String group, SparkSession spark, String name, Job job) throws Exception {
        long started = System.nanoTime();
        check(job.run(spark) == expected.get(name), group + ": result of " + name + " differs from that of unmodified Spark");
        System.out.printf("ok: %s: %s, %d ms%n", group, name, (System.nanoTime() - started) / 1_000_000);
        passed++;
    }

    private static void check(boolean condition, String message) {
        if (!condition) {
            throw new AssertionError(message);
        }
    }

    /** The counts of executors in which Weir is active. */
    static Counts counts(SparkContext spark) {
        Counts counts = countAll(spark);
        check(counts.inactiveExecutors == 0, "Weir is off in " + counts.inactiveExecutors + " executors");
        return counts;
    }

    private static Counts countAll(SparkContext spark) {
        List<Integer> tasks = IntStream.range(0, 24).boxed().collect(Collectors.toList());
        Map<String, long[]> byExecutor = new HashMap<>();
        new JavaSparkContext(spark).parallelize(tasks, 24).mapToPair(task -> {
            Thread.sleep(50);
            WeirExecutor weir = WeirExecutor.reporting();
            return new Tuple2<>(SparkEnv.get().executorId(), weir == null ? null : counts(weir));
        }).collect().forEach(entry -> byExecutor.put(entry._1(), entry._2()));
        Counts counts = new Counts();
        byExecutor.forEach((executor, values) -> {
            check(values != null, "Weir is off in executor " + executor);
            counts.flowBlocks += values[0];
            counts.flowBytes += values[1];
            counts.fallbackBlocks += values[2];
            counts.laterAttemptBlocks += values[3];
            counts.inactiveBlocks += values[4];
            counts.inactiveExecutors += values[5];
            counts.executors++;
        });
        return counts;
    }

    private static long[] counts(WeirExecutor weir) {
        Counters counters = weir.counters();
        return new long[] {counters.flowBlocks.getCount(), counters.flowBytes.getCount(),
            counters.fallbackBlocks(Counters.Fallback.FLOW_FAILED), counters.fallbackBlocks(Counters.Fallback.STAGE_ATTEMPT),
            counters.fallbackBlocks(Counters.Fallback.INACTIVE), weir == WeirExecutor.active() ? 0 : 1};
    }

    private void runGroup(String group) throws Exception {
        switch (group) {
            case "direct":
                // The relay does not run.
                runClean(group, weirConf(group).set("spark.weir.relay", host + ":9"));
                break;
            case "relay":
                runRelay(group);
                break;
            case "encryption":
                runClean(group, weirConf(group)
                        .set("spark.io.encryption.enabled", "true")
                        .set("spark.speculation", "true")
                        .set("spark.speculation.multiplier", "1.1")
                        .set("spark.speculation.quantile", "0.5"));
                break;
            case "files":
                // Blocks above 16 KiB go to files.
                runClean(group, weirConf(group)
                        .set("spark.network.maxRemoteBlockSizeFetchToMem", "16k")
                        .set("spark.reducer.maxReqsInFlight", "2")
                        .set("spark.shuffle.compress", "false")
                        .set("spark.shuffle.useOldFetchProtocol", "true"));
                break;
            case "failures":
                withSession(weirConf(group).set("spark.weir.timeout", "5s"), spark -> runFailures(group, spark));
                break;
            case "inactive":
                runInactive(group);
                break;
            case "external":
                withSession(weirConf(group).set("spark.shuffle.service.enabled", "true").set("spark.weir.timeout", "5s"), spark -> {
                    runJobs(group, spark);
                    Counts counts = counts(spark.sparkContext());
                    System.out.println("    " + counts);
                    check(counts.flowBlocks > 0, "no block arrived as a flow");
                    runFailures(group, spark);
                });
                break;
            default:
                throw new IllegalArgumentException("unknown group: " + group);
        }
    }

    private void runClean(String group, SparkConf conf) throws Exception {
        Path log = scratch.resolve("driver.log");
        long start = Files.size(log);
        List<String> applications = new ArrayList<>();
        withSession(conf, spark -> {
            applications.add(spark.sparkContext().applicationId());
            runJobs(group, spark);
            checkClean(counts(spark.sparkContext()));
        });
        checkLog(log, start, "Initialized driver component for plugin");
        List<Path> logs = executorLogs(applications.get(0));
        check(logs.size() >= 2, "logs of executors: " + logs + "; expected one in each region");
        for (Path executor : logs) {
            checkLog(executor, 0, "arrive as flows at");
        }
        System.out.println("    no faults in the logs of the driver and of " + logs.size() + " executors");
    }

    private List<Path> executorLogs(String application) throws IOException {
        List<Path> logs = new ArrayList<>();
        try (DirectoryStream<Path> workers = Files.newDirectoryStream(scratch, "work-*")) {
            for (Path worker : workers) {
                try (Stream<Path> files = Files.walk(worker.resolve(application), 2)) {
                    files.filter(file -> file.getFileName().toString().equals("stderr")).forEach(logs::add);
                }
            }
        }
        return logs;
    }

    /**
     * Checks that a log has no faults after its first bytes.
     *
     * @param start the number of these bytes
     * @param expected what a line of the level INFO contains: without that level, the log would have no faults in any case
     */
    private static void checkLog(Path log, long start, String expected) throws IOException {
        byte[] bytes = Files.readAllBytes(log);
        String text = new String(bytes, (int) start, bytes.length - (int) start, StandardCharsets.UTF_8);
        check(text.contains(expected), log + " has no line with `" + expected + "`");
        List<String> faults = Stream.of(text.split("\n"))
                .filter(line -> FAULTS.stream().anyMatch(line::contains))
                .collect(Collectors.toList());
        check(faults.isEmpty(), log + " has " + faults.size() + " lines with " + FAULTS + ": " + faults);
    }

    private static void checkClean(Counts counts) {
        System.out.println("    " + counts);
        check(counts.executors >= 2, "executors: " + counts.executors + "; expected one in each region");
        check(counts.flowBlocks > 0, "no block arrived as a flow");
        check(counts.fallbackBlocks == 0, "flows failed");
    }

    private void runRelay(String group) throws Exception {
        Map<String, String> coflows = new ConcurrentHashMap<>();
        Map<String, String> deregistered = new ConcurrentHashMap<>();
        HttpServer coordinator = startCoordinator(coflows, deregistered, "[{\"name\":\"w\",\"region\":\"west\",\"present\":true},"
                + "{\"name\":\"e\",\"region\":\"east\",\"present\":true}]");
        String api = "http://" + host + ":" + coordinator.getAddress().getPort();
        try (TestRelay relay = new TestRelay(InetAddress.getByName(host)); TestRelay second = new TestRelay(InetAddress.getByName(host))) {
            SparkConf conf = weirConf(group)
                    .set("spark.weir.relay", relay.address() + "," + second.address())
                    .set("spark.weir.coordinator", api)
                    .set("spark.weir.service", "spark")
                    .set("spark.weir.timeout", "4s");
            withSession(conf, spark -> {
                runJobs(group, spark);
                checkClean(counts(spark.sparkContext()));
                check(relay.connections.get() > 0 && second.connections.get() > 0, "a relay got no flow");
                System.out.println("    " + relay.connections + " and " + second.connections + " flows over the relays, "
                        + deregistered.size() + " coflows have completed");
                checkNumbers(relay.flows);
                Map<String, Job> jobs = jobs();
                for (TestRelay.Mode mode : TestRelay.Mode.values()) {
                    relay.inject(mode, 20_000, 12);
                    runJob(group + ", " + mode, spark, "sort", jobs.get("sort"));
                    runJob(group + ", " + mode, spark, "sql-skew", jobs.get("sql-skew"));
                    System.out.println("    " + counts(spark.sparkContext()));
                }
            });
            check(coflows.isEmpty(), "coflows are still registered: " + coflows);
            check(deregistered.size() >= 7, "coflows: " + deregistered + "; expected one for each shuffle");
            deregistered.forEach((coflow, flows) -> check(flows.contains("west") && flows.contains("east") && flows.contains("\"numbers\":["),
                    coflow + ": " + flows));
        } finally {
            coordinator.stop(0);
        }
    }

    /** The coordinator does not know the region of one of the two executors, in which Weir is not active. */
    private void runInactive(String group) throws Exception {
        HttpServer coordinator = startCoordinator(new ConcurrentHashMap<>(), new ConcurrentHashMap<>(),
                "[{\"name\":\"w\",\"region\":\"west\",\"present\":true}]");
        try {
            SparkConf conf = weirConf(group).set("spark.weir.coordinator", "http://" + host + ":" + coordinator.getAddress().getPort());
            withSession(conf, spark -> {
                // The first executor may start before the driver knows the regions, and is refused at its first query.
                runJob(group, spark, "sort", jobs().get("sort"));
                runJob(group, spark, "group", jobs().get("group"));
                Counts counts = countAll(spark.sparkContext());
                System.out.println("    " + counts);
                check(counts.inactiveExecutors == 1 && counts.inactiveBlocks > 0, "one executor without Weir should count blocks");
            });
        } finally {
            coordinator.stop(0);
        }
    }

    /** Checks that flows have the numbers of several flow groups, and of the few executors. */
    private static void checkNumbers(Set<Long> flows) {
        long groups = flows.stream().map(flow -> flow >>> 22).distinct().count();
        long executors = flows.stream().map(flow -> flow >>> 10 & 0xfff).distinct().count();
        long highest = flows.stream().mapToLong(flow -> flow >>> 10 & 0xfff).max().orElse(0);
        check(groups > 2 && executors >= 2 && highest < 8, "groups: " + groups + ", executors: " + executors + ", the highest is " + highest);
    }

    /** Answers as a coordinator does. `coflows` has the last body of each registered coflow, `deregistered` that of others. */
    private HttpServer startCoordinator(Map<String, String> coflows, Map<String, String> deregistered, String relays) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress(host, 0), 0);
        server.createContext("/v1/coflows/", exchange -> {
            String name = exchange.getRequestURI().getPath().substring("/v1/coflows/".length());
            boolean isUpdate = name.endsWith("/flows");
            String coflow = isUpdate ? name.substring(0, name.length() - "/flows".length()) : name;
            ByteArrayOutputStream body = new ByteArrayOutputStream();
            try (InputStream in = exchange.getRequestBody()) {
                byte[] buffer = new byte[4096];
                for (int n; (n = in.read(buffer)) >= 0; ) {
                    body.write(buffer, 0, n);
                }
            }
            int status = 204;
            if (exchange.getRequestMethod().equals("DELETE")) {
                String flows = coflows.remove(coflow);
                if (flows == null) {
                    status = 404;
                } else {
                    deregistered.put(coflow, flows);
                }
            } else if (isUpdate && !coflows.containsKey(coflow)) {
                status = 404;
            } else {
                coflows.put(coflow, body.toString());
            }
            exchange.sendResponseHeaders(status, -1);
            exchange.close();
        });
        answer(server, "/v1/coflows", "{\"coflows\":[],\"next\":null}");
        answer(server, "/v1/services", "[{\"name\":\"spark\"}]");
        answer(server, "/v1/relays", relays);
        server.start();
        return server;
    }

    private static void answer(HttpServer server, String path, String json) {
        server.createContext(path, exchange -> {
            byte[] body = json.getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
    }

    private void runFailures(String group, SparkSession spark) throws Exception {
        runJob(group + ", lost files", spark, "reuse", this::reuseAfterLostFiles);
        Counts counts = counts(spark.sparkContext());
        System.out.println("    " + counts);
        check(counts.laterAttemptBlocks > 0, "no block of a later attempt was counted");
        runJob(group + ", killed executor", spark, "group", session -> {
            String marker = scratch.resolve("killed-" + group).toString();
            return sum(pairs(session).mapToPair(r -> new Tuple2<>(r._1() % 500, r._2())).groupByKey(6).mapValues(values -> {
                haltOnce(marker);
                long sum = 0;
                for (String value : values) {
                    sum += value.hashCode();
                }
                return sum;
            }).collect());
        });
        runJobs(group + ", after failures", spark);
    }

    /** Deletes the map outputs of one executor between two jobs that read them: Spark has to run the map stage again. */
    private long reuseAfterLostFiles(SparkSession spark) throws IOException {
        JavaPairRDD<Integer, String> sorted = pairs(spark).sortByKey(true, 4);
        long count = sorted.count();
        String marker = scratch.resolve("deleted-" + System.nanoTime()).toString();
        List<Integer> tasks = Arrays.asList(0, 1, 2, 3);
        new JavaSparkContext(spark.sparkContext()).parallelize(tasks, 4).foreach(task -> {
            if (claim(marker)) {
                for (File directory : SparkEnv.get().blockManager().diskBlockManager().localDirs()) {
                    deleteShuffleData(directory.toPath());
                }
            }
        });
        return count * 31 + hash(sorted.collect());
    }

    private static void deleteShuffleData(Path directory) throws IOException {
        try (Stream<Path> files = Files.walk(directory)) {
            files.filter(file -> file.getFileName().toString().startsWith("shuffle_")).forEach(file -> {
                try {
                    Files.delete(file);
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            });
        }
    }

    private static void haltOnce(String marker) throws IOException {
        if (claim(marker)) {
            Runtime.getRuntime().halt(1);
        }
    }

    private static boolean claim(String marker) throws IOException {
        try {
            Files.createFile(Paths.get(marker));
            return true;
        } catch (FileAlreadyExistsException e) {
            return false;
        }
    }
}
