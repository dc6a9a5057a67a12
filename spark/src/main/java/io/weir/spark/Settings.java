package io.weir.spark;

import io.weir.flow.FlowTls;
import io.weir.flow.HostPort;
import java.io.IOException;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkConf;

/** Keys of the configuration. docs/spark.md describes them. */
final class Settings {
    /** Before the number of the shuffle in the name of a coflow. */
    private static final String SHUFFLE = "-shuffle";

    private Settings() {}

    /** The region of this process, or null. The environment differs between workers, so it wins. */
    static String region(SparkConf conf) {
        String region = fromEnvironment("WEIR_REGION", conf, "spark.weir.region");
        if (region != null && !region.matches("[!-~]{1,128}")) {
            String expected = "expected the name of a region in the coordinator's configuration";
            throw new IllegalArgumentException("spark.weir.region: `" + region + "` is invalid; " + expected);
        }
        return region;
    }

    /** The relays of this region; none if flows go directly. */
    static List<HostPort> relays(SparkConf conf) {
        String relays = fromEnvironment("WEIR_RELAY", conf, "spark.weir.relay");
        List<HostPort> list = new ArrayList<>();
        for (String relay : relays == null ? new String[0] : relays.split(",", -1)) {
            try {
                list.add(HostPort.parse(relay));
            } catch (IllegalArgumentException e) {
                String expected = "expected HOST:PORT, several separated by commas without spaces";
                throw new IllegalArgumentException("spark.weir.relay: `" + relay + "` is invalid; " + expected, e);
            }
        }
        return list;
    }

    /**
     * TLS with the files of the configuration; null without all of them. The variables are those of Weir's other client libraries.
     *
     * @throws IOException if a file cannot be used
     */
    static FlowTls tls(SparkConf conf) throws IOException {
        String certificate = fromEnvironment("WEIR_CERTIFICATE", conf, "spark.weir.certificate");
        String key = fromEnvironment("WEIR_KEY", conf, "spark.weir.key");
        String authority = fromEnvironment("WEIR_AUTHORITY", conf, "spark.weir.authority");
        String local = fromEnvironment("WEIR_TLS_LOCAL", conf, "spark.weir.tls.local");
        if (local != null && !local.matches("[01]")) {
            throw new IllegalArgumentException("spark.weir.tls.local: `" + local + "` is invalid; expected 1 or 0");
        }
        if (certificate == null && key == null && authority == null) {
            return null;
        }
        if (certificate == null || key == null || authority == null) {
            throw new IllegalArgumentException(
                    "spark.weir.certificate, spark.weir.key, spark.weir.authority: some are missing; expected all three, or none");
        }
        FlowTls tls = new FlowTls(Paths.get(certificate), Paths.get(key), Paths.get(authority), "1".equals(local));
        if (!tls.name().startsWith("weir://framework/")) {
            throw new IOException(certificate + ": has the name " + tls.name() + "; expected weir://framework/SERVICE");
        }
        return tls;
    }

    static int port(SparkConf conf) {
        return conf.getInt("spark.weir.port", 0);
    }

    static int connections(SparkConf conf) {
        return conf.getInt("spark.weir.connections", 256);
    }

    static long window(SparkConf conf) {
        return conf.getSizeAsBytes("spark.weir.window", "8m");
    }

    static long timeoutMillis(SparkConf conf) {
        return conf.getTimeAsMs("spark.weir.timeout", "60s");
    }

    /** The address of the coordinator's API, or null. */
    static String coordinator(SparkConf conf) {
        return nonEmpty(conf.get("spark.weir.coordinator", ""));
    }

    /** The service that owns the coflows, or null for the coordinator's default. */
    static String service(SparkConf conf) {
        return nonEmpty(conf.get("spark.weir.service", ""));
    }

    /** Why blocks of all or some shuffles bypass Weir; null if none do. */
    static String findBypass(SparkConf conf) {
        String manager = conf.get("spark.shuffle.manager", "sort");
        String expected = WeirShuffleManager.class.getName();
        if (!manager.equals(expected)) {
            return "spark.shuffle.manager is " + manager + ", so no block is sent in a flow; expected " + expected;
        }
        if (conf.getBoolean("spark.shuffle.push.enabled", false)) {
            return "spark.shuffle.push.enabled is true: pushed blocks, and all blocks of a shuffle whose merge Spark has finalized, bypass Weir";
        }
        return null;
    }

    /** Whether blocks would leave the host in plain text although the user wants transfers encrypted. */
    static boolean wouldExposeBlocks(SparkConf conf, FlowTls tls) {
        boolean isTransportEncrypted = conf.getBoolean("spark.network.crypto.enabled", false)
                || conf.getBoolean("spark.authenticate.enableSaslEncryption", false)
                || conf.getBoolean("spark.ssl.rpc.enabled", false);
        return tls == null && isTransportEncrypted && !conf.getBoolean("spark.io.encryption.enabled", false);
    }

    /** The name of a shuffle's coflow. */
    static String coflow(String application, int shuffle) {
        String name = application.replaceAll("[^!-~]", "_");
        return "spark-" + name.substring(0, Math.min(name.length(), 100)) + SHUFFLE + shuffle;
    }

    /** The shuffle of a coflow with such a name; -1 if the name is another one. */
    static int shuffle(String coflow) {
        try {
            return Integer.parseInt(coflow.substring(coflow.lastIndexOf(SHUFFLE) + SHUFFLE.length()));
        } catch (NumberFormatException | StringIndexOutOfBoundsException e) {
            return -1;
        }
    }

    private static String fromEnvironment(String variable, SparkConf conf, String key) {
        String value = nonEmpty(System.getenv(variable));
        return value != null ? value : nonEmpty(conf.get(key, ""));
    }

    private static String nonEmpty(String value) {
        return value == null || value.isEmpty() ? null : value;
    }
}
