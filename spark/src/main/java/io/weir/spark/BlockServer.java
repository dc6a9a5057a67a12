package io.weir.spark;

import io.weir.flow.FirstLine;
import io.weir.flow.FlowReceiver;
import io.weir.flow.FlowSender;
import io.weir.flow.HostPort;
import io.weir.flow.Wire;
import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ProtocolException;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The port of an executor: accepts requests for its blocks, and flows with the blocks that it requested. */
final class BlockServer implements AutoCloseable {
    /** The answer when the receiver has acknowledged the whole flow. Without it the request has failed. */
    static final int SENT = 1;

    private static final Logger LOG = LoggerFactory.getLogger(BlockServer.class);
    private static final int FIRST_LINE_MILLIS = 10_000;
    private static final long RELAY_RETRY_NANOS = TimeUnit.SECONDS.toNanos(5);

    /** Reads a block of this executor. */
    interface Blocks {
        ManagedBuffer read(String id) throws IOException;
    }

    private final String executor;
    private final byte[] secret;
    private final Blocks blocks;
    private final List<HostPort> relays;
    private final long window;
    private final FlowReceiver receiver = new FlowReceiver();
    private final ServerSocket server;
    private final ExecutorService connections;
    /** When a relay is tried again for a coflow whose flow had to bypass it. */
    private final Map<String, Long> relayRetries = new ConcurrentHashMap<>();

    BlockServer(String executor, byte[] secret, Blocks blocks, InetAddress host, int port, List<HostPort> relays, long window,
            int maxConnections)
            throws IOException {
        this.executor = executor;
        this.secret = secret;
        this.blocks = blocks;
        this.relays = relays;
        this.window = window;
        server = new ServerSocket(port, 128, host);
        // A connection above the limit is closed, and its peer uses Spark's own fetch.
        connections = new ThreadPoolExecutor(0, maxConnections, 30, TimeUnit.SECONDS, new SynchronousQueue<>(), daemons("weir-connection"));
        daemons("weir-accept").newThread(this::accept).start();
    }

    static ThreadFactory daemons(String name) {
        AtomicInteger count = new AtomicInteger();
        return task -> {
            Thread thread = new Thread(task, name + "-" + count.getAndIncrement());
            thread.setDaemon(true);
            return thread;
        };
    }

    HostPort address() {
        return new HostPort(server.getInetAddress().getHostAddress(), server.getLocalPort());
    }

    FlowReceiver receiver() {
        return receiver;
    }

    @Override
    public void close() throws IOException {
        server.close();
        receiver.close();
        connections.shutdownNow();
    }

    private void accept() {
        while (!server.isClosed()) {
            Socket socket = null;
            try {
                socket = server.accept();
                Socket accepted = socket;
                connections.execute(() -> serve(accepted));
            } catch (RejectedExecutionException e) {
                Wire.close(socket);
            } catch (IOException e) {
                if (!server.isClosed()) {
                    LOG.warn("a connection could not be accepted", e);
                }
            }
        }
    }

    private void serve(Socket socket) {
        try {
            socket.setTcpNoDelay(true);
            socket.setSoTimeout(FIRST_LINE_MILLIS);
            InputStream in = new BufferedInputStream(socket.getInputStream(), 64 * 1024);
            String line = Wire.readLine(in);
            if (BlockRequest.PROTOCOL.equals(line)) {
                send(BlockRequest.read(in, secret));
                socket.getOutputStream().write(SENT);
            } else if (line != null) {
                FirstLine first = FirstLine.parse(line);
                socket.setSoTimeout(0);
                receiver.serve(socket, in, first);
            }
        } catch (Throwable e) {
            LOG.info("a connection from {} failed: {}", socket.getRemoteSocketAddress(), e.toString());
        } finally {
            Wire.close(socket);
        }
    }

    private void send(BlockRequest request) throws IOException {
        if (!request.executor.equals(executor)) {
            throw new ProtocolException("the request is for executor " + request.executor + "; this is " + executor);
        }
        HostPort via = relay(request);
        try (FlowSender sender = new FlowSender(request.coflow, request.flow, request.receiver, via, window)) {
            sender.write(request.key);
            writeBlocks(sender, request.blocks);
            sender.finish();
            if (via != null && sender.isDirect()) {
                LOG.info("the relay {} did not forward a flow of {}: flows bypass it for 5 s", via, request.coflow);
                relayRetries.put(retryKey(via, request.coflow), System.nanoTime() + RELAY_RETRY_NANOS);
            }
        }
    }

    /** The relay of a flow: flows divide among relays by their numbers. Null: directly. */
    private HostPort relay(BlockRequest request) {
        long now = System.nanoTime();
        relayRetries.values().removeIf(retry -> retry - now < 0);
        for (int at = 0; at < relays.size(); at++) {
            HostPort relay = relays.get((relayIndex(request.flow, relays.size()) + at) % relays.size());
            if (!relayRetries.containsKey(retryKey(relay, request.coflow))) {
                return relay;
            }
        }
        return null;
    }

    /** The position of a flow's first relay. The high bits of the product depend on all bits of the number. */
    static int relayIndex(long flow, int count) {
        return (int) ((flow * 0x9e3779b97f4a7c15L >>> 33) % count);
    }

    private static String retryKey(HostPort relay, String coflow) {
        return relay + " " + coflow;
    }

    private void writeBlocks(OutputStream out, String[] ids) throws IOException {
        for (int index = 0; index < ids.length; index++) {
            ManagedBuffer block = blocks.read(ids[index]);
            try (InputStream data = block.createInputStream()) {
                BlockFrames.write(out, index, ids[index], block.size(), data);
            } finally {
                block.release();
            }
        }
    }
}
