package io.weir.spark.live;

import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** The sort of Siphon's section 5.2 with each of Siphon's parts: Fig. 10 to 13. */
final class SortMeasurement {
    /** The bytes of the paper's job, and the bandwidths of Table 1, are multiplied by these. */
    static final double PAPER_MEGABYTES = 2730;
    static final double DATA_SCALE = 0.05;
    /** As in the simulation: docs/results/siphon.md. */
    private static final double PAPER_SECONDS_PER_MEGABYTE = 0.1;
    private static final double PAPER_SHORT_READ_SECONDS = 18;

    private final Lab lab;
    /** Time passes as in the paper, multiplied by this. */
    private final double timeScale;
    private final Map<String, Scheme> schemes = new LinkedHashMap<>();

    private static final class Scheme {
        /** The policy of the overlay; null for unmodified Spark. */
        final String policy;
        final Map<String, Samples> samples = new LinkedHashMap<>();
        final double[][] linkBytes = new double[5][5];
        int runs;

        Scheme(String policy) {
            this.policy = policy;
        }

        void add(String name, double value) {
            samples.computeIfAbsent(name, n -> new Samples()).add(value);
        }

        String format(String name, int decimals) {
            return samples.containsKey(name) ? samples.get(name).format(decimals) : "-";
        }
    }

    SortMeasurement(Lab lab) {
        this.lab = lab;
        timeScale = DATA_SCALE / lab.scale();
        schemes.put("Spark", new Scheme(null));
        schemes.put("naive", new Scheme("fair"));
        schemes.put("flow groups", new Scheme("siphon:groups=on"));
        schemes.put("multi-path", new Scheme("fair:detours=on"));
        schemes.put("Siphon", new Scheme(Main.SIPHON));
    }

    /** The command of a sort with this seed. */
    static String job(Lab lab, long seed) {
        double secondsPerMegabyte = PAPER_SECONDS_PER_MEGABYTE / lab.scale();
        return String.format(Locale.ROOT, "sort %d %.3f %.3f", seed, PAPER_MEGABYTES * DATA_SCALE, secondsPerMegabyte);
    }

    void run(int rounds) throws IOException, InterruptedException {
        try (Overlay overlay = new Overlay(lab);
                Session plain = new Session(lab, "plain", null);
                Session weir = new Session(lab, "weir", overlay.api())) {
            start(overlay, plain, weir);
            for (int round = 1; round <= rounds; round++) {
                String hash = null;
                for (Map.Entry<String, Scheme> entry : schemes.entrySet()) {
                    Scheme scheme = entry.getValue();
                    Run run;
                    if (scheme.policy == null) {
                        run = Run.of(lab, plain, job(lab, round));
                        hash = run.fields.get("hash");
                    } else {
                        overlay.start(scheme.policy);
                        run = Run.of(lab, weir, job(lab, round), overlay);
                        scheme.add("detoured", 100 * run.relayBytes[1] / run.relayBytes[0]);
                        scheme.add("estimated", run.coflowSeconds[0]);
                        scheme.add("measured", run.coflowSeconds[1]);
                    }
                    if (!run.fields.get("hash").equals(hash)) {
                        throw new IllegalStateException(entry.getKey() + ": the result differs from that of unmodified Spark");
                    }
                    add(scheme, run);
                    Lab.progress("round %d of %d, %s: job %.1f s, slowest read %.1f s, processors %.0f %% busy", round, rounds, entry.getKey(),
                            run.number("job"), Samples.quantile(run.reads(), 1), 100 * run.all);
                }
            }
            Map<String, String> counts = weir.run("counts");
            print(rounds, counts);
        }
    }

    /** Starts the relays, waits for the executors of both clusters, and lets them load and compile their classes. */
    static void start(Overlay overlay, Session plain, Session weir) throws IOException, InterruptedException {
        Lab.progress("starting relays and executors");
        overlay.start(Main.SIPHON);
        plain.awaitReady();
        weir.awaitReady();
        for (Session session : new Session[] {plain, weir}) {
            for (int n = 0; n < 2; n++) {
                session.run("sort 0 20 0");
            }
        }
    }

    private void add(Scheme scheme, Run run) {
        double[] reads = run.reads();
        scheme.add("map", run.number("map"));
        scheme.add("reduce", run.number("reduce"));
        scheme.add("job", run.number("job"));
        scheme.add("p50", Samples.quantile(reads, 0.5));
        scheme.add("p90", Samples.quantile(reads, 0.9));
        scheme.add("slowest", Samples.quantile(reads, 1));
        double limit = PAPER_SHORT_READ_SECONDS * timeScale;
        double within = 0;
        for (double read : reads) {
            within += read <= limit ? 100.0 / reads.length : 0;
        }
        scheme.add("within", within);
        List<FlowGroups> groups = run.flowGroups(lab.tasks());
        double order = groups.stream().mapToDouble(FlowGroups::rankCorrelation).filter(one -> !Double.isNaN(one)).average().orElse(Double.NaN);
        scheme.add("order", order);
        for (boolean isLarger : new boolean[] {true, false}) {
            scheme.add(isLarger ? "larger" : "smaller", groups.stream().mapToDouble(all -> all.meanEnd(isLarger)).average().orElse(Double.NaN));
        }
        scheme.add("relays", 100 * run.relays);
        scheme.add("jvms", 100 * run.jvms);
        scheme.add("lines", 100 * run.lines);
        scheme.add("all", 100 * run.all);
        for (int from = 0; from < lab.regions.length; from++) {
            for (int to = 0; to < lab.regions.length; to++) {
                scheme.linkBytes[from][to] += run.linkBytes[from][to];
            }
        }
        scheme.runs++;
    }

    private void print(int rounds, Map<String, String> counts) {
        double factor = timeScale;
        System.out.printf(Locale.ROOT, "## One shuffle (section 5.2)%n%n");
        System.out.printf(Locale.ROOT, "A sort of %.0f MB over the five regions of Table 1, with Spark %s: %d runs of each scheme, interleaved; means with "
                + "the 95 %% confidence interval (Student's t).%n%n", PAPER_MEGABYTES * DATA_SCALE, System.getProperty("spark.version", "3.5.5"), rounds);
        System.out.printf(Locale.ROOT, "- *Scale*: bandwidths are %s of Table 1's, data %s of the paper's, so that the processors are not the bottleneck. "
                + "Transfers take %s of the paper's time; published and simulated seconds are multiplied by it.%n", lab.get("scale"), DATA_SCALE, factor);
        System.out.println("- *Delay and loss*: `examples/wide-area/table-1-delays.csv`, unscaled.");
        System.out.println("- *Data and tasks*: as in [the simulation](siphon.md#one-shuffle-section-52). One executor for each region, with two cores "
                + "for each of the paper's 19 workers; every task is pinned to its region. Spark has four connections between two executors, as between two "
                + "regions of two workers. A reduce task waits in place of computing, since all executors share this machine.");
        System.out.println("- *Read*: from the start of a reduce task until it has read and sorted its records.");
        System.out.printf("%n### Fig. 10 and 11: stages%n%n");
        System.out.println("| scheme | map stage s | reduce stage s | job s | processors busy % | relays % | JVMs % | delay lines % |");
        System.out.println("|---|---:|---:|---:|---:|---:|---:|---:|");
        schemes.forEach((name, scheme) -> row(name, scheme, "map 1", "reduce 1", "job 1", "all 0", "relays 1", "jvms 0", "lines 1"));
        System.out.printf("%nProcessor time is a fraction of all processors of the machine, over the job; `busy` includes other programs.%n");
        System.out.printf("%n### Fig. 12: shuffle reads%n%n");
        System.out.printf(Locale.ROOT, "| scheme | P50 s | P90 s | slowest s | slowest, simulated s | slowest, published s | within %.0f s %% | "
                + "within 18 s, published %% | estimated CCT s | measured CCT s |%n", PAPER_SHORT_READ_SECONDS * factor);
        System.out.println("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
        // Of docs/results/siphon.md, and the text of the paper's section 5.2.
        double[] simulated = {Double.NaN, 66.5, 66.5, 13.7, 13.7};
        String[] published = {"naive + ~%.0f", "> %.0f", "-", "~ %.0f", "\"almost the same\""};
        double[] publishedSeconds = {10, 60, 0, 50, 0};
        String[] publishedWithin = {"-", "35", "-", "22", "-"};
        int at = 0;
        for (Map.Entry<String, Scheme> entry : schemes.entrySet()) {
            Scheme scheme = entry.getValue();
            System.out.printf(Locale.ROOT, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |%n", entry.getKey(), scheme.format("p50", 1),
                    scheme.format("p90", 1), scheme.format("slowest", 1),
                    Double.isNaN(simulated[at]) ? "-" : String.format(Locale.ROOT, "%.1f", simulated[at] * factor),
                    String.format(Locale.ROOT, published[at], publishedSeconds[at] * factor), scheme.format("within", 0), publishedWithin[at],
                    scheme.format("estimated", 1), scheme.format("measured", 1));
            at++;
        }
        System.out.printf(Locale.ROOT, "%nThe coflow completion time (CCT) is that of `weir ctl coflows`: from the first map output to the last "
                + "acknowledgement. %s blocks arrived as flows; Spark fetched %s after a failure.%n", counts.get("flows"), counts.get("fallback"));
        printOrder();
        System.out.printf("%n### Fig. 13: MB over each link%n%n");
        System.out.println("| link | " + String.join(" | ", schemes.keySet()) + " |");
        System.out.println("|---|" + "---:|".repeat(schemes.size()));
        for (int from = 0; from < lab.regions.length; from++) {
            for (int to = 0; to < lab.regions.length; to++) {
                if (from != to) {
                    StringBuilder row = new StringBuilder("| " + lab.regions[from] + " to " + lab.regions[to] + " |");
                    for (Scheme scheme : schemes.values()) {
                        row.append(String.format(Locale.ROOT, " %.1f |", scheme.linkBytes[from][to] / scheme.runs / 1e6));
                    }
                    System.out.println(row);
                }
            }
        }
        System.out.printf("%nWith headers and retransmissions. Detoured bytes, of those between relays: naive %s %%, multi-path %s %%, Siphon %s %%.%n",
                schemes.get("naive").format("detoured", 1), schemes.get("multi-path").format("detoured", 1), schemes.get("Siphon").format("detoured", 1));
    }

    /** Shows whether larger flow groups are served first, as the two schemes with flow groups order. */
    private void printOrder() {
        System.out.printf("%n### The order of flow groups (section 3.2)%n%n");
        System.out.println("| scheme | rank correlation of size and completion | larger groups complete s | smaller groups complete s | reduce stage s |");
        System.out.println("|---|---:|---:|---:|---:|");
        schemes.forEach((name, scheme) -> row(name, scheme, "order 2", "larger 1", "smaller 1", "reduce 1"));
        System.out.printf("%nA flow group is what a reduce task receives, also from its own region. It completes when the task has read and sorted it; times are "
                + "means from the start of the stage. Correlations (Spearman) are those within each region, and means over the regions: -1 if the largest "
                + "group is always first. The larger groups are half of those of each region. The paper states no figures; it says that the order helps "
                + "\"marginally\".%n");
    }

    private static void row(String name, Scheme scheme, String... columns) {
        StringBuilder row = new StringBuilder("| " + name + " |");
        for (String column : columns) {
            String[] parts = column.split(" ");
            row.append(' ').append(scheme.format(parts[0], Integer.parseInt(parts[1]))).append(" |");
        }
        System.out.println(row);
    }
}
