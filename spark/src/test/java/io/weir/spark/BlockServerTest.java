package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.codahale.metrics.MetricRegistry;
import io.weir.flow.FlowSocket;
import io.weir.flow.FlowTls;
import io.weir.flow.HostPort;
import io.weir.flow.TestCertificates;
import io.weir.flow.TestRelay;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkConf;
import org.apache.spark.network.buffer.NioManagedBuffer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
class BlockServerTest {
    private static final byte[] SECRET = "secret".getBytes();
    private static final byte[] KEY = new byte[BlockRequest.KEY_LENGTH];
    private static final String[] BLOCKS = {"shuffle_0_1_2", "shuffle_0_3_4"};
    private static final int BLOCK_BYTES = 100_000;

    private final MetricRegistry metrics = new MetricRegistry();
    private final List<String> problems = new CopyOnWriteArrayList<>();
    private TestRelay relay;
    private BlockServer sender;
    private BlockServer receiver;
    private long flow;

    @BeforeEach
    void start() throws Exception {
        relay = new TestRelay();
    }

    private void start(String relays, FlowTls tls) throws Exception {
        SparkConf conf = new SparkConf(false).set("spark.weir.relay", relays);
        sender = newServer("1", conf, metrics, tls);
        receiver = newServer("2", conf, new MetricRegistry(), tls);
    }

    private BlockServer newServer(String executor, SparkConf conf, MetricRegistry registry, FlowTls tls) throws Exception {
        return new BlockServer(executor, SECRET, id -> new NioManagedBuffer(ByteBuffer.allocate(BLOCK_BYTES)), InetAddress.getByName("127.0.0.1"),
                conf, tls, new Counters(registry, () -> {}), (relay, problem) -> problems.add(problem));
    }

    @AfterEach
    void stop() throws Exception {
        sender.close();
        receiver.close();
        relay.close();
    }

    /** Requests all blocks as one flow, and returns the number of bytes that arrived. */
    private long fetch(FlowTls tls) throws Exception {
        return fetch(tls, "coflow");
    }

    private long fetch(FlowTls tls, String coflow) throws Exception {
        long[] bytes = new long[1];
        BlockFrames.Targets targets = (index, length) -> new BlockFrames.Target() {
            @Override
            public void write(byte[] data, int from, int n) {
                bytes[0] += n;
            }

            @Override
            public void complete() {}

            @Override
            public void discard() {}
        };
        BlockRequest request = new BlockRequest("1", coflow, flow++, receiver.address(), KEY, BLOCKS);
        receiver.receiver().expect(request.coflow, request.flow, new BlockFrames.Reader(KEY, BLOCKS, targets));
        try (FlowSocket control = FlowSocket.connect(sender.address(), tls, false, 5_000)) {
            request.write(control.output(), SECRET);
            assertEquals(BlockServer.SENT, control.input().read());
        } finally {
            receiver.receiver().remove(request.coflow, request.flow);
        }
        return bytes[0];
    }

    /** The counters above 0. */
    private String counters() {
        TreeMap<String, Long> counters = new TreeMap<>();
        metrics.getCounters((name, metric) -> metrics.counter(name).getCount() > 0).forEach((name, counter) ->
                counters.put(name, counter.getCount()));
        return counters.toString();
    }

    @Test
    void flows_over_a_relay_and_around_it_are_counted_with_their_reason() throws Exception {
        start(relay.address().toString(), null);
        assertEquals(2 * BLOCK_BYTES, fetch(null));
        assertEquals("{sent.relay.bytes=200000, sent.relay.flows=1}", counters());
        relay.inject(TestRelay.Mode.UNKNOWN_COFLOW, 0, 4);
        assertEquals(2 * BLOCK_BYTES, fetch(null));
        assertEquals(List.of("unknown-coflow"), problems);
        // The relay is not used for some seconds.
        assertEquals(2 * BLOCK_BYTES, fetch(null));
        assertEquals("{sent.direct.bytes=400000, sent.direct.flows=2, sent.direct.flows.relay-paused=1, "
                + "sent.direct.flows.unknown-coflow=1, sent.relay.bytes=200000, sent.relay.flows=1}", counters());
        assertEquals(5, relay.connections.get());
        // It knows other coflows.
        assertEquals(2 * BLOCK_BYTES, fetch(null, "another"));
        assertEquals(6, relay.connections.get());
    }

    @Test
    void flow_that_the_relay_of_a_receiver_refuses_does_not_pause_the_own_relay() throws Exception {
        start(relay.address().toString(), null);
        relay.inject(TestRelay.Mode.BUSY, 0, 1);
        for (int n = 0; n < 3; n++) {
            assertEquals(2 * BLOCK_BYTES, fetch(null));
        }
        assertEquals(List.of("busy"), problems);
        assertEquals("{sent.direct.bytes=200000, sent.direct.flows=1, sent.direct.flows.busy=1, sent.relay.bytes=400000, sent.relay.flows=2}",
                counters());
    }

    @Test
    void relay_host_that_is_off_delays_one_connection_and_the_second_relay_is_used() throws Exception {
        InetAddress host = InetAddress.getLoopbackAddress();
        // A full queue drops further connections, as a host that is off does.
        try (ServerSocket off = new ServerSocket(0, 1, host); TestRelay second = new TestRelay()) {
            List<Socket> queue = fill(off);
            start(new HostPort(host.getHostAddress(), off.getLocalPort()) + "," + second.address(), null);
            long started = System.nanoTime();
            for (int n = 0; n < 10; n++) {
                assertEquals(2 * BLOCK_BYTES, fetch(null, "coflow" + n));
            }
            long seconds = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - started);
            assertEquals(10, second.connections.get());
            assertTrue(counters().endsWith("sent.relay.flows=10}"), counters());
            assertEquals(1, problems.size(), problems.toString());
            assertTrue(seconds >= 4 && seconds < 9, seconds + " s");
            for (Socket socket : queue) {
                socket.close();
            }
        }
    }

    private static List<Socket> fill(ServerSocket server) throws Exception {
        List<Socket> queue = new ArrayList<>();
        while (queue.size() < 10) {
            Socket socket = new Socket();
            queue.add(socket);
            try {
                socket.connect(server.getLocalSocketAddress(), 500);
            } catch (SocketTimeoutException e) {
                return queue;
            }
        }
        throw new IllegalStateException("the queue accepts " + queue.size() + " connections");
    }

    @Test
    void refused_executor_sends_no_blocks() throws Exception {
        start("", null);
        assertEquals(2 * BLOCK_BYTES, fetch(null));
        sender.refuseRequests();
        BlockRequest request = new BlockRequest("1", "coflow", flow, receiver.address(), KEY, BLOCKS);
        try (FlowSocket control = FlowSocket.connect(sender.address(), null, false, 5_000)) {
            request.write(control.output(), SECRET);
            assertEquals(-1, control.input().read());
        }
    }

    @Test
    void second_relay_is_used_while_the_first_one_is_paused() throws Exception {
        try (TestRelay second = new TestRelay()) {
            start(relay.address() + "," + second.address(), null);
            relay.inject(TestRelay.Mode.UNKNOWN_COFLOW, 0, 100);
            for (int n = 0; n < 20; n++) {
                fetch(null);
            }
            assertEquals(4, relay.connections.get());
            assertEquals(19, second.connections.get());
        }
    }

    @Test
    void flows_without_a_relay_are_counted() throws Exception {
        start("", null);
        fetch(null);
        assertEquals("{sent.direct.bytes=200000, sent.direct.flows=1, sent.direct.flows.no-relay=1}", counters());
        assertEquals(List.of(), problems);
    }

    @Test
    void relay_that_does_not_run_is_named_with_the_reason() throws Exception {
        start(TestRelay.closedAddress().toString(), null);
        fetch(null);
        assertEquals(1, problems.size());
        assertTrue(problems.get(0).contains("refused"), problems.toString());
    }

    @Test
    void requests_and_flows_use_tls(@TempDir Path directory) throws Exception {
        Assumptions.assumeTrue(TestCertificates.areAvailable(), "openssl is not installed");
        FlowTls tls = new TestCertificates(directory).add("spark", "weir://framework/spark").tls("spark");
        start("", tls);
        assertEquals(2 * BLOCK_BYTES, fetch(tls));
    }
}
