package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.codahale.metrics.MetricRegistry;
import java.lang.reflect.Proxy;
import org.apache.spark.SparkConf;
import org.apache.spark.api.plugin.PluginContext;
import org.junit.jupiter.api.Test;

class WeirDriverTest {
    private final MetricRegistry metrics = new MetricRegistry();
    private final SparkConf conf = new SparkConf(false);

    /** Starts a driver. Returns the number of problems that it has reported. */
    private long start() {
        PluginContext context = (PluginContext) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {PluginContext.class},
                (proxy, method, arguments) -> method.getName().equals("conf") ? conf : metrics);
        // Without a SparkContext, only what does not need one starts.
        new WeirDriver().init(null, context);
        return metrics.counter("problems").getCount();
    }

    @Test
    void other_shuffle_manager_is_a_problem_of_the_driver() {
        conf.set("spark.shuffle.push.enabled", "true");
        assertEquals(1, start());
        assertTrue(Settings.findBypass(conf).startsWith("spark.shuffle.manager is sort, "), Settings.findBypass(conf));
    }

    @Test
    void push_based_shuffle_is_a_problem_of_the_driver() {
        conf.set("spark.shuffle.manager", "io.weir.spark.WeirShuffleManager");
        assertNull(Settings.findBypass(conf));
        assertEquals(0, start());
        conf.set("spark.shuffle.push.enabled", "true");
        assertEquals(1, start());
        assertTrue(Settings.findBypass(conf).startsWith("spark.shuffle.push.enabled is true: "), Settings.findBypass(conf));
    }
}
