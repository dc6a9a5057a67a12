package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.codahale.metrics.Counter;
import io.weir.flow.HostPort;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.slf4j.Logger;

class MessagesTest {
    private final List<String> received = new ArrayList<>();
    private final Messages.Handler handler = new Messages.Handler() {
        @Override
        public Messages.Admission onExecutor(String executor, Peers.Peer peer) {
            return peer.region.equals("west") ? new Messages.Admission(7, null) : new Messages.Admission(-1, "no such region");
        }

        @Override
        public Peers.Answer onPeer(String asker, String executor) {
            Peers.Peer peer = executor.equals("1") ? new Peers.Peer("west", HostPort.parse("10.0.0.1:7000")) : null;
            return new Peers.Answer(peer, asker.equals("3") ? "no such region" : null, executor.equals("1"));
        }

        @Override
        public void onMapOutput(int shuffle, int map, String region, long[] lengths) {
            received.add("map " + shuffle + " " + map + " " + region + " " + lengths.length);
        }

        @Override
        public void onReader(int shuffle, int stage, int task, String region, int startMap, int endMap, int startPartition, int endPartition) {
            received.add("reader " + shuffle + " " + stage + " " + task + " " + region);
        }

        @Override
        public void onBypass(int shuffle) {
            received.add("bypass " + shuffle);
        }

        @Override
        public void onPaths(int shuffle, Map<String, Long> counts) {
            received.add("paths " + shuffle + " " + counts);
        }

        @Override
        public void onProblem(String kind, String text) {
            received.add(kind + ": " + text);
        }
    };

    @Test
    void one_way_messages_arrive_and_have_no_answer() {
        // Spark would log each answer.
        assertNull(Messages.dispatch(Messages.mapOutput(1, 2, "west", new long[3]), handler));
        assertNull(Messages.dispatch(Messages.reader(1, 2, 3, "west", 0, 1, 0, 1), handler));
        assertNull(Messages.dispatch(Messages.bypass(1), handler));
        assertNull(Messages.dispatch(Messages.paths(1, Map.of("sent.relay.flows", 2L)), handler));
        assertNull(Messages.dispatch(Messages.problem("relay", "no answer"), handler));
        assertEquals(List.of("map 1 2 west 3", "reader 1 2 3 west", "bypass 1", "paths 1 {sent.relay.flows=2}", "relay: no answer"), received);
    }

    @Test
    void questions_are_answered() {
        HostPort address = HostPort.parse("10.0.0.2:7000");
        Messages.Admission admitted =
                Messages.decodeAdmission(Messages.dispatch(Messages.executor("2", new Peers.Peer("west", address)), handler));
        assertEquals(7, admitted.number);
        assertNull(admitted.refusal);
        Messages.Admission refused =
                Messages.decodeAdmission(Messages.dispatch(Messages.executor("2", new Peers.Peer("wset", address)), handler));
        assertEquals("no such region", refused.refusal);
        Peers.Answer known = Messages.decodePeer(Messages.dispatch(Messages.peer("2", "1"), handler));
        assertEquals("10.0.0.1:7000", known.peer.address.toString());
        assertNull(known.refusal);
        assertTrue(known.isProvisional);
        Peers.Answer unknown = Messages.decodePeer(Messages.dispatch(Messages.peer("3", "2"), handler));
        assertNull(unknown.peer);
        assertEquals("no such region", unknown.refusal);
        assertFalse(unknown.isProvisional);
    }

    @Test
    void problem_is_logged_once_and_counted_each_time() {
        Counter counter = new Counter();
        Logger log = (Logger) java.lang.reflect.Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {Logger.class},
                (proxy, method, arguments) -> received.add(method.getName() + " " + arguments[0]));
        Problems problems = new Problems(log, counter);
        problems.report("relay", "executor 1: no relay");
        problems.report("relay", "executor 2: no relay");
        problems.report("region", "executor 2: no region");
        assertEquals(List.of("warn executor 1: no relay", "warn executor 2: no region"), received);
        assertEquals(3, counter.getCount());
    }
}
