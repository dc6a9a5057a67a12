package io.weir.spark.live;

import java.io.IOException;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

/** Kills a relay, the coordinator or a path at a random moment of a sort, and starts it again. */
final class FaultMeasurement {
    private static final long SEED = 1;
    private static final int BASELINE_RUNS = 3;
    /** The last moment of a fault, as a fraction of the shortest job without one. */
    private static final double LAST_MOMENT = 0.9;
    private static final double MIN_OUTAGE = 2;
    private static final double MAX_OUTAGE = 8;

    private final Lab lab;
    private final Random random = new Random(SEED);

    FaultMeasurement(Lab lab) {
        this.lab = lab;
    }

    /** What is killed. */
    private interface Fault {
        void begin() throws IOException, InterruptedException;

        void end() throws IOException, InterruptedException;
    }

    void run(int count) throws IOException, InterruptedException {
        try (Overlay overlay = new Overlay(lab);
                Session plain = new Session(lab, "plain", null);
                Session weir = new Session(lab, "weir", overlay.api())) {
            SortMeasurement.start(overlay, plain, weir);
            String job = SortMeasurement.job(lab, SEED);
            Map<String, String> unmodified = plain.run(job);
            String correct = unmodified.get("hash");
            Samples baseline = new Samples();
            for (int n = 0; n < BASELINE_RUNS; n++) {
                baseline.add(run(weir, job, correct));
            }
            Lab.progress("without faults: %s s; unmodified Spark: %s s", baseline.format(1), unmodified.get("job"));
            StringBuilder rows = new StringBuilder();
            long[] before = counts(weir);
            int failed = 0;
            for (int n = 1; n <= count; n++) {
                String kind = new String[] {"relay", "coordinator", "path"}[n % 3];
                int region = random.nextInt(lab.regions.length);
                int other = (region + 1 + random.nextInt(lab.regions.length - 1)) % lab.regions.length;
                double moment = random.nextDouble() * LAST_MOMENT * baseline.min();
                double outage = MIN_OUTAGE + random.nextDouble() * (MAX_OUTAGE - MIN_OUTAGE);
                String name = kind.equals("coordinator") ? kind
                        : kind.equals("relay") ? "relay of " + lab.regions[region] : "path " + lab.regions[region] + " - " + lab.regions[other];
                String result;
                double seconds = Double.NaN;
                try {
                    seconds = runWithFault(weir, job, correct, fault(overlay, kind, region, other), moment, outage);
                    result = "correct";
                } catch (IOException | CompletionException | IllegalStateException e) {
                    failed++;
                    result = "FAILED: " + e.getMessage();
                }
                overlay.awaitRelays();
                long[] after = counts(weir);
                rows.append(String.format(Locale.ROOT, "| %d | %s | %.1f | %.1f | %s | %.1f | %.2f | %d |%n", n, name, moment, outage, result, seconds,
                        seconds / baseline.mean(), after[0] - before[0]));
                before = after;
                Lab.progress("%d of %d, %s at %.1f s for %.1f s: %s, %.1f s", n, count, name, moment, outage, result, seconds);
            }
            print(count, failed, baseline, unmodified.get("job"), rows);
            if (failed > 0) {
                throw new IllegalStateException(failed + " of " + count + " runs failed");
            }
        }
    }

    private static long[] counts(Session weir) throws IOException {
        Map<String, String> counts = weir.run("counts");
        return new long[] {Long.parseLong(counts.get("fallback")), Long.parseLong(counts.get("flows"))};
    }

    private static double run(Session session, String job, String correct) throws IOException {
        Map<String, String> fields = session.run(job);
        if (!fields.get("hash").equals(correct)) {
            throw new IllegalStateException("the result is wrong");
        }
        return Double.parseDouble(fields.get("job"));
    }

    private static double runWithFault(Session session, String job, String correct, Fault fault, double moment, double outage)
            throws IOException, InterruptedException {
        CompletableFuture<Double> result = CompletableFuture.supplyAsync(() -> {
            try {
                return run(session, job, correct);
            } catch (IOException e) {
                throw new CompletionException(e);
            }
        });
        Thread.sleep((long) (moment * 1000));
        fault.begin();
        Thread.sleep((long) (outage * 1000));
        fault.end();
        return result.join();
    }

    private Fault fault(Overlay overlay, String kind, int region, int other) {
        switch (kind) {
            case "relay":
                return new Fault() {
                    @Override
                    public void begin() throws InterruptedException {
                        overlay.stopRelays(region);
                    }

                    @Override
                    public void end() throws IOException {
                        overlay.startRelays(region);
                    }
                };
            case "coordinator":
                return new Fault() {
                    @Override
                    public void begin() throws InterruptedException {
                        overlay.stopCoordinator();
                    }

                    @Override
                    public void end() throws IOException {
                        overlay.startCoordinator();
                    }
                };
            default:
                return new Fault() {
                    @Override
                    public void begin() throws IOException {
                        cut(region, other);
                        cut(other, region);
                    }

                    @Override
                    public void end() throws IOException {
                        restore(region, other);
                        restore(other, region);
                    }
                };
        }
    }

    /** Drops all packets of a gateway to another region: they are larger than the bucket. */
    private void cut(int from, int to) throws IOException {
        lab.run(lab.regions[from], "tc", "qdisc", "replace", "dev", Lab.device(to), "root", "tbf", "rate", "8kbit", "burst", "10", "limit", "10");
    }

    private void restore(int from, int to) throws IOException {
        lab.run(lab.regions[from], "tc", "qdisc", "del", "dev", Lab.device(to), "root");
    }

    private static void print(int count, int failed, Samples baseline, String unmodified, StringBuilder rows) {
        System.out.printf("## Failures%n%n");
        System.out.printf(Locale.ROOT, "A relay, the coordinator or a path between two regions fails at a random moment of the sort of \"One shuffle\", and "
                + "returns after a random time. Relays and the coordinator are killed (SIGKILL); a failed path drops all packets. Without a fault, the job takes "
                + "%s s with Siphon, and %s s with unmodified Spark.%n%n", baseline.format(1), unmodified);
        System.out.printf("**%d of %d results are those of unmodified Spark.**%n%n", count - failed, count);
        System.out.println("| run | what fails | after s | for s | result | job s | job / job without a fault | blocks that Spark fetched |");
        System.out.println("|---:|---|---:|---:|---|---:|---:|---:|");
        System.out.print(rows);
    }
}
