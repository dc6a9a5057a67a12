package io.weir.flow;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLPeerUnverifiedException;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.SSLSocketFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
class FlowTlsTest {
    private static final String COFLOW = "spark-app-1-shuffle0";

    @TempDir
    static Path directory;

    private static TestCertificates certificates;

    private final FlowReceiver receiver = new FlowReceiver();
    private final ByteArrayOutputStream received = new ByteArrayOutputStream();
    /** Errors of accepted connections. */
    private final BlockingQueue<String> errors = new LinkedBlockingQueue<>();
    private ServerSocket server;
    private int generation;

    @BeforeAll
    static void makeCertificates() throws IOException {
        Assumptions.assumeTrue(TestCertificates.areAvailable(), "openssl is not installed");
        certificates = new TestCertificates(directory).add("spark", "weir://framework/spark").add("ads", "weir://framework/ads")
                .add("relay", "weir://relay/west");
        Files.createDirectory(directory.resolve("other"));
        new TestCertificates(directory.resolve("other")).add("spark", "weir://framework/spark");
    }

    @BeforeEach
    void start() throws IOException {
        server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        receiver.expect(COFLOW, 0, new FlowReceiver.Sink() {
            @Override
            public void receive(byte[] data, int length) {
                received.write(data, 0, length);
            }

            @Override
            public void end() {}
        });
    }

    @AfterEach
    void stop() throws IOException {
        server.close();
        receiver.close();
    }

    /** Accepts connections with this certificate; null: in plain text. */
    private void accept(FlowTls tls) {
        new Thread(() -> {
            while (true) {
                try {
                    Socket socket = server.accept();
                    new Thread(() -> serve(socket, tls)).start();
                } catch (IOException e) {
                    return;
                }
            }
        }).start();
    }

    private void serve(Socket tcp, FlowTls tls) {
        try (FlowSocket socket = FlowSocket.accept(tcp, tls, 5_000)) {
            InputStream in = socket.input();
            receiver.serve(socket, in, FirstLine.parse(Wire.readLine(in)));
        } catch (IOException | RuntimeException e) {
            errors.add(String.valueOf(e.getMessage()));
        }
    }

    /** Accepts connections with the certificate of a relay, and answers the first lines; then as {@link #accept}. */
    private void acceptAsRelay(String... answers) {
        new Thread(() -> {
            try {
                SSLSocketFactory factory = certificates.tls("relay").coordinator();
                for (String answer : answers) {
                    try (SSLSocket socket = (SSLSocket) factory.createSocket(server.accept(), null, true)) {
                        FirstLine.parse(Wire.readLine(socket.getInputStream()));
                        Wire.writeLine(socket.getOutputStream(), answer);
                    }
                }
                accept(certificates.tls("relay"));
            } catch (IOException e) {
                errors.add(String.valueOf(e.getMessage()));
            }
        }).start();
    }

    private HostPort address() {
        return new HostPort("127.0.0.1", server.getLocalPort());
    }

    private static FlowTls other() throws IOException {
        Path files = directory.resolve("other");
        return new FlowTls(files.resolve("spark.pem"), files.resolve("spark.key"), files.resolve("authority.pem"), true);
    }

    private String failure(FlowTls tls) {
        FlowSender sender = new FlowSender(COFLOW, 0, address(), new OneRelay(null), tls, 1 << 20);
        return assertThrows(IOException.class, () -> {
            sender.write(1);
            sender.finish();
        }).getMessage();
    }

    @Test
    void flow_over_tls_arrives_unchanged() throws Exception {
        accept(certificates.tls("spark"));
        byte[] sent = new byte[10_000_000];
        new Random(1).nextBytes(sent);
        FlowSender sender = new FlowSender(COFLOW, 0, address(), new OneRelay(null), certificates.tls("spark"), 1 << 20);
        sender.write(sent);
        sender.finish();
        assertArrayEquals(sent, received.toByteArray());
        assertTrue(errors.isEmpty(), errors.toString());
    }

    @Test
    void sender_refuses_another_service_at_once() throws Exception {
        accept(certificates.tls("ads"));
        String failure = failure(certificates.tls("spark"));
        String expected = "the certificate has the name weir://framework/ads; expected weir://framework/spark";
        assertTrue(failure.endsWith("the sender refuses the receiver: " + expected), failure);
        assertEquals(0, received.size());
    }

    @Test
    void sender_refuses_another_authority_at_once() throws Exception {
        accept(other());
        String failure = failure(certificates.tls("spark"));
        assertTrue(failure.contains("the certificate is refused"), failure);
    }

    @Test
    void receiver_accepts_relays_and_programs_of_its_service_only() throws Exception {
        accept(certificates.tls("spark"));
        for (String name : new String[] {"spark", "relay"}) {
            assertEquals("ack 0", answer(connect(name)));
        }
        SSLSocket refused = connect("ads");
        assertNull(answer(refused));
        String error = errors.poll(10, TimeUnit.SECONDS);
        assertEquals("the certificate has the name weir://framework/ads; expected weir://relay/NAME or weir://framework/spark", error);
    }

    /** A connection that does not check the receiver. */
    private SSLSocket connect(String name) throws IOException {
        Socket tcp = new Socket("127.0.0.1", server.getLocalPort());
        SSLSocket socket = (SSLSocket) certificates.tls(name).coordinator().createSocket(tcp, "127.0.0.1", tcp.getPort(), true);
        Wire.writeLine(socket.getOutputStream(), new FirstLine(COFLOW, 0, generation++, 0, address()).toString());
        return socket;
    }

    private static String answer(SSLSocket socket) throws IOException {
        try (SSLSocket open = socket) {
            return Wire.readLine(open.getInputStream());
        }
    }

    @Test
    void plain_text_and_tls_do_not_mix() throws Exception {
        accept(null);
        FlowTls tls = certificates.tls("spark");
        IOException failure = assertThrows(IOException.class, () -> FlowSocket.connect(address(), tls, true, 5_000));
        assertFalse(failure instanceof SSLPeerUnverifiedException, failure.toString());
        server.close();
        server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        accept(tls);
        try (Socket plain = new Socket("127.0.0.1", server.getLocalPort())) {
            Wire.writeLine(plain.getOutputStream(), new FirstLine(COFLOW, 0, 0, 0, address()).toString());
            assertTrue(errors.poll(10, TimeUnit.SECONDS) != null);
            assertEquals("the other end uses plain text; expected TLS", errors.poll(10, TimeUnit.SECONDS));
        }
        assertEquals(0, received.size());
    }

    @Test
    void connections_inside_a_host_are_plain_text_by_default() throws Exception {
        accept(null);
        FlowTls tls = new FlowTls(certificates.file("spark.pem"), certificates.file("spark.key"), certificates.file("authority.pem"), false);
        FlowSender sender = new FlowSender(COFLOW, 0, address(), new OneRelay(null), tls, 1 << 20);
        sender.write("data".getBytes());
        sender.finish();
        assertEquals("data", received.toString());
    }

    @Test
    void close_ends_a_write_that_waits() throws Exception {
        FlowTls tls = certificates.tls("spark");
        // The JDK closes sockets without references.
        BlockingQueue<FlowSocket> accepted = new LinkedBlockingQueue<>();
        Thread reader = new Thread(() -> {
            try {
                // Reads nothing, so that the sender's buffers fill up.
                accepted.add(FlowSocket.accept(server.accept(), tls, 5_000));
            } catch (IOException e) {
                errors.add(String.valueOf(e.getMessage()));
            }
        });
        reader.start();
        FlowSocket socket = FlowSocket.connect(address(), tls, false, 5_000);
        Thread writer = new Thread(() -> {
            try {
                while (true) {
                    socket.output().write(new byte[1 << 20]);
                }
            } catch (IOException e) {
                errors.add("closed");
            }
        });
        writer.start();
        Thread.sleep(500);
        assertTrue(writer.isAlive());
        socket.close();
        assertEquals("closed", errors.poll(5, TimeUnit.SECONDS));
        accepted.take().close();
    }

    private static String problem(String certificate, String key, String authority) {
        return assertThrows(IOException.class, () -> new FlowTls(certificates.file(certificate), certificates.file(key),
                certificates.file(authority), false)).getMessage().replace(directory + "/", "");
    }

    @Test
    void problems_of_files_name_the_file() throws Exception {
        assertTrue(problem("missing.pem", "spark.key", "authority.pem").startsWith("missing.pem: cannot be read: "));
        assertEquals("ads.key: does not belong to the certificate", problem("spark.pem", "ads.key", "authority.pem"));
        String signer = problem("spark.pem", "spark.key", "other/authority.pem");
        assertTrue(signer.startsWith("spark.pem: was not signed by an authority in other/authority.pem"), signer);
        Files.write(certificates.file("empty.pem"), new byte[0]);
        assertEquals("empty.pem: has no certificate; expected certificates in PEM", problem("empty.pem", "spark.key", "authority.pem"));
        assertEquals("empty.pem: has no private key; expected `PRIVATE KEY` in PEM; help: openssl pkcs8 -topk8 -nodes -in empty.pem",
                problem("spark.pem", "empty.pem", "authority.pem"));
        Files.write(certificates.file("old.key"), Arrays.asList("-----BEGIN EC PRIVATE KEY-----", "AAAA", "-----END EC PRIVATE KEY-----"));
        assertTrue(problem("spark.pem", "old.key", "authority.pem").startsWith("old.key: has `EC PRIVATE KEY`; expected `PRIVATE KEY`"));
        certificates.add("nameless", "https://weir.example");
        assertEquals("nameless.pem: the certificate has 0 names weir://ROLE/NAME; expected one",
                problem("nameless.pem", "nameless.key", "authority.pem"));
    }

    @Test
    void keys_of_all_common_kinds_are_read() throws Exception {
        certificates.add("rsa", "weir://framework/spark", "rsa:2048").add("edwards", "weir://framework/spark", "ed25519");
        for (String file : new String[] {"rsa", "edwards"}) {
            assertEquals("weir://framework/spark", certificates.tls(file).name());
        }
    }

    @Test
    void probe_names_what_is_wrong_with_a_relay() throws Exception {
        FlowTls spark = certificates.tls("spark");
        HostPort self = HostPort.parse("127.0.0.1:7000");
        acceptAsRelay("reset unknown-coflow", "reset invalid", "220 mail.example ESMTP");
        assertNull(RelayProbe.findProblem(address(), self, spark));
        assertEquals("the relay has another version of the flow protocol than weir-flow/2", RelayProbe.findProblem(address(), self, spark));
        assertEquals("the program at this address is no relay", RelayProbe.findProblem(address(), self, spark));
        assertEquals("the relay expects TLS; help: set WEIR_CERTIFICATE, WEIR_KEY and WEIR_AUTHORITY",
                RelayProbe.findProblem(address(), self, null));
        FlowTls notInsideHosts =
                new FlowTls(certificates.file("spark.pem"), certificates.file("spark.key"), certificates.file("authority.pem"), false);
        assertEquals("the relay expects TLS; help: set WEIR_TLS_LOCAL=1, which applies inside this host",
                RelayProbe.findProblem(address(), self, notInsideHosts));
        assertEquals("unknown host relay.invalid", RelayProbe.findProblem(HostPort.parse("relay.invalid:7711"), self, null));
        server.close();
        String refused = RelayProbe.findProblem(TestRelay.closedAddress(), self, null);
        assertTrue(refused.contains("refused"), refused);
        server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        accept(spark);
        assertEquals("the certificate has the name weir://framework/spark; expected weir://relay/NAME",
                RelayProbe.findProblem(address(), self, spark));
        try (TestRelay relay = new TestRelay()) {
            relay.inject(TestRelay.Mode.UNKNOWN_COFLOW, 0, 1);
            assertNull(RelayProbe.findProblem(relay.address(), self, null));
        }
    }
}
