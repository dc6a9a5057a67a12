package io.weir.spark.live;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

/** A job with what it used. */
final class Run {
    final Map<String, String> fields;
    /** Processor time as a fraction of the machine's. */
    final double relays;
    final double jvms;
    final double lines;
    final double all;
    final double[][] linkBytes;
    /** Bytes that relays have sent to other relays, and those of them on a detour. */
    final double[] relayBytes = new double[2];
    /** Estimated and measured seconds of the coflow; NaN without one. */
    final double[] coflowSeconds = {Double.NaN, Double.NaN};

    private Run(Map<String, String> fields, Usage before, Usage after) {
        this.fields = fields;
        double capacity = after.secondsSince(before) * Runtime.getRuntime().availableProcessors();
        relays = (after.relays - before.relays) / capacity;
        jvms = (after.jvms - before.jvms) / capacity;
        lines = (after.lines - before.lines) / capacity;
        all = (after.all - before.all) / capacity;
        linkBytes = after.linkBytes;
        for (int from = 0; from < linkBytes.length; from++) {
            for (int to = 0; to < linkBytes.length; to++) {
                linkBytes[from][to] -= before.linkBytes[from][to];
            }
        }
    }

    /** Runs a job without an overlay. */
    static Run of(Lab lab, Session session, String job) throws IOException {
        Usage before = new Usage(lab);
        Map<String, String> fields = session.run(job);
        return new Run(fields, before, new Usage(lab));
    }

    /** Runs a job with an overlay. */
    static Run of(Lab lab, Session session, String job, Overlay overlay) throws IOException, InterruptedException {
        double[] bytes = overlay.relayBytes();
        Set<String> before = overlay.list("coflows").stream().map(coflow -> coflow.get("id")).collect(Collectors.toSet());
        Run run = of(lab, session, job);
        awaitCoflow(overlay, before, run.coflowSeconds);
        double[] after = overlay.relayBytes();
        Arrays.setAll(run.relayBytes, at -> after[at] - bytes[at]);
        return run;
    }

    double number(String field) {
        return Double.parseDouble(fields.get(field));
    }

    double[] reads() {
        return numbers("reads");
    }

    /** Values of a sort by reduce task. */
    private double[] numbers(String field) {
        return Arrays.stream(fields.get(field).split(",")).mapToDouble(Double::parseDouble).toArray();
    }

    /** The flow groups of a sort in each region. `tasks`: the number of tasks of each region. */
    List<FlowGroups> flowGroups(int[] tasks) {
        double[] sizes = numbers("sizes");
        double[] ends = numbers("ends");
        List<FlowGroups> list = new ArrayList<>();
        int first = 0;
        for (int count : tasks) {
            list.add(new FlowGroups(Arrays.copyOfRange(sizes, first, first + count), Arrays.copyOfRange(ends, first, first + count)));
            first += count;
        }
        return list;
    }

    /** Waits for the coflow of the job: the coordinator completes it after the last reports of relays. */
    private static void awaitCoflow(Overlay overlay, Set<String> before, double[] seconds) throws IOException, InterruptedException {
        for (int attempt = 0; attempt < 15; attempt++) {
            for (Map<String, String> coflow : overlay.list("coflows")) {
                if (!before.contains(coflow.get("id")) && !coflow.get("measured_seconds").isEmpty()) {
                    seconds[0] = Double.parseDouble(coflow.get("predicted_seconds"));
                    seconds[1] = Double.parseDouble(coflow.get("measured_seconds"));
                    return;
                }
            }
            Thread.sleep(200);
        }
    }
}
