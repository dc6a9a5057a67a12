package io.weir.spark.live;

import java.io.IOException;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;

/** Three workloads of Siphon's Table 2, with unmodified Spark and with Siphon. */
final class WorkloadMeasurement {
    private static final String[] NAMES = {"als", "bmm", "pca"};
    private static final String[] TITLES = {"ALS", "BMM", "PCA"};
    /** Reductions of the application's run time in Fig. 8 and the text of 5.1. */
    private static final String[] PUBLISHED = {"13.2", "23.6", "-"};

    private final Lab lab;

    WorkloadMeasurement(Lab lab) {
        this.lab = lab;
    }

    void run(int rounds) throws IOException, InterruptedException {
        Map<String, Samples> samples = new HashMap<>();
        Map<String, Run> last = new HashMap<>();
        try (Overlay overlay = new Overlay(lab);
                Session plain = new Session(lab, "plain", null);
                Session weir = new Session(lab, "weir", overlay.api())) {
            SortMeasurement.start(overlay, plain, weir);
            for (int round = 0; round <= rounds; round++) {
                for (String name : NAMES) {
                    Run without = Run.of(lab, plain, name);
                    Run with = Run.of(lab, weir, name, overlay);
                    check(name, without, with);
                    Lab.progress("round %d of %d, %s: Spark %.1f s (reads %.1f s), Siphon %.1f s (reads %.1f s)", round, rounds, name,
                            without.number("job"), without.number("read"), with.number("job"), with.number("read"));
                    // The first round loads classes.
                    if (round > 0) {
                        add(samples, name + " Spark", without);
                        add(samples, name + " Siphon", with);
                        last.put(name + " Spark", without);
                        last.put(name + " Siphon", with);
                    }
                }
            }
        }
        print(rounds, samples, last);
    }

    private static void check(String name, Run without, Run with) {
        double expected = without.number("hash");
        // Sums of floating-point numbers depend on their order.
        if (Math.abs(with.number("hash") - expected) > 1e-4 * Math.abs(expected)) {
            throw new IllegalStateException(name + ": the result " + with.fields.get("hash") + " differs from " + without.fields.get("hash"));
        }
    }

    private static void add(Map<String, Samples> samples, String key, Run run) {
        samples.computeIfAbsent(key + " job", k -> new Samples()).add(run.number("job"));
        samples.computeIfAbsent(key + " read", k -> new Samples()).add(run.number("read"));
        samples.computeIfAbsent(key + " all", k -> new Samples()).add(100 * run.all);
    }

    private void print(int rounds, Map<String, Samples> samples, Map<String, Run> last) {
        System.out.printf("## Workloads (section 5.1, Table 2)%n%n");
        System.out.printf(Locale.ROOT, "Spark's MLlib in the same regions, with %s of Table 1's bandwidths: %d interleaved runs of each after one that loads "
                + "classes; means with the 95 %% confidence interval (Student's t). Inputs are pinned to regions as in the sort; other tasks are where Spark "
                + "starts them.%n%n", lab.get("scale"), rounds);
        System.out.println("| workload | stages | shuffled MB | run time s, Spark | run time s, Siphon | less % | less, published % | shuffle reads s, Spark | "
                + "shuffle reads s, Siphon | processors busy %, Spark | processors busy %, Siphon |");
        System.out.println("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
        for (int at = 0; at < NAMES.length; at++) {
            String plain = NAMES[at] + " Spark";
            String weir = NAMES[at] + " Siphon";
            double less = 100 * (1 - samples.get(weir + " job").mean() / samples.get(plain + " job").mean());
            System.out.printf(Locale.ROOT, "| %s | %s | %.1f | %s | %s | %.1f | %s | %s | %s | %s | %s |%n", TITLES[at],
                    last.get(plain).fields.get("stages"), last.get(plain).number("megabytes"), samples.get(plain + " job").format(1),
                    samples.get(weir + " job").format(1), less, PUBLISHED[at], samples.get(plain + " read").format(1),
                    samples.get(weir + " read").format(1), samples.get(plain + " all").format(0), samples.get(weir + " all").format(0));
        }
        System.out.printf("%nShuffled MB are those between executors. Shuffle reads: the longest wait for blocks of any task, summed over stages.%n");
    }
}
