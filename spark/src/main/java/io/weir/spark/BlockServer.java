package io.weir.spark;

import io.weir.flow.FirstLine;
import io.weir.flow.FlowReceiver;
import io.weir.flow.FlowSender;
import io.weir.flow.FlowSocket;
import io.weir.flow.FlowTls;
import io.weir.flow.HostPort;
import io.weir.flow.RelaySelector;
import io.weir.flow.Wire;
import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ProtocolException;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.SparkConf;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The port of an executor: accepts requests for its blocks, and flows with the blocks that it requested. */
final class BlockServer implements AutoCloseable {
    /** The answer when the receiver has acknowledged the whole flow. Without it the request has failed. */
    static final int SENT = 1;

    private static final Logger LOG = LoggerFactory.getLogger(BlockServer.class);
    private static final int FIRST_LINE_MILLIS = 10_000;

    /** Reads a block of this executor. */
    interface Blocks {
        ManagedBuffer read(String id) throws IOException;
    }

    private final String executor;
    private final byte[] secret;
    private final Blocks blocks;
    private final Relays relays;
    private final FlowTls tls;
    private final long window;
    private final Counters counters;
    private final FlowReceiver receiver = new FlowReceiver();
    private final ServerSocket server;
    private final ExecutorService connections;
    private volatile boolean isRefusing;

    /** `tls` may be null. */
    BlockServer(String executor, byte[] secret, Blocks blocks, InetAddress host, SparkConf conf, FlowTls tls, Counters counters,
            Relays.Problems relayProblems) throws IOException {
        this.executor = executor;
        this.secret = secret;
        this.blocks = blocks;
        this.relays = new Relays(Settings.relays(conf), relayProblems, System::nanoTime);
        this.tls = tls;
        this.window = Settings.window(conf);
        this.counters = counters;
        server = new ServerSocket(Settings.port(conf), 128, host);
        // A connection above the limit is closed, and its peer uses Spark's own fetch.
        connections = new ThreadPoolExecutor(0, Settings.connections(conf), 30, TimeUnit.SECONDS, new SynchronousQueue<>(),
                daemons("weir-connection"));
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

    Relays relays() {
        return relays;
    }

    /** Fails requests from now on: other executors use Spark's own fetch. */
    void refuseRequests() {
        isRefusing = true;
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

    private void serve(Socket tcp) {
        try (FlowSocket socket = FlowSocket.accept(tcp, tls, FIRST_LINE_MILLIS)) {
            InputStream in = new BufferedInputStream(socket.input(), 64 * 1024);
            String line = Wire.readLine(in);
            if (BlockRequest.PROTOCOL.equals(line)) {
                BlockRequest request = BlockRequest.read(in, secret);
                if (isRefusing) {
                    throw new IOException("this executor uses Spark's own fetch");
                }
                send(request);
                socket.output().write(SENT);
            } else if (line != null) {
                FirstLine first = FirstLine.parse(line);
                socket.setReadTimeout(0);
                receiver.serve(socket, in, first);
            }
        } catch (Throwable e) {
            if (!server.isClosed()) {
                LOG.info("a connection from {} failed: {}", tcp.getInetAddress(), e.toString());
            }
        }
    }

    private void send(BlockRequest request) throws IOException {
        if (!request.executor.equals(executor)) {
            throw new ProtocolException("the request is for executor " + request.executor + "; this is " + executor);
        }
        RelaySelector selector = relays.of(request.coflow, request.flow);
        try (FlowSender sender = new FlowSender(request.coflow, request.flow, request.receiver, selector, tls, window)) {
            sender.write(request.key);
            long bytes = writeBlocks(sender, request.blocks);
            sender.finish();
            count(sender, Settings.shuffle(request.coflow), bytes);
        }
    }

    private void count(FlowSender sender, int shuffle, long bytes) {
        if (!sender.isDirect()) {
            counters.countRelayed(shuffle, bytes);
        } else if (sender.relayFailure() != null) {
            counters.countDirect(shuffle, sender.relayFailure().toString(), bytes);
        } else {
            counters.countDirect(shuffle, relays.isEmpty() ? Counters.NO_RELAY : Counters.RELAY_PAUSED, bytes);
        }
    }

    /** Returns the number of bytes. */
    private long writeBlocks(OutputStream out, String[] ids) throws IOException {
        long bytes = 0;
        for (int index = 0; index < ids.length; index++) {
            ManagedBuffer block = blocks.read(ids[index]);
            try (InputStream data = block.createInputStream()) {
                BlockFrames.write(out, index, ids[index], block.size(), data);
                bytes += block.size();
            } finally {
                block.release();
            }
        }
        return bytes;
    }
}
