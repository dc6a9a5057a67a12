package io.weir.spark.live;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** The coordinator and the relays of each region, which serve the same network. */
final class Overlay implements AutoCloseable {
    private static final int COORDINATOR_PORT = 7700;
    private static final int API_PORT = 7701;
    /** The ports of a region's first relay; those of the next one are higher by the step. */
    private static final int RELAY_PORT = 7710;
    private static final int PROGRAM_PORT = 7711;
    private static final int PORT_STEP = 10;
    private static final long START_SECONDS = 60;

    private final Lab lab;
    private final String host;
    /** By region and number. */
    private final Process[][] relays;
    private Process coordinator;

    Overlay(Lab lab) {
        this.lab = lab;
        this.host = lab.get("driver.host");
        this.relays = new Process[lab.regions.length][Integer.parseInt(lab.get("relays"))];
    }

    /** The address of the API. */
    String api() {
        return "https://" + host + ":" + API_PORT;
    }

    /** Starts a coordinator with this policy and an empty store, and relays if they do not run. Waits until all are connected. */
    void start(String policy) throws IOException, InterruptedException {
        stopCoordinator();
        try (Stream<Path> files = Files.list(lab.scratch)) {
            for (Path file : (Iterable<Path>) files.filter(path -> path.getFileName().toString().startsWith("weir.redb"))::iterator) {
                Files.delete(file);
            }
        }
        Files.write(configuration(), Arrays.asList(configuration(policy)));
        startCoordinator();
        for (int region = 0; region < relays.length; region++) {
            startRelays(region);
        }
        awaitRelays();
    }

    private Path configuration() {
        return lab.scratch.resolve("serve.toml");
    }

    private String configuration(String policy) {
        StringBuilder text = new StringBuilder("weir-serve = 1\nstore = \"weir.redb\"\n\n");
        text.append("[listen]\nagents = \"").append(host).append(':').append(COORDINATOR_PORT).append("\"\n");
        text.append("api = \"").append(host).append(':').append(API_PORT).append("\"\n\n");
        text.append("[tls]\ncertificate = \"").append(lab.certificate("coordinator.pem")).append("\"\n");
        text.append("key = \"").append(lab.certificate("coordinator.key")).append("\"\n");
        text.append("clients = \"").append(lab.certificate("authority.pem")).append("\"\n\n");
        text.append("[overlay]\npolicy = \"").append(policy).append("\"\n\n[overlay.relay]\n");
        for (int region = 0; region < relays.length; region++) {
            for (int number = 0; number < relays[region].length; number++) {
                text.append(String.format(Locale.ROOT, "%s = { region = \"%s\", address = \"%s:%d\", networks = [\"%s\"] }%n",
                        name(region, number), lab.regions[region], lab.gatewayAddress(region), RELAY_PORT + number * PORT_STEP, lab.network(region)));
            }
        }
        text.append("\n[overlay.link]\n");
        double[][] rates = lab.bandwidths();
        for (int from = 0; from < lab.regions.length; from++) {
            List<String> links = new ArrayList<>();
            for (int to = 0; to < lab.regions.length; to++) {
                if (from != to) {
                    links.add(String.format(Locale.ROOT, "%s = \"%.0fkbit\"", lab.regions[to], rates[from][to] / 1e3));
                }
            }
            text.append(lab.regions[from]).append(" = { ").append(String.join(", ", links)).append(" }\n");
        }
        return text.toString();
    }

    void startCoordinator() throws IOException {
        coordinator = lab.start("coordinator", lab.inside(lab.driverNode(), lab.get("weir"), "serve", "--config", configuration().toString()));
    }

    /** Kills the coordinator. */
    void stopCoordinator() throws InterruptedException {
        coordinator = kill(coordinator);
    }

    private String name(int region, int number) {
        return lab.regions[region] + "-" + (number + 1);
    }

    /** Starts the relays of a region that do not run. */
    void startRelays(int region) throws IOException {
        for (int number = 0; number < relays[region].length; number++) {
            String name = name(region, number);
            if (relays[region][number] == null) {
                relays[region][number] = lab.start("relay-" + name, lab.inside(lab.regions[region], lab.get("weir"), "relay", "run",
                        "--name", name, "--coordinator", host + ":" + COORDINATOR_PORT,
                        "--relays", lab.gatewayAddress(region) + ":" + (RELAY_PORT + number * PORT_STEP),
                        "--programs", lab.gatewayAddress(region) + ":" + (PROGRAM_PORT + number * PORT_STEP),
                        "--certificate", lab.certificate(name + ".pem"), "--key", lab.certificate(name + ".key"),
                        "--authority", lab.certificate("authority.pem"), "--insecure"));
            }
        }
    }

    /** Kills the relays of a region. */
    void stopRelays(int region) throws InterruptedException {
        for (int number = 0; number < relays[region].length; number++) {
            relays[region][number] = kill(relays[region][number]);
        }
    }

    private static Process kill(Process process) throws InterruptedException {
        if (process != null) {
            process.destroyForcibly().waitFor();
        }
        return null;
    }

    /** Waits until all relays receive orders, and are connected with each other. */
    void awaitRelays() throws IOException, InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_SECONDS);
        int count = relays.length * relays[0].length;
        while (true) {
            try {
                long present = list("relays").stream().filter(relay -> relay.get("present").equals("true")).count();
                long connected = list("paths").stream().filter(path -> path.get("connected").equals("true")).count();
                if (present == count && connected == (long) count * (count - 1)) {
                    return;
                }
            } catch (IOException e) {
                // The coordinator does not listen yet.
            }
            if (System.nanoTime() - deadline > 0) {
                throw new IOException("the relays have not connected for " + START_SECONDS + " s: see the logs in " + lab.scratch);
            }
            Thread.sleep(200);
        }
    }

    /** The rows of `weir ctl`. */
    List<Map<String, String>> list(String what) throws IOException {
        return parse(lab.run(lab.driverNode(), lab.get("weir"), "ctl", what, "--coordinator", host + ":" + API_PORT, "--format", "csv",
                "--certificate", lab.certificate("operator.pem"), "--key", lab.certificate("operator.key"),
                "--authority", lab.certificate("authority.pem")));
    }

    private static List<Map<String, String>> parse(String csv) {
        String[] lines = csv.split("\n");
        String[] header = lines[0].split(",");
        List<Map<String, String>> rows = new ArrayList<>();
        for (int at = 1; at < lines.length; at++) {
            // Only the last columns can contain commas.
            String[] fields = lines[at].split(",", -1);
            Map<String, String> row = new HashMap<>();
            for (int column = 0; column < Math.min(header.length, fields.length); column++) {
                row.put(header[column], fields[column]);
            }
            rows.add(row);
        }
        return rows;
    }

    /** Bytes that the relays have sent to other relays, and those of them on a detour, since they started. */
    double[] relayBytes() throws IOException {
        double[] sums = new double[2];
        for (Map<String, String> path : list("paths")) {
            sums[0] += Double.parseDouble(path.get("sent_bytes"));
            sums[1] += Double.parseDouble(path.get("detoured_bytes"));
        }
        return sums;
    }

    @Override
    public void close() throws InterruptedException {
        for (int region = 0; region < relays.length; region++) {
            stopRelays(region);
        }
        stopCoordinator();
    }
}
