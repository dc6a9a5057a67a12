package io.weir.spark.live;

import java.util.ArrayList;
import java.util.List;

/** Which host runs which task: task N of each stage of the sort runs at the host of its region. */
final class Placement {
    /** Fractions of the data in the regions of Siphon's Table 1: docs/results/siphon.md. */
    private static final double[] DATA = {0.148, 0.250, 0.170, 0.173, 0.259};

    private final int[] regions;
    private final int[] tasksOfRegion;

    Placement(int[] tasksOfRegion) {
        this.tasksOfRegion = tasksOfRegion;
        List<Integer> list = new ArrayList<>();
        for (int region = 0; region < tasksOfRegion.length; region++) {
            for (int n = 0; n < tasksOfRegion[region]; n++) {
                list.add(region);
            }
        }
        regions = list.stream().mapToInt(Integer::intValue).toArray();
    }

    int tasks() {
        return regions.length;
    }

    int region(int task) {
        return regions[task];
    }

    int tasksOf(int region) {
        return tasksOfRegion[region];
    }

    /** The fraction of the data that is at a task. */
    double dataFraction(int task) {
        return DATA[regions[task]] / tasksOfRegion[regions[task]];
    }

    String[] hosts() {
        String[] hosts = new String[regions.length];
        for (int task = 0; task < hosts.length; task++) {
            hosts[task] = host(regions[task]);
        }
        return hosts;
    }

    private static String host(int region) {
        return "10.80." + (region + 1) + ".1";
    }
}
