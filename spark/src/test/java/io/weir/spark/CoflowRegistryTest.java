package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class CoflowRegistryTest {
    private final List<String> requests = new CopyOnWriteArrayList<>();
    private volatile boolean isCompleted;
    private HttpServer coordinator;
    private CoflowRegistry registry;

    @BeforeEach
    void start() throws IOException {
        coordinator = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        coordinator.createContext("/v1/coflows/", exchange -> {
            String method = exchange.getRequestMethod();
            if (!method.equals("GET")) {
                requests.add(method + " " + exchange.getRequestURI().getPath().substring("/v1/coflows/".length()));
            }
            byte[] answer = ("{\"completed\":" + isCompleted + "}").getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
        });
        coordinator.start();
        String api = "http://127.0.0.1:" + coordinator.getAddress().getPort();
        registry = new CoflowRegistry(new CoordinatorClient(api, null), shuffle -> "shuffle" + shuffle);
        registry.addExecutor("1", "west");
        registry.addExecutor("2", "east");
    }

    @AfterEach
    void stop() {
        registry.close();
        coordinator.stop(0);
    }

    private void read() throws InterruptedException {
        registry.addMapOutput(0, 0, "west", new long[] {100});
        registry.addReader(0, 7, 0, "east", 0, 1, 0, 1);
        awaitRequests(requests.size() + 1);
        registry.endStage(7);
    }

    private void awaitRequests(int count) throws InterruptedException {
        for (int n = 0; n < 100 && requests.size() < count; n++) {
            Thread.sleep(50);
        }
        assertTrue(requests.size() >= count, requests.toString());
    }

    @Test
    void coflowThatDoesNotCompleteIsDeregisteredAfterTwoSeconds() throws InterruptedException {
        read();
        Thread.sleep(1000);
        assertEquals(List.of("PUT shuffle0"), requests);
        awaitRequests(2);
        assertEquals(List.of("PUT shuffle0", "DELETE shuffle0"), requests);
    }

    @Test
    void completedCoflowStaysAtTheCoordinatorUntilItIsReadAgain() throws InterruptedException {
        isCompleted = true;
        read();
        Thread.sleep(2500);
        assertEquals(List.of("PUT shuffle0"), requests);
        registry.addReader(0, 8, 0, "east", 0, 1, 0, 1);
        awaitRequests(3);
        assertEquals(List.of("PUT shuffle0", "DELETE shuffle0", "PUT shuffle0"), requests);
        registry.removeShuffle(0);
        awaitRequests(4);
        assertEquals("DELETE shuffle0", requests.get(3));
    }
}
