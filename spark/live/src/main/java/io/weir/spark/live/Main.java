package io.weir.spark.live;

/**
 * Measures Spark in regions.
 *
 * Arguments: the file that describes them, `demo`, `sort`, `workloads`, `faults` or `small`, and the arguments of that.
 */
public final class Main {
    static final String SIPHON = "siphon:detours=on:groups=on";

    private Main() {}

    public static void main(String[] args) throws Exception {
        Lab lab = new Lab(args[0]);
        int count = args.length > 2 ? Integer.parseInt(args[2]) : 0;
        switch (args[1]) {
            case "demo":
                new Demo(lab, Double.parseDouble(args[3])).run(count);
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
            case "small":
                new SmallMeasurement(lab).run(count > 0 ? count : 5);
                break;
            default:
                throw new IllegalArgumentException("unknown mode " + args[1] + "; expected demo, sort, workloads, faults or small");
        }
    }
}
