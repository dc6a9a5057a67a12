package io.weir.spark.live;

import java.io.IOException;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** Shuffles of few bytes, whose time is that of messages, with unmodified Spark and with Weir. */
final class SmallMeasurement {
    private static final int SHUFFLES = 10;
    private static final int BYTES = 2000;

    private final Lab lab;
    /** By the number of regions that have tasks. */
    private final Map<Integer, Times> times = new LinkedHashMap<>();
    private final Samples busyPlain = new Samples();
    private final Samples busyWeir = new Samples();

    /** Seconds by run, and differences of the runs of a round. */
    private static final class Times {
        final Samples[] all = {new Samples(), new Samples(), new Samples()};
        final Samples[] one = {new Samples(), new Samples(), new Samples()};

        void add(Run plain, Run weir) {
            add(all, plain.number("job"), weir.number("job"));
            add(one, medianShuffle(plain), medianShuffle(weir));
        }

        private static void add(Samples[] samples, double plain, double weir) {
            samples[0].add(plain);
            samples[1].add(weir);
            samples[2].add(weir - plain);
        }
    }

    SmallMeasurement(Lab lab) {
        this.lab = lab;
        times.put(2, new Times());
        times.put(lab.regions.length, new Times());
    }

    private static double medianShuffle(Run run) {
        Samples shuffles = new Samples();
        Arrays.stream(run.fields.get("shuffles").split(",")).mapToDouble(Double::parseDouble).forEach(shuffles::add);
        return shuffles.median();
    }

    void run(int rounds) throws IOException, InterruptedException {
        try (Overlay overlay = new Overlay(lab);
                Session plain = new Session(lab, "plain", null);
                Session weir = new Session(lab, "weir", overlay.api())) {
            SortMeasurement.start(overlay, plain, weir);
            Map<String, String> before = null;
            for (int round = 0; round <= rounds; round++) {
                for (Map.Entry<Integer, Times> entry : times.entrySet()) {
                    runRound(round, rounds, entry.getKey(), entry.getValue(), plain, weir);
                }
                // The first round loads classes.
                before = round == 0 ? weir.run("counts") : before;
            }
            print(rounds, before, weir.run("counts"));
        }
    }

    private void runRound(int round, int rounds, int regions, Times times, Session plain, Session weir) throws IOException {
        // One task for each of the first regions.
        String tasks = IntStream.range(0, lab.regions.length)
                .mapToObj(region -> region < regions ? "1" : "0")
                .collect(Collectors.joining(","));
        String job = String.format(Locale.ROOT, "small %d %d %d %s", round, SHUFFLES, BYTES, tasks);
        Run[] runs = new Run[2];
        for (boolean isPlain : new boolean[] {Demo.isPlainFirst(round), !Demo.isPlainFirst(round)}) {
            runs[isPlain ? 0 : 1] = Run.of(lab, isPlain ? plain : weir, job);
        }
        if (!runs[0].fields.get("hash").equals(runs[1].fields.get("hash"))) {
            throw new IllegalStateException("the results differ");
        }
        Lab.progress("round %d of %d, %d regions: Spark %.1f s, Weir %.1f s, processors %.0f %% and %.0f %% busy", round, rounds, regions,
                runs[0].number("job"), runs[1].number("job"), 100 * runs[0].all, 100 * runs[1].all);
        if (round > 0) {
            times.add(runs[0], runs[1]);
            busyPlain.add(100 * runs[0].all);
            busyWeir.add(100 * runs[1].all);
        }
    }

    private void print(int rounds, Map<String, String> before, Map<String, String> after) {
        System.out.printf("## Small shuffles%n%n");
        System.out.printf(Locale.ROOT, "%d shuffles of %d bytes, one after the other, in an application in the same regions: %d rounds, in "
                + "which unmodified Spark and Weir alternate, after one that loads classes. Medians, the minimum and the maximum.%n%n",
                SHUFFLES, BYTES, rounds);
        System.out.printf("- *Tasks*: one map task and one reduce task in each region, in %s and %s only or in all %d regions. The driver is "
                + "in %s.%n", lab.regions[0], lab.regions[1], lab.regions.length, lab.regions[0]);
        System.out.println("- *One shuffle*: the median of those of a run, from the submission of its job to the result.");
        System.out.printf("- *Difference*: Weir's time minus Spark's in the same round.%n%n");
        System.out.println("| regions | time | Spark | with Weir | difference |");
        System.out.println("|---:|---|---:|---:|---:|");
        times.forEach((regions, of) -> {
            printRow(regions, SHUFFLES + " shuffles, s", of.all);
            printRow(regions, "one shuffle, s", of.one);
        });
        long[] counts = Arrays.stream(new String[] {"flows", "fallback", "relayed", "direct"})
                .mapToLong(name -> Long.parseLong(after.get(name)) - Long.parseLong(before.get(name))).toArray();
        System.out.printf(Locale.ROOT, "%n%d blocks arrived as flows; Spark fetched %d itself. %d flows used relays, and %d went directly. "
                + "The processors were %s %% busy with Spark, and %s %% with Weir.%n", counts[0], counts[1], counts[2], counts[3],
                busyPlain.formatRange(0), busyWeir.formatRange(0));
    }

    private static void printRow(int regions, String title, Samples[] samples) {
        System.out.printf("| %d | %s | %s | %s | %s |%n", regions, title, samples[0].formatRange(2), samples[1].formatRange(2),
                samples[2].formatRange(2));
    }
}
