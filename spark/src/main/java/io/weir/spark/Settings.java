package io.weir.spark;

import io.weir.flow.HostPort;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkConf;

/** Keys of the configuration. docs/spark.md describes them. */
final class Settings {
    private Settings() {}

    /** The region of this process, or null. The environment differs between workers, so it wins. */
    static String region(SparkConf conf) {
        String region = fromEnvironment("WEIR_REGION", conf, "spark.weir.region");
        if (region != null && !region.matches("[A-Za-z0-9._-]{1,64}")) {
            throw new IllegalArgumentException("spark.weir.region: " + region + "; expected up to 64 letters, digits, `.`, `_`, `-`");
        }
        return region;
    }

    /** The relays of this region; none if flows go directly. */
    static List<HostPort> relays(SparkConf conf) {
        String relays = fromEnvironment("WEIR_RELAY", conf, "spark.weir.relay");
        List<HostPort> list = new ArrayList<>();
        for (String relay : relays == null ? new String[0] : relays.split(",", -1)) {
            list.add(HostPort.parse(relay));
        }
        return list;
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

    /** Whether blocks would leave in plain text although the user wants transfers encrypted. */
    static boolean wouldExposeBlocks(SparkConf conf) {
        boolean isTransportEncrypted = conf.getBoolean("spark.network.crypto.enabled", false)
                || conf.getBoolean("spark.authenticate.enableSaslEncryption", false)
                || conf.getBoolean("spark.ssl.rpc.enabled", false);
        return isTransportEncrypted && !conf.getBoolean("spark.io.encryption.enabled", false);
    }

    /** The name of a shuffle's coflow. */
    static String coflow(String application, int shuffle) {
        String name = application.replaceAll("[^!-~]", "_");
        return "spark-" + name.substring(0, Math.min(name.length(), 100)) + "-shuffle" + shuffle;
    }

    private static String fromEnvironment(String variable, SparkConf conf, String key) {
        String value = nonEmpty(System.getenv(variable));
        return value != null ? value : nonEmpty(conf.get(key, ""));
    }

    private static String nonEmpty(String value) {
        return value == null || value.isEmpty() ? null : value;
    }
}
