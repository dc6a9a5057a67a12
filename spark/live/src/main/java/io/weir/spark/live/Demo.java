package io.weir.spark.live;

import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;

/** The same sort several times, with unmodified Spark and with Weir. */
final class Demo {
    private final Lab lab;
    private final double megabytes;
    private final Columns plain = new Columns();
    private final Columns weir = new Columns();
    private final Samples detours = new Samples();
    private final Samples estimated = new Samples();
    private final Samples measured = new Samples();

    /** What was measured with unmodified Spark, or with Weir. */
    private static final class Columns {
        final Map<String, Samples> seconds = new LinkedHashMap<>();
        final Map<String, Samples> linkMegabytes = new LinkedHashMap<>();

        void add(Lab lab, Run run) {
            for (String stage : new String[] {"map", "reduce", "job"}) {
                add(seconds, stage, run.number(stage));
            }
            add(seconds, "shuffle read, P50", Samples.quantile(run.reads(), 0.5));
            add(seconds, "shuffle read, P90", Samples.quantile(run.reads(), 0.9));
            add(seconds, "slowest shuffle read", Samples.quantile(run.reads(), 1));
            for (int from = 0; from < lab.regions.length; from++) {
                for (int to = 0; to < lab.regions.length; to++) {
                    if (from != to) {
                        add(linkMegabytes, lab.regions[from] + " to " + lab.regions[to], run.linkBytes[from][to] / 1e6);
                    }
                }
            }
        }

        private static void add(Map<String, Samples> samples, String row, double value) {
            samples.computeIfAbsent(row, r -> new Samples()).add(value);
        }
    }

    Demo(Lab lab, double megabytes) {
        this.lab = lab;
        this.megabytes = megabytes;
    }

    /** Alternates, so that a machine that becomes slower or faster does not favor one of the two. Rounds count from 1. */
    static boolean isPlainFirst(int round) {
        return round % 2 == 1;
    }

    void run(int rounds) throws IOException, InterruptedException {
        try (Overlay overlay = new Overlay(lab);
                Session plainSession = new Session(lab, "plain", null);
                Session weirSession = new Session(lab, "weir", overlay.api())) {
            SortMeasurement.start(overlay, plainSession, weirSession);
            String job = String.format(Locale.ROOT, "sort 1 %.3f 0", megabytes);
            String hash = null;
            for (int round = 1; round <= rounds; round++) {
                for (boolean isPlain : new boolean[] {isPlainFirst(round), !isPlainFirst(round)}) {
                    Run run = isPlain ? Run.of(lab, plainSession, job) : Run.of(lab, weirSession, job, overlay);
                    (isPlain ? plain : weir).add(lab, run);
                    if (!isPlain) {
                        detours.add(100 * run.relayBytes[1] / run.relayBytes[0]);
                        estimated.add(run.coflowSeconds[0]);
                        measured.add(run.coflowSeconds[1]);
                    }
                    hash = hash == null ? run.fields.get("hash") : hash;
                    if (!run.fields.get("hash").equals(hash)) {
                        throw new IllegalStateException("the results differ");
                    }
                    Lab.progress("round %d of %d, %s: job %.1f s, slowest shuffle read %.1f s, processors %.0f %% busy", round, rounds,
                            isPlain ? "Spark" : "Weir", run.number("job"), Samples.quantile(run.reads(), 1), 100 * run.all);
                }
            }
            print(rounds, weirSession.run("counts"));
        }
    }

    private void print(int rounds, Map<String, String> counts) {
        System.out.printf(Locale.ROOT, "A sort of %.0f MB, %d %s; medians, the minimum and the maximum%n%n", megabytes, rounds,
                rounds == 1 ? "round" : "rounds");
        printTable("seconds", plain.seconds, weir.seconds);
        System.out.println();
        printTable("MB over each link", plain.linkMegabytes, weir.linkMegabytes);
        System.out.printf(Locale.ROOT, "%nOf the bytes between relays, %s %% took a detour.%n", detours.formatRange(0));
        System.out.printf(Locale.ROOT, "Coflow completion time: estimated %s s, measured %s s.%n", estimated.formatRange(1), measured.formatRange(1));
        System.out.printf(Locale.ROOT, "All results are equal. %s blocks arrived as flows, and Spark fetched %s after a failure.%n",
                counts.get("flows"), counts.get("fallback"));
    }

    private static void printTable(String title, Map<String, Samples> plain, Map<String, Samples> weir) {
        System.out.printf(Locale.ROOT, "%-22s %24s %24s%n", title, "Spark", "with Weir");
        plain.forEach((row, samples) -> System.out.printf(Locale.ROOT, "%-22s %24s %24s%n", row, samples.formatRange(1),
                weir.get(row).formatRange(1)));
    }
}
