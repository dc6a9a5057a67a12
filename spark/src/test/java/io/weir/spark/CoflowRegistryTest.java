package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.codahale.metrics.Counter;
import com.codahale.metrics.MetricRegistry;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.slf4j.Logger;

class CoflowRegistryTest {
    private final List<String> requests = new CopyOnWriteArrayList<>();
    /** By coflow: the detail of the answer 422. */
    private final Map<String, String> refusals = new ConcurrentHashMap<>();
    private final Counter problemCount = new Counter();
    /** The problems that the registry has logged. */
    private final List<String> warnings = new CopyOnWriteArrayList<>();
    /** By coflow: the body of its last registration. */
    private final Map<String, String> registrations = new ConcurrentHashMap<>();
    private final MetricRegistry metrics = new MetricRegistry();
    /** The queries of deregistrations. */
    private final List<String> failuresOfCoflows = new CopyOnWriteArrayList<>();
    /** The answer to deregistrations with a query. */
    private volatile int statusOfFailures = 204;
    private volatile boolean isCompleted;
    private volatile String relays = "[{\"name\":\"east-1\",\"region\":\"east\",\"present\":true},"
            + "{\"name\":\"west-1\",\"region\":\"west\",\"present\":true}]";
    /** The method of requests for coflows that get the answer 503. */
    private volatile String failingMethod = "";
    /** The number of further requests with this answer. */
    private final AtomicInteger failures = new AtomicInteger();
    /** Whether the coflow completes before the coordinator gives this answer. */
    private volatile boolean completesBeforeFailure;
    private volatile int relaysStatus = 200;
    private HttpServer coordinator;
    private CoflowRegistry registry;

    @BeforeEach
    void start() throws Exception {
        coordinator = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        coordinator.createContext("/v1/coflows/", exchange -> {
            String coflow = exchange.getRequestURI().getPath().substring("/v1/coflows/".length());
            requests.add(exchange.getRequestMethod() + " " + coflow);
            String refusal = refusals.get(coflow);
            String query = exchange.getRequestURI().getQuery();
            if (query != null) {
                failuresOfCoflows.add(query);
                if (statusOfFailures != 204) {
                    answer(exchange, statusOfFailures, "{\"detail\":\"unknown parameter\"}");
                    return;
                }
            }
            if (exchange.getRequestMethod().equals("PUT")) {
                registrations.put(coflow, new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8));
            }
            if (exchange.getRequestMethod().equals(failingMethod) && failures.getAndDecrement() > 0) {
                isCompleted |= completesBeforeFailure;
                answer(exchange, 503, "{\"status\":503,\"detail\":\"not now\"}");
            } else if (refusal == null) {
                answer(exchange, 200, "{}");
            } else {
                answer(exchange, 422, "{\"status\":422,\"detail\":\"" + refusal + "\"}");
            }
        });
        coordinator.createContext("/v1/coflows", exchange -> {
            String after = exchange.getRequestURI().getQuery().replaceAll(".*after=", "");
            assertEquals(CoordinatorClient.idBefore("shuffle0"), after);
            answer(exchange, 200, "{\"coflows\":[{\"id\":\"shuffle0\",\"flows\":2,\"done\":" + (isCompleted ? 2 : 1) + "}],\"next\":null}");
        });
        coordinator.createContext("/v1/relays", exchange -> answer(exchange, relaysStatus, relays));
        coordinator.createContext("/v1/services", exchange -> answer(exchange, 200, "[{\"name\":\"default\"}]"));
        coordinator.start();
        registry = newRegistry(null, problemCount);
        awaitRegions(registry);
        registry.addExecutor("1", "west");
        registry.addExecutor("2", "east");
    }

    private void awaitRegions(CoflowRegistry of) throws InterruptedException {
        await(() -> {
            boolean isRefused = of.addExecutor("3", "nowhere") != null;
            of.removeExecutor("3");
            return isRefused;
        });
    }

    private CoflowRegistry newRegistry(String service, Counter counter) {
        CoordinatorClient client = new CoordinatorClient("127.0.0.1:" + coordinator.getAddress().getPort(), service, null);
        Class<?>[] types = {Logger.class};
        Logger log = (Logger) Proxy.newProxyInstance(getClass().getClassLoader(), types, (proxy, method, arguments) -> {
            warnings.add((String) arguments[0]);
            return null;
        });
        return new CoflowRegistry(client, shuffle -> "shuffle" + shuffle, new Problems(log, counter), new DriverCounters(metrics));
    }

    private static void answer(HttpExchange exchange, int status, String text) throws IOException {
        byte[] body = text.getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(status, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
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
        await(() -> requests.size() >= count);
    }

    private void await(BooleanSupplier condition) throws InterruptedException {
        for (int n = 0; n < 200 && !condition.getAsBoolean(); n++) {
            Thread.sleep(50);
        }
        assertTrue(condition.getAsBoolean(), requests.toString());
    }

    @Test
    void coflowThatDoesNotCompleteIsDeregisteredAfterTwoSeconds() throws InterruptedException {
        read();
        Thread.sleep(1000);
        assertEquals(List.of("PUT shuffle0"), requests);
        awaitRequests(2);
        assertEquals(List.of("PUT shuffle0", "DELETE shuffle0"), requests);
        String expected = "failed=not all bytes arrived over relays within 2 s after the last stage that reads the shuffle";
        assertEquals(List.of(expected), decoded());
        await(() -> count("coflows.failed") == 1);
        assertEquals(0, count("coflows.completed"));
    }

    @Test
    void coflowThatCompletesBeforeItsDeregistrationIsNotDeregistered() throws InterruptedException {
        registry.addMapOutput(0, 0, "west", new long[] {100});
        awaitRequests(1);
        registry.addPaths(0, Map.of("sent.relay.flows", 1L, "fallback.blocks.peer-unknown", 1L));
        isCompleted = true;
        registry.removeShuffle(0);
        await(() -> count("coflows.completed") == 1);
        Thread.sleep(500);
        assertEquals(List.of("PUT shuffle0"), requests);
        assertEquals(0, count("coflows.failed"));
    }

    @Test
    void coflowThatCompletesBeforeARepeatedDeregistrationIsDeregisteredWhenItIsReadAgain() throws InterruptedException {
        read();
        completesBeforeFailure = true;
        fail("DELETE", 1);
        await(() -> count("coflows.completed") == 1);
        Thread.sleep(500);
        assertEquals(List.of("PUT shuffle0", "DELETE shuffle0"), requests);
        assertEquals(0, count("coflows.failed"));
        registry.addReader(0, 8, 0, "east", 0, 1, 0, 1);
        awaitRequests(4);
        assertEquals(List.of("PUT shuffle0", "DELETE shuffle0", "DELETE shuffle0", "PUT shuffle0"), requests);
        assertEquals(1, failuresOfCoflows.size());
    }

    @Test
    void countsThatArriveAfterACompletionAreNotThoseOfTheNextRead() throws InterruptedException {
        isCompleted = true;
        read();
        await(() -> count("coflows.completed") == 1);
        registry.addPaths(0, Map.of("sent.direct.flows.lost", 3L));
        isCompleted = false;
        registry.addReader(0, 8, 0, "east", 0, 1, 0, 1);
        registry.addPaths(0, Map.of("sent.relay.flows", 2L, "sent.direct.flows.busy", 1L));
        awaitRequests(3);
        registry.addPaths(0, Map.of("sent.direct.flows.busy", 1L));
        registry.endStage(8);
        registry.addPaths(0, Map.of("sent.direct.flows.busy", 1L));
        await(() -> count("coflows.failed") == 1);
        assertEquals(List.of("failed=over relays: 2 flows; direct: 3 flows (busy 3)"), decoded());
    }

    private long count(String metric) {
        return metrics.counter(metric).getCount();
    }

    private List<String> decoded() {
        return failuresOfCoflows.stream().map(query -> query.replace('+', ' ')).collect(Collectors.toList());
    }

    @Test
    void deregistrationStatesWhyFlowsBypassedRelaysAndHowManyDid() throws InterruptedException {
        registry.addMapOutput(0, 0, "west", new long[] {100});
        registry.addMapOutput(1, 0, "west", new long[] {100});
        awaitRequests(2);
        registry.addPaths(0, Map.of("sent.relay.flows", 40L, "sent.direct.flows.busy", 2L));
        registry.addPaths(0, Map.of("sent.direct.flows.lost", 3L, "sent.direct.flows.busy", 2L));
        registry.addPaths(0, Map.of("fallback.blocks.flow-failed", 5L));
        registry.addPaths(1, Map.of("sent.relay.flows", 1L));
        registry.addPaths(2, Map.of("sent.direct.flows.lost", 1L));
        registry.removeShuffle(0);
        registry.removeShuffle(1);
        registry.removeShuffle(2);
        awaitRequests(4);
        Thread.sleep(500);
        assertEquals(4, requests.size(), requests.toString());
        String direct = "failed=over relays: 40 flows; direct: 7 flows (busy 4, lost 3); Spark's own fetch: 5 blocks (flow-failed 5)";
        assertEquals(List.of(direct), decoded());
        assertEquals(1, count("coflows.failed"));
    }

    @Test
    void earlierCoordinatorGetsADeregistrationWithoutTheReason() throws InterruptedException {
        for (int status : new int[] {400, 404, 422}) {
            statusOfFailures = status;
            int before = requests.size();
            registry.addMapOutput(0, 0, "west", new long[] {100});
            awaitRequests(before + 1);
            registry.addPaths(0, Map.of("sent.direct.flows.lost", 1L));
            registry.removeShuffle(0);
            int expected = status == 404 ? 2 : 3;
            awaitRequests(before + expected);
            Thread.sleep(500);
            assertEquals(before + expected, requests.size(), requests.toString());
        }
        assertEquals(0, problemCount.getCount());
    }

    @Test
    void reasonHasPrintableCharactersOnlyAndALimit() {
        assertEquals("a?b", CoordinatorClient.toReason("a\nb"));
        assertEquals(200, CoordinatorClient.toReason(new String(new char[500]).replace('\0', 'a')).length());
    }

    @Test
    void completedCoflowStaysAtTheCoordinatorUntilItIsReadAgain() throws InterruptedException {
        isCompleted = true;
        read();
        Thread.sleep(2500);
        assertEquals(List.of("PUT shuffle0"), requests);
        assertEquals(1, count("coflows.completed"));
        registry.addReader(0, 8, 0, "east", 0, 1, 0, 1);
        awaitRequests(3);
        assertEquals(List.of("PUT shuffle0", "DELETE shuffle0", "PUT shuffle0"), requests);
        registry.removeShuffle(0);
        awaitRequests(4);
        assertEquals("DELETE shuffle0", requests.get(3));
        assertEquals(List.of(), failuresOfCoflows);
    }

    @Test
    void bytesWithoutAKnownReaderDoNotKeepACoflowFromItsCompletion() throws InterruptedException {
        registry.addMapOutput(0, 0, "west", new long[] {100, 100});
        registry.addReader(0, 7, 0, "east", 0, 1, 0, 1);
        awaitRequests(1);
        // The reader of partition 1 has no Weir.
        isCompleted = true;
        registry.endStage(7);
        awaitRequests(2);
        Thread.sleep(2500);
        assertEquals(List.of("PUT shuffle0", "PUT shuffle0/flows"), requests);
    }

    @Test
    void coflowIsDeregisteredIfSparkItselfReadsTheShuffle() throws InterruptedException {
        registry.addMapOutput(0, 0, "west", new long[] {100});
        awaitRequests(1);
        registry.bypass(0);
        awaitRequests(2);
        assertEquals(List.of("PUT shuffle0", "DELETE shuffle0"), requests);
        assertEquals(List.of("failed=Spark itself reads the shuffle: its merged blocks, or all blocks for a later attempt of a stage"), decoded());
        // The report of a map task is late.
        registry.addMapOutput(0, 1, "west", new long[] {100});
        registry.bypass(0);
        registry.endStage(7);
        Thread.sleep(1000);
        assertEquals(2, requests.size(), requests.toString());
        // Another stage reads with flows.
        registry.addReader(0, 8, 0, "east", 0, 2, 0, 1);
        awaitRequests(3);
        assertEquals("PUT shuffle0", requests.get(2));
    }

    @Test
    void coflowEndsWithTheReasonWhenALaterAttemptOfAStageReadsTheShuffle() throws InterruptedException {
        registry.addMapOutput(0, 0, "west", new long[] {100});
        registry.addReader(0, 7, 0, "east", 0, 1, 0, 1);
        awaitRequests(1);
        registry.endStage(7);
        await(() -> count("coflows.failed") == 1);
        // A map task runs again, then the stage.
        registry.addMapOutput(0, 0, "west", new long[] {100});
        registry.addPaths(0, Map.of("fallback.blocks.stage-attempt", 3L));
        awaitRequests(3);
        registry.bypass(0);
        await(() -> decoded().size() == 2);
        assertEquals("failed=over relays: 0 flows; Spark's own fetch: 3 blocks (stage-attempt 3)", decoded().get(1));
        registry.bypass(0);
        registry.addPaths(0, Map.of("fallback.blocks.stage-attempt", 3L));
        registry.endStage(7);
        Thread.sleep(500);
        assertEquals(List.of("PUT shuffle0", "DELETE shuffle0", "PUT shuffle0", "DELETE shuffle0"), requests);
        // The next stage reads with flows.
        registry.addReader(0, 8, 0, "east", 0, 1, 0, 1);
        awaitRequests(5);
        registry.addPaths(0, Map.of("sent.direct.flows.lost", 1L));
        registry.endStage(8);
        await(() -> decoded().size() == 3);
        assertEquals("failed=over relays: 0 flows; direct: 1 flows (lost 1)", decoded().get(2));
    }

    private void fail(String method, int count) {
        failingMethod = method;
        failures.set(count);
    }

    @Test
    void failedDeregistrationIsRepeatedUntilTheCoordinatorAnswers() throws InterruptedException {
        registry.addMapOutput(0, 0, "west", new long[] {100});
        awaitRequests(1);
        fail("DELETE", 2);
        registry.removeShuffle(0);
        awaitRequests(4);
        Thread.sleep(1000);
        assertEquals(List.of("PUT shuffle0", "DELETE shuffle0", "DELETE shuffle0", "DELETE shuffle0"), requests);
        assertEquals(List.of("coflows stay registered, and new coflows wait: the coordinator answered 503: not now"), warnings);
    }

    @Test
    void failedRegistrationIsReportedAsSuch() throws InterruptedException {
        fail("PUT", 2);
        registry.addMapOutput(0, 0, "west", new long[] {100});
        awaitRequests(3);
        assertEquals(List.of("coflows are not registered, so flows have no order: the coordinator answered 503: not now"), warnings);
    }

    @Test
    void refusedDeregistrationIsNotRepeated() throws InterruptedException {
        registry.addMapOutput(0, 0, "west", new long[] {100});
        awaitRequests(1);
        refusals.put("shuffle0", "the coflow belongs to another framework");
        long before = problemCount.getCount();
        registry.removeShuffle(0);
        await(() -> problemCount.getCount() == before + 1);
        Thread.sleep(1000);
        assertEquals(List.of("PUT shuffle0", "DELETE shuffle0"), requests);
    }

    @Test
    void coflowWhoseRegistrationGotNoAnswerIsDeregistered() throws InterruptedException {
        fail("PUT", 100);
        registry.addMapOutput(0, 0, "west", new long[] {100});
        awaitRequests(1);
        registry.removeShuffle(0);
        await(() -> requests.contains("DELETE shuffle0"));
    }

    @Test
    void coflowIsRegisteredAgainAfterItsDeregistration() throws InterruptedException {
        isCompleted = true;
        read();
        Thread.sleep(1000);
        fail("DELETE", 2);
        registry.addReader(0, 8, 0, "east", 0, 1, 0, 1);
        awaitRequests(5);
        Thread.sleep(1000);
        assertEquals(List.of("PUT shuffle0", "DELETE shuffle0", "DELETE shuffle0", "DELETE shuffle0", "PUT shuffle0"), requests);
    }

    @Test
    void endOfTheApplicationRepeatsDeregistrationsForFiveSeconds() throws InterruptedException {
        registry.addMapOutput(0, 0, "west", new long[] {100});
        registry.addMapOutput(1, 0, "west", new long[] {100});
        awaitRequests(2);
        fail("DELETE", 5);
        registry.close();
        assertTrue(failures.get() < 0, requests.toString());
        assertEquals("DELETE", requests.get(requests.size() - 1).split(" ")[0]);
        CoflowRegistry second = newRegistry(null, problemCount);
        awaitRegions(second);
        second.addExecutor("1", "west");
        second.addExecutor("2", "east");
        second.addMapOutput(2, 0, "west", new long[] {100});
        await(() -> requests.contains("PUT shuffle2"));
        fail("DELETE", Integer.MAX_VALUE);
        long started = System.nanoTime();
        second.close();
        long seconds = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - started);
        assertTrue(seconds >= 4 && seconds < 8, seconds + " s");
        assertTrue(requests.stream().filter("DELETE shuffle2"::equals).count() > 5, requests.toString());
    }

    @Test
    void checkIsRepeatedAfterATemporaryErrorAndExecutorsOfUnknownRegionsAreRefused() throws InterruptedException {
        for (int status : new int[] {429, 500, 503}) {
            relaysStatus = status;
            Counter problems = new Counter();
            CoflowRegistry other = newRegistry(null, problems);
            await(() -> problems.getCount() == 1);
            assertNull(other.addExecutor("4", "wset"));
            assertNull(other.addExecutor("5", "west"));
            assertNull(other.refuseIfUnknown("4"));
            assertTrue(other.isProvisional());
            relaysStatus = 200;
            await(() -> !other.isProvisional());
            assertEquals("region `wset` is not in the coordinator's configuration; known regions: east, west", other.refuseIfUnknown("4"));
            assertNull(other.refuseIfUnknown("5"));
            assertNull(other.refuseIfUnknown("unknown"));
            other.close();
        }
    }

    @Test
    void coresOfRefusedExecutorsDoNotCount() throws InterruptedException {
        relaysStatus = 503;
        CoflowRegistry other = newRegistry(null, problemCount);
        other.addExecutor("1", "west");
        other.addExecutor("2", "east");
        other.addExecutor("4", "wset");
        other.setCores("4", 2);
        relaysStatus = 200;
        await(() -> !other.isProvisional());
        assertEastGets(50, other, 0);
        String refusal = other.refuseIfUnknown("4");
        assertTrue(refusal.startsWith("region `wset` is not in the coordinator's configuration"), refusal);
        // The coordinator was restarted with another configuration: the executor stays refused.
        relays = relays.replace("[", "[{\"name\":\"wset-1\",\"region\":\"wset\",\"present\":true},");
        await(() -> other.addExecutor("5", "wset") == null);
        other.removeExecutor("5");
        assertEquals(refusal, other.refuseIfUnknown("4"));
        assertEastGets(50, other, 1);
        other.removeExecutor("4");
        assertNull(other.refuseIfUnknown("4"));
        other.close();
    }

    /** Checks the bytes from west to east of a shuffle whose readers have not started, out of 100. */
    private void assertEastGets(long bytes, CoflowRegistry registry, int shuffle) throws InterruptedException {
        registry.addMapOutput(shuffle, 0, "west", new long[] {100});
        await(() -> registrations.containsKey("shuffle" + shuffle));
        String registration = registrations.get("shuffle" + shuffle);
        assertTrue(registration.contains("\"from\":\"west\",\"to\":\"east\",\"bytes\":" + bytes + ","), registration);
    }

    @Test
    void checkEndsAfterARefusal() throws InterruptedException {
        relaysStatus = 403;
        CoflowRegistry other = newRegistry(null, new Counter());
        await(() -> !other.isProvisional());
        assertNull(other.addExecutor("4", "wset"));
        other.close();
    }

    @Test
    void executorOfAnUnknownRegionIsRefusedAndCoflowsOfOthersContinue() throws InterruptedException {
        long before = problemCount.getCount();
        assertEquals("region `wset` is not in the coordinator's configuration; known regions: east, west", registry.addExecutor("4", "wset"));
        registry.addMapOutput(0, 0, "west", new long[] {100});
        registry.addMapOutput(0, 1, "wset", new long[] {100});
        registry.addReader(0, 7, 0, "east", 0, 2, 0, 1);
        awaitRequests(1);
        assertEquals(List.of("PUT shuffle0"), requests);
        assertEquals(before, problemCount.getCount());
        // The coordinator was restarted with another configuration.
        relays = relays.replace("east-1", "wset-1").replace("east", "wset");
        registry.addExecutor("4", "wset");
        await(() -> registry.addExecutor("4", "wset") == null);
    }

    @Test
    void refusedCoflowIsReportedOnceAndDoesNotDelayOthers() throws InterruptedException {
        refusals.put("shuffle0", "the quota of service `default` is used up");
        refusals.put("shuffle1", "the quota of service `default` is used up");
        for (int shuffle = 0; shuffle < 3; shuffle++) {
            registry.addMapOutput(shuffle, 0, "west", new long[] {100});
        }
        awaitRequests(3);
        assertEquals(3, requests.stream().distinct().count(), requests.toString());
        Thread.sleep(1000);
        assertEquals(3, requests.size(), requests.toString());
    }

    @Test
    void configurationIsCheckedAtTheStart() throws InterruptedException {
        relays = relays.replace("true", "false");
        Counter problems = new Counter();
        CoflowRegistry other = newRegistry("sparkle", problems);
        // Two regions whose relay is absent, and a service.
        await(() -> problems.getCount() == 3);
        other.close();
        relays = "[]";
        CoflowRegistry withoutRelays = newRegistry(null, problems);
        await(() -> problems.getCount() == 4);
        assertNull(withoutRelays.addExecutor("1", "anywhere"));
        withoutRelays.close();
    }

    @Test
    void idBeforeIsTheLastOneThatPrecedes() {
        String before = CoordinatorClient.idBefore("spark-app-1-shuffle3");
        assertEquals(128, before.length());
        assertTrue(before.startsWith("spark-app-1-shuffle2~") && before.endsWith("~"));
        assertTrue(before.compareTo("spark-app-1-shuffle3") < 0);
        assertTrue("spark-app-1-shuffle29".compareTo(before) < 0);
        assertEquals("a", CoordinatorClient.idBefore("a!"));
    }
}
