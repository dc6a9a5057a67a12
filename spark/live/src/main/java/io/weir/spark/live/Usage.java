package io.weir.spark.live;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** Processor time of this machine's programs, and bytes on the links between regions, at one moment. */
final class Usage {
    private static final double TICKS_PER_SECOND = 100;

    final long nanos = System.nanoTime();
    /** Seconds of relays and the coordinator, of JVMs, of the delay lines, and of all programs of this machine. */
    double relays;
    double jvms;
    double lines;
    double all;
    /** From row to column. */
    final double[][] linkBytes;

    Usage(Lab lab) throws IOException {
        linkBytes = new double[lab.regions.length][lab.regions.length];
        Set<Object> namespaces = new HashSet<>();
        try (DirectoryStream<Path> files = Files.newDirectoryStream(Paths.get("/run/netns"), lab.get("namespaces") + "*")) {
            for (Path file : files) {
                namespaces.add(Files.getAttribute(file, "unix:ino"));
            }
        }
        lines = processSeconds(Paths.get("/proc", lab.get("lab")));
        try (DirectoryStream<Path> processes = Files.newDirectoryStream(Paths.get("/proc"), "[0-9]*")) {
            for (Path process : processes) {
                add(process, namespaces);
            }
        }
        String[] total = Lab.readLines("/proc/stat").get(0).trim().split(" +");
        for (int at = 1; at < 9; at++) {
            // Idle time and waiting for disks are the fourth and fifth.
            all += at == 4 || at == 5 ? 0 : Double.parseDouble(total[at]) / TICKS_PER_SECOND;
        }
        for (int from = 0; from < lab.regions.length; from++) {
            String devices = lab.run(lab.regions[from], "cat", "/proc/net/dev");
            for (int to = 0; to < lab.regions.length; to++) {
                if (from != to) {
                    linkBytes[from][to] = sentBytes(devices, Lab.device(to));
                }
            }
        }
    }

    private void add(Path process, Set<Object> namespaces) {
        try {
            if (namespaces.contains(Files.getAttribute(process.resolve("ns/net"), "unix:ino"))) {
                String name = Files.readString(process.resolve("comm")).trim();
                double seconds = processSeconds(process);
                relays += name.equals("weir") ? seconds : 0;
                jvms += name.equals("java") ? seconds : 0;
            }
        } catch (IOException e) {
            // The process has exited.
        }
    }

    private static double processSeconds(Path process) throws IOException {
        List<String> lines = Files.readAllLines(process.resolve("stat"));
        String[] fields = lines.get(0).substring(lines.get(0).lastIndexOf(')') + 2).split(" ");
        return (Double.parseDouble(fields[11]) + Double.parseDouble(fields[12])) / TICKS_PER_SECOND;
    }

    private static double sentBytes(String devices, String device) {
        for (String line : devices.split("\n")) {
            String[] fields = line.trim().split("[: ]+");
            if (fields[0].equals(device)) {
                return Double.parseDouble(fields[9]);
            }
        }
        throw new IllegalStateException("a gateway has no device " + device);
    }

    double secondsSince(Usage before) {
        return (nanos - before.nanos) / 1e9;
    }
}
