package io.weir.spark.live;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.stream.IntStream;

/** The regions that spark/regions.sh has started. */
final class Lab {
    private final Properties properties = new Properties();
    final Path scratch;
    final String[] regions;

    Lab(String file) throws IOException {
        try (InputStream in = Files.newInputStream(Paths.get(file))) {
            properties.load(in);
        }
        scratch = Paths.get(get("scratch"));
        regions = get("regions").split(" ");
    }

    String get(String key) {
        String value = properties.getProperty(key);
        if (value == null) {
            throw new IllegalArgumentException("the description of the regions has no " + key);
        }
        return value;
    }

    int[] tasks() {
        return numbers(get("tasks"));
    }

    static int[] numbers(String text) {
        return Arrays.stream(text.split(" ")).mapToInt(Integer::parseInt).toArray();
    }

    double scale() {
        return Double.parseDouble(get("scale"));
    }

    String gatewayAddress(int region) {
        return "10.80." + (region + 1) + ".254";
    }

    String network(int region) {
        return "10.80." + (region + 1) + ".0/24";
    }

    /** The driver's node, which also has the coordinator. */
    String driverNode() {
        return regions[0] + "-2";
    }

    /** The device of a region's gateway that leads to another region. */
    static String device(int to) {
        return "wan" + (to + 1);
    }

    /** A command inside a node. */
    List<String> inside(String node, String... command) {
        List<String> list = new ArrayList<>(Arrays.asList("ip", "netns", "exec", get("namespaces") + node));
        list.addAll(Arrays.asList(command));
        return list;
    }

    /** Runs a command inside a node, and returns its output. */
    String run(String node, String... command) throws IOException {
        Process process = new ProcessBuilder(inside(node, command)).redirectError(log("commands")).start();
        String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        try {
            if (process.waitFor() != 0) {
                throw new IOException(String.join(" ", command) + " failed: see " + scratch.resolve("commands.log"));
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IOException("interrupted");
        }
        return output;
    }

    /** Starts a program inside a node. Its output goes to a log. */
    Process start(String name, List<String> command) throws IOException {
        return new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(log(name)).start();
    }

    ProcessBuilder.Redirect log(String name) {
        return ProcessBuilder.Redirect.appendTo(new File(scratch.toFile(), name + ".log"));
    }

    String certificate(String file) {
        return get("certificates") + "/" + file;
    }

    /** The bandwidth of each link in bits per second: from row to column; 0 inside a region. */
    double[][] bandwidths() {
        double[][] rates = new double[regions.length][regions.length];
        List<String> names = Arrays.asList(regions);
        int from = -1;
        int to = -1;
        for (String line : readLines(get("wide.area"))) {
            String[] field = line.replace("\"", "").split(" = ");
            switch (field[0]) {
                case "from":
                    from = names.indexOf(field[1]);
                    break;
                case "to":
                    to = names.indexOf(field[1]);
                    break;
                case "rate":
                    rates[from][to] = Double.parseDouble(field[1].replace("Mbit", "")) * 1e6 * scale();
                    break;
                default:
            }
        }
        IntStream.range(0, regions.length).forEach(region -> check(rates, region));
        return rates;
    }

    private void check(double[][] rates, int region) {
        for (int other = 0; other < regions.length; other++) {
            if ((rates[region][other] == 0) != (region == other)) {
                throw new IllegalArgumentException(get("wide.area") + ": no rate from " + regions[region] + " to " + regions[other]);
            }
        }
    }

    static List<String> readLines(String file) {
        try {
            return Files.readAllLines(Paths.get(file));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static void progress(String format, Object... arguments) {
        System.err.printf(Locale.ROOT, "%tT " + format + "%n", concat(System.currentTimeMillis(), arguments));
    }

    private static Object[] concat(Object first, Object[] rest) {
        Object[] all = new Object[rest.length + 1];
        all[0] = first;
        System.arraycopy(rest, 0, all, 1, rest.length);
        return all;
    }
}
