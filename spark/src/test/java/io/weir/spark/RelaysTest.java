package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.weir.flow.HostPort;
import io.weir.flow.RelaySelector;
import io.weir.flow.Reset;
import io.weir.flow.TestRelay;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class RelaysTest {
    private static final HostPort RELAY = HostPort.parse("10.0.0.1:7711");
    private static final HostPort SECOND = HostPort.parse("10.0.0.2:7711");

    private final List<String> problems = new ArrayList<>();
    private long now = Long.MAX_VALUE - TimeUnit.SECONDS.toNanos(30);

    private Relays relays(HostPort... list) {
        return new Relays(List.of(list), (relay, problem) -> problems.add(relay + " " + problem), () -> now);
    }

    /** The result of a flow's connection: the relay; null: directly. */
    private static HostPort select(Relays relays, String coflow) {
        return relays.of(coflow, 0).select();
    }

    private void sleep(long seconds) {
        now += TimeUnit.SECONDS.toNanos(seconds);
    }

    @Test
    void relay_that_cannot_be_reached_is_paused_at_once_for_all_coflows() {
        Relays relays = relays(RELAY, SECOND);
        RelaySelector flow = relays.of("coflow", 0);
        HostPort first = flow.select();
        // Another flow begins to connect at the same time.
        RelaySelector concurrent = relays.of("coflow", 0);
        assertEquals(first, concurrent.select());
        flow.onConnectFailure(first, "no answer");
        assertEquals(List.of(first + " no answer"), problems);
        HostPort other = first.equals(RELAY) ? SECOND : RELAY;
        assertEquals(other, flow.select());
        assertEquals(other, select(relays, "another"));
        concurrent.onConnectFailure(first, "no answer");
        assertEquals(other, concurrent.select());
        flow.onConnectFailure(other, "no answer");
        assertNull(flow.select());
        assertNull(select(relays, "another"));
        // A flow uses no relay twice, so it ends even if pauses are shorter than its connections.
        sleep(5);
        assertNull(flow.select());
        assertEquals(first, select(relays, "another"));
    }

    @Test
    void pause_doubles_up_to_a_minute_and_one_flow_tries_the_relay() {
        Relays relays = relays(RELAY);
        relays.of("coflow", 0).onConnectFailure(RELAY, "no answer");
        for (int seconds : new int[] {5, 10, 20, 40, 60, 60}) {
            sleep(seconds - 1);
            assertNull(select(relays, "coflow"), seconds + " s");
            sleep(1);
            RelaySelector trial = relays.of("coflow", 0);
            assertEquals(RELAY, trial.select(), seconds + " s");
            assertNull(select(relays, "another"), seconds + " s");
            trial.onConnectFailure(RELAY, "no answer");
        }
        sleep(60);
        RelaySelector trial = relays.of("coflow", 0);
        assertEquals(RELAY, trial.select());
        trial.onConnected(RELAY);
        assertEquals(RELAY, select(relays, "another"));
        // The next pause is a short one.
        trial.onConnectFailure(RELAY, "no answer");
        sleep(5);
        assertEquals(RELAY, select(relays, "another"));
        // This flow ends without a result.
        sleep(5);
        assertEquals(RELAY, select(relays, "another"));
    }

    @Test
    void reasons_of_a_receiver_pause_nothing_and_reasons_of_the_relay_pause_the_coflow() {
        for (Reset reason : new Reset[] {Reset.BUSY, Reset.UNREACHABLE, Reset.CORRUPT, Reset.LOST, Reset.UNKNOWN_COFLOW}) {
            Relays relays = relays(RELAY);
            relays.of("coflow", 0).onBypass(RELAY, reason);
            boolean isPaused = reason == Reset.LOST || reason == Reset.UNKNOWN_COFLOW;
            assertEquals(isPaused ? null : RELAY, select(relays, "coflow"), reason.toString());
            assertEquals(RELAY, select(relays, "another"), reason.toString());
            sleep(5);
            assertEquals(RELAY, select(relays, "coflow"), reason.toString());
        }
        assertEquals(5, problems.size());
    }

    @Test
    void probe_pauses_a_relay_that_cannot_be_reached_and_ends_the_pause_of_another() throws Exception {
        HostPort self = HostPort.parse("127.0.0.1:7000");
        HostPort closed = TestRelay.closedAddress();
        try (TestRelay running = new TestRelay()) {
            Relays relays = relays(closed, running.address());
            relays.of("coflow", 0).onConnectFailure(running.address(), "no answer");
            problems.clear();
            running.inject(TestRelay.Mode.UNKNOWN_COFLOW, 0, 1);
            relays.probe(self, null);
            assertEquals(1, problems.size(), problems.toString());
            assertTrue(problems.get(0).startsWith(closed + " ") && problems.get(0).contains("refused"), problems.toString());
            for (int flow = 0; flow < 10; flow++) {
                assertEquals(running.address(), relays.of("coflow", flow).select());
            }
        }
    }

    @Test
    void unexpected_exception_of_the_probe_is_a_problem_of_the_relay() throws Exception {
        try (TestRelay relay = new TestRelay()) {
            // A name in place of an address is an IllegalArgumentException, as other classes of a security provider are exceptions.
            relays(relay.address()).probe(HostPort.parse("spark.example:7000"), null);
        }
        assertEquals(1, problems.size());
        assertTrue(problems.get(0).contains("the probe failed: java.lang.IllegalArgumentException"), problems.toString());
    }
}
