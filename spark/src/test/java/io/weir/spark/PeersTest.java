package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.weir.flow.HostPort;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class PeersTest {
    private final List<String> queries = new ArrayList<>();
    private final Map<String, Peers.Peer> driver = new HashMap<>(Map.of("1", new Peers.Peer("west", HostPort.parse("10.0.0.1:7000"))));
    private final List<String> refusals = new ArrayList<>();
    private String refusal;
    private boolean isProvisional;
    private final Peers peers = new Peers(this::query, refusals::add, TimeUnit.MILLISECONDS.toNanos(200));

    private Peers.Answer query(String executor) throws IOException {
        queries.add(executor);
        if (executor.equals("busy")) {
            throw new IOException("no answer");
        }
        return new Peers.Answer(driver.get(executor), refusal, isProvisional);
    }

    @Test
    void driver_is_queried_once_for_each_executor() {
        for (int n = 0; n < 3; n++) {
            assertEquals("west", peers.find("1").region);
            assertNull(peers.find("2"));
            assertNull(peers.find("busy"));
        }
        assertEquals(List.of("1", "2", "busy"), queries);
    }

    @Test
    void driver_is_queried_again_after_a_failed_connection() throws IOException {
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            Peers.Peer listening = new Peers.Peer("west", HostPort.parse("127.0.0.1:" + server.getLocalPort()));
            driver.put("3", listening);
            peers.connect("3", peers.find("3"), null, 1000).close();
        }
        Peers.Peer exited = peers.find("3");
        assertEquals(List.of("3"), queries);
        driver.remove("3");
        assertThrows(IOException.class, () -> peers.connect("3", exited, null, 1000));
        assertNull(peers.find("3"));
        assertEquals(List.of("3", "3"), queries);
    }

    @Test
    void executor_that_the_driver_refuses_later_uses_no_flows() throws InterruptedException {
        isProvisional = true;
        driver.put("2", driver.get("1"));
        assertEquals("west", peers.find("1").region);
        assertEquals("west", peers.find("2").region);
        assertEquals("west", peers.find("1").region);
        assertEquals(List.of("1", "2"), queries);
        // One query at a time asks again.
        Thread.sleep(250);
        assertEquals("west", peers.find("1").region);
        assertEquals("west", peers.find("2").region);
        assertEquals(List.of("1", "2", "1"), queries);
        refusal = "no such region";
        Thread.sleep(250);
        assertNull(peers.find("2"));
        assertNull(peers.find("1"));
        assertEquals(List.of("1", "2", "1", "2"), queries);
        assertEquals(List.of("no such region"), refusals);
    }

    @Test
    void known_executor_is_not_queried_again_after_the_coordinator_has_answered() throws InterruptedException {
        isProvisional = true;
        peers.find("1");
        isProvisional = false;
        Thread.sleep(250);
        peers.find("1");
        Thread.sleep(250);
        peers.find("1");
        assertEquals(List.of("1", "1"), queries);
    }

    @Test
    void driver_is_queried_again_after_an_error_of_an_executor() {
        peers.find("1");
        driver.remove("1");
        assertEquals("west", peers.find("1").region);
        peers.pause("1", TimeUnit.SECONDS.toNanos(60));
        assertNull(peers.find("1"));
        assertEquals(List.of("1", "1"), queries);
    }

    @Test
    void paused_executor_is_known_and_paused_again_without_news() throws InterruptedException {
        assertFalse(peers.isPaused("1"));
        assertTrue(peers.pause("1", TimeUnit.MILLISECONDS.toNanos(200)));
        assertTrue(peers.isPaused("1"));
        assertFalse(peers.pause("1", TimeUnit.MILLISECONDS.toNanos(200)));
        assertEquals("west", peers.find("1").region);
        Thread.sleep(250);
        assertFalse(peers.isPaused("1"));
        assertTrue(peers.pause("1", TimeUnit.SECONDS.toNanos(60)));
    }
}
