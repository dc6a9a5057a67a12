package io.weir.flow;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class FlowTest {
    private static final String COFLOW = "spark-app-1-shuffle0";
    private static final long FLOW = 1 << 18;
    private static final int WINDOW = 1 << 20;

    private final FlowReceiver receiver = new FlowReceiver(50);
    private final Collector collector = new Collector();
    private ServerSocket server;
    private TestRelay relay;

    private static final class Collector implements FlowReceiver.Sink {
        final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        final CountDownLatch ended = new CountDownLatch(1);

        @Override
        public void receive(byte[] data, int length) {
            bytes.write(data, 0, length);
        }

        @Override
        public void end() {
            ended.countDown();
        }
    }

    @BeforeEach
    void start() throws IOException {
        server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        relay = new TestRelay();
        receiver.expect(COFLOW, FLOW, collector);
        Thread thread = new Thread(() -> {
            while (true) {
                try {
                    Socket socket = server.accept();
                    new Thread(() -> serve(socket)).start();
                } catch (IOException e) {
                    return;
                }
            }
        });
        thread.start();
    }

    @AfterEach
    void stop() throws IOException {
        server.close();
        receiver.close();
        relay.close();
    }

    private void serve(Socket socket) {
        try (FlowSocket accepted = FlowSocket.accept(socket, null, 0)) {
            InputStream in = accepted.input();
            receiver.serve(accepted, in, FirstLine.parse(Wire.readLine(in)));
        } catch (IOException e) {
            // The sender observes it.
        }
    }

    private HostPort address() {
        return new HostPort("127.0.0.1", server.getLocalPort());
    }

    private FlowSender sender(HostPort via) {
        return sender(new OneRelay(via));
    }

    private FlowSender sender(RelaySelector relays) {
        return new FlowSender(COFLOW, FLOW, address(), relays, null, WINDOW);
    }

    private static byte[] randomBytes(int length) {
        byte[] bytes = new byte[length];
        new Random(length).nextBytes(bytes);
        return bytes;
    }

    private void checkTransfer(FlowSender sender, int length) throws Exception {
        byte[] sent = randomBytes(length);
        sender.write(sent);
        sender.finish();
        assertTrue(collector.ended.await(0, TimeUnit.SECONDS));
        assertArrayEquals(sent, collector.bytes.toByteArray());
    }

    @Test
    void direct_flow_arrives_unchanged() throws Exception {
        checkTransfer(sender(new OneRelay(null)), 10_000_000);
    }

    @Test
    void empty_flow_ends() throws Exception {
        checkTransfer(sender(new OneRelay(null)), 0);
    }

    @Test
    void relayed_flow_arrives_unchanged() throws Exception {
        FlowSender sender = sender(relay.address());
        checkTransfer(sender, 10_000_000);
        assertFalse(sender.isDirect());
        assertNull(sender.relayFailure());
        assertEquals(1, relay.connections.get());
    }

    @Test
    void flow_resumes_over_the_relay_after_a_lost_connection() throws Exception {
        relay.inject(TestRelay.Mode.KILL, 3_000_000, 2);
        FlowSender sender = sender(relay.address());
        checkTransfer(sender, 10_000_000);
        assertFalse(sender.isDirect());
        assertEquals(3, relay.connections.get());
    }

    @Test
    void flow_bypasses_a_relay_that_never_progresses() throws Exception {
        relay.inject(TestRelay.Mode.KILL, 0, 100);
        FlowSender sender = sender(relay.address());
        checkTransfer(sender, 3_000_000);
        assertTrue(sender.isDirect());
        assertEquals(4, relay.connections.get());
    }

    @Test
    void flow_bypasses_a_relay_that_corrupts() throws Exception {
        relay.inject(TestRelay.Mode.CORRUPT, 1_500_000, 1);
        FlowSender sender = sender(relay.address());
        checkTransfer(sender, 5_000_000);
        assertTrue(sender.isDirect());
    }

    @Test
    void flow_bypasses_a_busy_relay_at_once() throws Exception {
        relay.inject(TestRelay.Mode.BUSY, 0, 1);
        OneRelay relays = new OneRelay(relay.address());
        FlowSender sender = sender(relays);
        checkTransfer(sender, 100_000);
        assertEquals(1, relay.connections.get());
        assertEquals(Reset.BUSY, sender.relayFailure());
        assertEquals("busy", relays.problem);
    }

    @Test
    void flow_waits_for_the_registration_of_its_coflow() throws Exception {
        relay.inject(TestRelay.Mode.UNKNOWN_COFLOW, 0, 2);
        FlowSender sender = sender(relay.address());
        checkTransfer(sender, 100_000);
        assertFalse(sender.isDirect());
    }

    @Test
    void flow_bypasses_a_relay_that_does_not_run() throws Exception {
        OneRelay relays = new OneRelay(TestRelay.closedAddress());
        FlowSender sender = sender(relays);
        checkTransfer(sender, 100_000);
        assertEquals(Reset.LOST, sender.relayFailure());
        assertTrue(relays.problem.contains("refused"), relays.problem);
    }

    @Test
    void unexpected_flow_fails() {
        FlowSender sender = new FlowSender(COFLOW, FLOW + 1, address(), new OneRelay(null), null, WINDOW);
        assertThrows(IOException.class, () -> {
            sender.write(1);
            sender.finish();
        });
    }

    @Test
    void removed_flow_fails() throws Exception {
        FlowSender sender = sender(new OneRelay(null));
        sender.write(1);
        sender.flush();
        receiver.remove(COFLOW, FLOW);
        assertThrows(IOException.class, sender::finish);
    }

    @Test
    void removal_of_a_flow_ends_its_connection_without_an_error() throws Exception {
        CountDownLatch served = new CountDownLatch(1);
        receiver.expect("another", 0, collector);
        try (ServerSocket other = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                Socket client = new Socket("127.0.0.1", other.getLocalPort());
                FlowSocket accepted = FlowSocket.accept(other.accept(), null, 0)) {
            Thread thread = new Thread(() -> {
                try {
                    receiver.serve(accepted, accepted.input(), new FirstLine("another", 0, 0, 0, address()));
                    served.countDown();
                } catch (IOException e) {
                    // The latch stays closed.
                }
            });
            thread.start();
            assertEquals("ack 0", Wire.readLine(client.getInputStream()));
            receiver.remove("another", 0);
            assertTrue(served.await(10, TimeUnit.SECONDS));
        }
    }

    @Test
    void sender_of_a_complete_flow_gets_no_reset_when_the_flow_is_removed() throws Exception {
        try (Socket socket = new Socket("127.0.0.1", server.getLocalPort())) {
            Wire.writeLine(socket.getOutputStream(), new FirstLine(COFLOW, FLOW, 0, 0, address()).toString());
            socket.getOutputStream().write(chunk(""));
            for (String line = ""; !line.equals("ack 8"); ) {
                line = Wire.readLine(socket.getInputStream());
            }
            receiver.remove(COFLOW, FLOW);
            socket.setSoTimeout(10_000);
            // The receiver closes a connection that its sender leaves open.
            assertNull(Wire.readLine(socket.getInputStream()));
        }
    }

    @Test
    void closed_sender_ends_its_writer() throws Exception {
        relay.inject(TestRelay.Mode.STALL, 0, 1);
        FlowSender sender = sender(relay.address());
        new Thread(() -> {
            try {
                Thread.sleep(200);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
            sender.close();
        }).start();
        assertThrows(IOException.class, () -> sender.write(randomBytes(5 * WINDOW)));
    }

    /** A connection that sends the first line, then `stream`. Returns the last line from the receiver. */
    private String lastLine(int generation, long offset, byte[] stream) throws IOException {
        try (Socket socket = new Socket("127.0.0.1", server.getLocalPort())) {
            Wire.writeLine(socket.getOutputStream(), new FirstLine(COFLOW, FLOW, generation, offset, address()).toString());
            socket.getOutputStream().write(stream);
            socket.shutdownOutput();
            String last = null;
            String line;
            while ((line = Wire.readLine(socket.getInputStream())) != null) {
                last = line;
            }
            return last;
        }
    }

    private static byte[] chunk(String data) {
        byte[] bytes = data.getBytes();
        return Wire.encodeChunk(bytes, bytes.length);
    }

    @Test
    void receiver_drops_bytes_that_it_has() throws Exception {
        assertEquals("ack 11", lastLine(0, 0, chunk("abc")));
        ByteArrayOutputStream again = new ByteArrayOutputStream();
        again.write(chunk("abc"));
        again.write(chunk("de"));
        again.write(chunk(""));
        assertEquals("ack 29", lastLine(1, 0, again.toByteArray()));
        assertEquals("abcde", collector.bytes.toString());
        // The acknowledgement of the end was lost: the next connection gets it.
        assertEquals("ack 29", lastLine(2, 21, chunk("")));
    }

    @Test
    void receiver_sends_acknowledgements_while_nothing_arrives() throws Exception {
        try (Socket socket = new Socket("127.0.0.1", server.getLocalPort())) {
            Wire.writeLine(socket.getOutputStream(), new FirstLine(COFLOW, FLOW, 0, 0, address()).toString());
            for (int line = 0; line < 3; line++) {
                assertEquals("ack 0", Wire.readLine(socket.getInputStream()));
            }
        }
    }

    @Test
    void receiver_resets_invalid_connections() throws Exception {
        assertEquals("ack 11", lastLine(5, 0, chunk("abc")));
        assertEquals("reset replaced", lastLine(5, 0, chunk("abc")));
        assertEquals("reset replaced", lastLine(4, 0, chunk("abc")));
        assertEquals("reset gap", lastLine(6, 12, chunk("abc")));
        byte[] corrupt = chunk("def");
        corrupt[9] ^= 1;
        assertEquals("reset corrupt", lastLine(7, 11, corrupt));
        assertEquals("reset invalid", lastLine(8, 0, chunk("abcd")));
        ByteArrayOutputStream huge = new ByteArrayOutputStream();
        new DataOutputStream(huge).writeLong(Long.MAX_VALUE);
        assertEquals("reset corrupt", lastLine(9, 11, huge.toByteArray()));
        assertEquals("abc", collector.bytes.toString());
    }

    @Test
    void first_lines_round_trip_and_malformed_ones_are_refused() {
        String line = "weir-flow/2 job-7 4294967295 65535 4611686018427387904 [fd00::3]:7000";
        assertEquals(line, FirstLine.parse(line).toString());
        for (String wrong : new String[] {
            "", "weir-flow/1 c 0 0 0 10.0.0.3:7000", "weir-flow/2 c 0 0 0", "weir-flow/2 c 0 0 0 10.0.0.3:7000 ",
            "weir-flow/2  0 0 0 10.0.0.3:7000", "weir-flow/2 c 4294967296 0 0 10.0.0.3:7000", "weir-flow/2 c 0 65536 0 10.0.0.3:7000",
            "weir-flow/2 c 0 0 4611686018427387905 10.0.0.3:7000", "weir-flow/2 c 01 0 0 10.0.0.3:7000", "weir-flow/2 c +1 0 0 10.0.0.3:7000",
            "weir-flow/2 c 0 0 9999999999999999999 10.0.0.3:7000", "weir-flow/2 c 0 0 0 name:7000", "weir-flow/2 c 0 0 0 10.0.0.3:0",
            "weir-flow/2 c 0 0 0 10.0.0.3", "weir-flow/2 c\u00e9 0 0 0 10.0.0.3:7000",
        }) {
            assertThrows(IllegalArgumentException.class, () -> FirstLine.parse(wrong), wrong);
        }
    }
}
