package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.codahale.metrics.MetricRegistry;
import com.sun.net.httpserver.HttpServer;
import io.weir.flow.HostPort;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.SparkConf;
import org.apache.spark.api.plugin.PluginContext;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class WeirDriverTest {
    private final MetricRegistry metrics = new MetricRegistry();
    private final SparkConf conf = new SparkConf(false);

    private WeirDriver driver;

    /** Starts a driver. Returns the number of problems that it has reported. */
    private long start() {
        PluginContext context = (PluginContext) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {PluginContext.class},
                (proxy, method, arguments) -> method.getName().equals("conf") ? conf : metrics);
        // Without a SparkContext, only what does not need one starts.
        driver = new WeirDriver();
        driver.init(null, context);
        return metrics.counter("problems").getCount();
    }

    @Test
    void other_shuffle_manager_is_a_problem_of_the_driver() {
        conf.set("spark.shuffle.push.enabled", "true");
        assertEquals(1, start());
        assertTrue(Settings.findBypass(conf).startsWith("spark.shuffle.manager is sort, "), Settings.findBypass(conf));
    }

    @Test
    void executor_that_started_before_the_coordinator_answered_is_refused_at_its_next_query() throws Exception {
        AtomicInteger status = new AtomicInteger(503);
        HttpServer coordinator = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        coordinator.createContext("/v1/relays", exchange -> {
            byte[] body = "[{\"name\":\"west-1\",\"region\":\"west\",\"present\":true}]".getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(status.get(), body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        coordinator.start();
        try {
            conf.set("spark.weir.coordinator", "127.0.0.1:" + coordinator.getAddress().getPort());
            start();
            assertNull(driver.onExecutor("1", new Peers.Peer("wset", HostPort.parse("10.0.0.1:7000"))).refusal);
            assertNull(driver.onExecutor("2", new Peers.Peer("west", HostPort.parse("10.0.0.2:7000"))).refusal);
            Peers.Answer early = driver.onPeer("1", "2");
            assertEquals("west", early.peer.region);
            assertNull(early.refusal);
            assertTrue(early.isProvisional);
            status.set(200);
            while (driver.onPeer("2", "2").isProvisional) {
                Thread.sleep(20);
            }
            String expected = "region `wset` is not in the coordinator's configuration; known regions: west";
            assertEquals(expected, driver.onPeer("1", "2").refusal);
            Peers.Answer other = driver.onPeer("2", "1");
            assertNull(other.peer);
            assertNull(other.refusal);
            assertEquals("west", driver.onPeer("2", "2").peer.region);
            assertEquals(1, metrics.counter("executors.refused").getCount());
        } finally {
            coordinator.stop(0);
        }
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
