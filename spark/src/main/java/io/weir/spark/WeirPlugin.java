package io.weir.spark;

import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.SparkPlugin;

/** The value of {@code spark.plugins}. */
public final class WeirPlugin implements SparkPlugin {
    @Override
    public DriverPlugin driverPlugin() {
        return new WeirDriver();
    }

    @Override
    public ExecutorPlugin executorPlugin() {
        return new WeirExecutor();
    }
}
