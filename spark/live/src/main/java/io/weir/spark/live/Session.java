package io.weir.spark.live;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** A running {@link Application}. */
final class Session implements AutoCloseable {
    private final Process process;
    private final OutputStream in;
    private final BufferedReader out;
    private final String name;

    /** Starts an application on one of the two clusters, `plain` or `weir`. */
    Session(Lab lab, String name, String api) throws IOException {
        this.name = name;
        boolean isWeir = name.equals("weir");
        String jars = lab.get("live.jar") + (isWeir ? ":" + lab.get("weir.jar") : "");
        List<String> command = lab.inside(lab.driverNode(), "env", "SPARK_LOCAL_IP=" + lab.get("driver.host"));
        if (isWeir) {
            // The driver's connections to the coordinator only: relays accept plain text of programs.
            command.addAll(Arrays.asList("WEIR_CERTIFICATE=" + lab.certificate("framework.pem"), "WEIR_KEY=" + lab.certificate("framework.key"),
                    "WEIR_AUTHORITY=" + lab.certificate("authority.pem")));
        }
        command.add("java");
        command.addAll(Arrays.asList(lab.get("java.options").split(" ")));
        command.addAll(Arrays.asList("-Xmx600m", "-cp", jars + ":" + lab.get("spark.home") + "/jars/*", "io.weir.spark.live.Application",
                lab.get("master." + name), lab.get("driver.host"), jars, lab.get("tasks")));
        if (isWeir) {
            command.addAll(Arrays.asList("spark.shuffle.manager=io.weir.spark.WeirShuffleManager", "spark.plugins=io.weir.spark.WeirPlugin",
                    "spark.weir.coordinator=" + api));
        }
        process = new ProcessBuilder(command).redirectError(lab.log("driver-" + name)).start();
        in = process.getOutputStream();
        out = new BufferedReader(new InputStreamReader(process.getInputStream()));
    }

    /** Waits until all executors have registered. */
    void awaitReady() throws IOException {
        read("ready");
    }

    private String read(String expected) throws IOException {
        for (String line; (line = out.readLine()) != null; ) {
            if (line.startsWith(expected)) {
                return line;
            }
            if (line.startsWith("error ")) {
                throw new IOException("application " + name + ": " + line);
            }
        }
        throw new IOException("application " + name + " has exited: see driver-" + name + ".log");
    }

    /** Runs a job, and returns what it reports. */
    Map<String, String> run(String job) throws IOException {
        in.write((job + "\n").getBytes(StandardCharsets.UTF_8));
        in.flush();
        Map<String, String> fields = new HashMap<>();
        for (String word : read("result").split(" ")) {
            if (word.contains("=")) {
                fields.put(word.substring(0, word.indexOf('=')), word.substring(word.indexOf('=') + 1));
            }
        }
        return fields;
    }

    @Override
    public void close() {
        process.destroyForcibly();
    }
}
