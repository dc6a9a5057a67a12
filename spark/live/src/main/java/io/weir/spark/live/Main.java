package io.weir.spark.live;

import java.io.IOException;
import java.util.Locale;

/** Measures Spark in regions. Arguments: the file that describes them, and `demo`, `sort`, `workloads` or `faults` with arguments. */
public final class Main {
    static final String SIPHON = "siphon:detours=on:groups=on";

    private Main() {}

    public static void main(String[] args) throws Exception {
        Lab lab = new Lab(args[0]);
        int count = args.length > 2 ? Integer.parseInt(args[2]) : 0;
        switch (args[1]) {
            case "demo":
                demo(lab, args.length > 2 ? Double.parseDouble(args[2]) : 100);
                break;
            case "sort":
                new SortMeasurement(lab).run(count > 0 ? count : 5);
                break;
            case "workloads":
                new WorkloadMeasurement(lab).run(count > 0 ? count : 3);
                break;
            case "faults":
                new FaultMeasurement(lab).run(count > 0 ? count : 20);
                break;
            default:
                throw new IllegalArgumentException("unknown mode " + args[1] + "; expected demo, sort, workloads or faults");
        }
    }

    private static void demo(Lab lab, double megabytes) throws IOException, InterruptedException {
        try (Overlay overlay = new Overlay(lab);
                Session plain = new Session(lab, "plain", null);
                Session weir = new Session(lab, "weir", overlay.api())) {
            Lab.progress("starting a coordinator, the relays of each region, and executors");
            overlay.start(SIPHON);
            plain.awaitReady();
            weir.awaitReady();
            Lab.progress("running two small jobs, which load the classes of executors");
            plain.run("sort 0 10 0");
            weir.run("sort 0 10 0");
            String job = String.format(Locale.ROOT, "sort 1 %.3f 0", megabytes);
            Lab.progress("sorting %.0f MB with unmodified Spark", megabytes);
            Run without = Run.of(lab, plain, job);
            Lab.progress("sorting %.0f MB with Weir", megabytes);
            Run with = Run.of(lab, weir, job, overlay);
            if (!with.fields.get("hash").equals(without.fields.get("hash"))) {
                throw new IllegalStateException("the results differ");
            }
            System.out.printf(Locale.ROOT, "%-28s %10s %10s%n", "seconds", "Spark", "with Weir");
            for (String stage : new String[] {"map", "reduce", "job"}) {
                System.out.printf(Locale.ROOT, "%-28s %10.1f %10.1f%n", stage, without.number(stage), with.number(stage));
            }
            for (double fraction : new double[] {0.5, 0.9, 1}) {
                System.out.printf(Locale.ROOT, "%-28s %10.1f %10.1f%n", fraction == 1 ? "slowest shuffle read" : "shuffle read, P" + (int) (fraction * 100),
                        Samples.quantile(without.reads(), fraction), Samples.quantile(with.reads(), fraction));
            }
            System.out.printf(Locale.ROOT, "%nMB over each link%n");
            for (int from = 0; from < lab.regions.length; from++) {
                for (int to = 0; to < lab.regions.length; to++) {
                    if (from != to) {
                        System.out.printf(Locale.ROOT, "%-28s %10.1f %10.1f%n", lab.regions[from] + " to " + lab.regions[to],
                                without.linkBytes[from][to] / 1e6, with.linkBytes[from][to] / 1e6);
                    }
                }
            }
            System.out.printf(Locale.ROOT, "%nOf the bytes between relays, %.0f %% took a detour.%n", 100 * with.relayBytes[1] / with.relayBytes[0]);
            System.out.printf(Locale.ROOT, "Coflow completion time: estimated %.1f s, measured %.1f s.%n", with.coflowSeconds[0], with.coflowSeconds[1]);
            System.out.printf(Locale.ROOT, "Both results are equal. %s blocks arrived as flows, and Spark fetched %s after a failure.%n",
                    weir.run("counts").get("flows"), weir.run("counts").get("fallback"));
        }
    }
}
