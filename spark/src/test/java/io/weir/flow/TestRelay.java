package io.weir.flow;

import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/** A relay for tests: forwards each flow to its receiver over a connection of its own, and injects faults. */
public final class TestRelay implements Closeable {
    public enum Mode {
        FORWARD,
        /** Inverts a byte after `after` bytes. */
        CORRUPT,
        /** Closes both connections after `after` bytes. */
        KILL,
        /** Refuses flows. */
        UNKNOWN_COFLOW,
        BUSY,
        /** Forwards nothing after `after` bytes, and keeps the connections open. */
        STALL
    }

    public final AtomicInteger connections = new AtomicInteger();
    /** The numbers of all flows. */
    public final Set<Long> flows = ConcurrentHashMap.newKeySet();
    private final ServerSocket server;
    private volatile Mode mode = Mode.FORWARD;
    private volatile long after;
    private volatile int faults;

    public TestRelay() throws IOException {
        this(InetAddress.getLoopbackAddress());
    }

    public TestRelay(InetAddress address) throws IOException {
        this(address, 0);
    }

    private TestRelay(InetAddress address, int port) throws IOException {
        server = new ServerSocket(port, 128, address);
        start(this::accept);
    }

    /** Runs until it is killed. Arguments: the address and the port. */
    public static void main(String[] args) throws Exception {
        new TestRelay(InetAddress.getByName(args[0]), Integer.parseInt(args[1]));
        Thread.currentThread().join();
    }

    /** An address at which no program listens. A closed server may still accept a connection while its thread waits for one. */
    public static HostPort closedAddress() throws IOException {
        try (ServerSocket unused = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return new HostPort(unused.getInetAddress().getHostAddress(), unused.getLocalPort());
        }
    }

    public HostPort address() {
        return new HostPort(server.getInetAddress().getHostAddress(), server.getLocalPort());
    }

    /** The next `count` flows get the fault. */
    public synchronized void inject(Mode mode, long after, int count) {
        this.mode = mode;
        this.after = after;
        this.faults = count;
    }

    @Override
    public void close() throws IOException {
        server.close();
    }

    private void accept() {
        while (!server.isClosed()) {
            try {
                Socket socket = server.accept();
                connections.incrementAndGet();
                start(() -> forward(socket));
            } catch (IOException e) {
                return;
            }
        }
    }

    private synchronized Mode takeFault() {
        if (faults == 0) {
            return Mode.FORWARD;
        }
        faults--;
        return mode;
    }

    private void forward(Socket sender) {
        Mode fault = takeFault();
        try (Socket upstream = sender; Socket receiver = new Socket()) {
            String line = Wire.readLine(sender.getInputStream());
            if (fault == Mode.UNKNOWN_COFLOW || fault == Mode.BUSY) {
                Wire.writeLine(sender.getOutputStream(), "reset " + (fault == Mode.BUSY ? Reset.BUSY : Reset.UNKNOWN_COFLOW));
                return;
            }
            FirstLine first = FirstLine.parse(line);
            flows.add(first.flow);
            receiver.connect(first.receiver.resolve());
            Wire.writeLine(receiver.getOutputStream(), line);
            Thread acks = start(() -> copy(receiver, sender, Mode.FORWARD));
            copy(sender, receiver, fault);
            if (fault != Mode.KILL) {
                acks.join();
            }
        } catch (IOException | InterruptedException e) {
            // The test observes the closed connections.
        }
    }

    private void copy(Socket from, Socket to, Mode fault) {
        byte[] buffer = new byte[16 * 1024];
        long total = 0;
        boolean isDone = false;
        try {
            InputStream in = from.getInputStream();
            OutputStream out = to.getOutputStream();
            int n;
            while ((n = in.read(buffer)) >= 0) {
                total += n;
                if (fault != Mode.FORWARD && total > after) {
                    if (fault == Mode.KILL) {
                        return;
                    }
                    if (fault == Mode.STALL) {
                        continue;
                    }
                    if (!isDone) {
                        buffer[n - 1] ^= 1;
                        isDone = true;
                    }
                }
                out.write(buffer, 0, n);
            }
            to.shutdownOutput();
        } catch (IOException e) {
            Wire.close(from);
            Wire.close(to);
        }
    }

    private static Thread start(Runnable task) {
        Thread thread = new Thread(task, "test-relay");
        thread.setDaemon(true);
        thread.start();
        return thread;
    }
}
