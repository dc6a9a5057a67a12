package io.weir.flow;

import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/** Receives flows: gives the bytes of each, once and in order, to its sink. */
public final class FlowReceiver implements AutoCloseable {
    private static final long MAX_UNACKED = 256 * 1024;
    private static final int DRAIN_MILLIS = 1_000;
    private static final int LINGER_MILLIS = 5_000;

    /** The program that reads a flow. An exception ends the flow. */
    public interface Sink {
        void receive(byte[] data, int length) throws IOException;

        void end() throws IOException;
    }

    private final Map<String, Flow> flows = new ConcurrentHashMap<>();
    private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(task -> {
        Thread thread = new Thread(task, "weir-keepalive");
        thread.setDaemon(true);
        return thread;
    });

    public FlowReceiver() {
        this(10_000);
    }

    /** Senders treat a connection without lines as lost: each gets an acknowledgement at this interval. */
    FlowReceiver(long keepaliveMillis) {
        timer.scheduleWithFixedDelay(() -> flows.values().forEach(Flow::keepAlive), keepaliveMillis, keepaliveMillis, TimeUnit.MILLISECONDS);
    }

    @Override
    public void close() {
        timer.shutdownNow();
    }

    /** Begins to accept connections of a flow. */
    public void expect(String coflow, long flow, Sink sink) {
        if (flows.putIfAbsent(key(coflow, flow), new Flow(sink)) != null) {
            throw new IllegalStateException("flow " + flow + " of " + coflow + " is expected already");
        }
    }

    /** Stops to accept connections of a flow, and ends the present one. */
    public void remove(String coflow, long flow) {
        Flow removed = flows.remove(key(coflow, flow));
        if (removed != null) {
            removed.remove();
        }
    }

    /** Receives what arrives on a connection after its first line, until the connection ends. */
    public void serve(FlowSocket socket, InputStream input, FirstLine first) throws IOException {
        Flow flow = flows.get(key(first.coflow, first.flow));
        Reset reset = flow == null ? Reset.INVALID : flow.begin(socket, first);
        if (reset == null) {
            try {
                reset = flow.receiveChunks(socket, new DataInputStream(input), first.offset);
            } catch (EOFException e) {
                return;
            } catch (IOException e) {
                // A complete flow has no further use for its connection, and a removed or replaced one has closed it.
                if (socket.isClosed() || flow.hasEnded()) {
                    return;
                }
                throw e;
            }
        }
        if (reset != null) {
            sendReset(socket, reset);
        }
    }

    private static String key(String coflow, long flow) {
        return flow + " " + coflow;
    }

    private static void sendReset(FlowSocket socket, Reset reset) {
        try {
            Wire.writeLine(socket.output(), "reset " + reset);
            // Closing with unread bytes would discard the line on its way.
            socket.shutdownOutput();
            socket.setReadTimeout(DRAIN_MILLIS);
            InputStream in = socket.input();
            byte[] unread = new byte[Wire.MAX_CHUNK];
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(DRAIN_MILLIS);
            while (in.read(unread) >= 0 && System.nanoTime() - deadline < 0) {}
        } catch (IOException e) {
            // The sender treats a closed connection as a lost one.
        } finally {
            socket.close();
        }
    }

    private static final class Flow {
        private final Sink sink;
        private FlowSocket current;
        private int generation = -1;
        private long position;
        private long acked;
        private boolean hasEnded;
        private boolean hasFailed;

        Flow(Sink sink) {
            this.sink = sink;
        }

        /** Makes a connection the present one, unless it must be reset. */
        synchronized Reset begin(FlowSocket socket, FirstLine first) throws IOException {
            if (hasFailed) {
                return Reset.INVALID;
            }
            if (first.generation <= generation) {
                return Reset.REPLACED;
            }
            if (first.offset > position) {
                return Reset.GAP;
            }
            generation = first.generation;
            replace(socket);
            acknowledge(socket);
            return null;
        }

        synchronized void replace(FlowSocket next) {
            if (current != null) {
                try {
                    Wire.writeLine(current.output(), "reset " + Reset.REPLACED);
                } catch (IOException e) {
                    // It has been lost.
                }
                current.close();
            }
            hasFailed = next == null;
            current = next;
        }

        Reset receiveChunks(FlowSocket socket, DataInputStream in, long offset) throws IOException {
            byte[] data = new byte[Wire.MAX_CHUNK];
            for (long start = offset; ; ) {
                int length = in.readInt();
                int crc = in.readInt();
                if (length < 0 || length > Wire.MAX_CHUNK) {
                    return Reset.CORRUPT;
                }
                in.readFully(data, 0, length);
                if ((int) Wire.crc(data, length) != crc) {
                    return Reset.CORRUPT;
                }
                Reset reset = accept(socket, start, data, length);
                if (reset != null) {
                    return reset;
                }
                start += Wire.CHUNK_HEADER + length;
            }
        }

        private synchronized Reset accept(FlowSocket socket, long start, byte[] data, int length) throws IOException {
            if (current != socket) {
                return Reset.REPLACED;
            }
            long end = start + Wire.CHUNK_HEADER + length;
            if (end <= position) {
                return null;
            }
            if (start != position || hasEnded) {
                return Reset.INVALID;
            }
            try {
                if (length > 0) {
                    sink.receive(data, length);
                } else {
                    sink.end();
                    hasEnded = true;
                }
            } catch (IOException | RuntimeException e) {
                hasFailed = true;
                return Reset.INVALID;
            }
            position = end;
            long unacked = position - acked;
            if (hasEnded || unacked >= MAX_UNACKED || 2 * unacked >= position) {
                acknowledge(socket);
            }
            return null;
        }

        /** The sender of a complete flow closes its connection: a reset would count as a failure at relays. */
        synchronized void remove() {
            if (hasEnded && current != null) {
                current.closeAfter(LINGER_MILLIS);
                current = null;
                hasFailed = true;
            } else {
                replace(null);
            }
        }

        synchronized boolean hasEnded() {
            return hasEnded;
        }

        synchronized void keepAlive() {
            if (current != null) {
                try {
                    acknowledge(current);
                } catch (IOException e) {
                    current.close();
                }
            }
        }

        private void acknowledge(FlowSocket socket) throws IOException {
            acked = position;
            Wire.writeLine(socket.output(), "ack " + position);
        }
    }
}
