package io.weir.flow;

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.ArrayDeque;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLPeerUnverifiedException;

/**
 * Sends a flow through a relay, or directly to its receiver.
 *
 * Unacknowledged chunks stay in memory and are sent again over the next connection when one fails. One thread writes; another thread
 * of each connection reads acknowledgements.
 */
public final class FlowSender extends OutputStream {
    private static final int CONNECT_MILLIS = 5_000;
    private static final long CHECK_MILLIS = 1_000;
    private static final int RELAY_RETRIES = 3;
    private static final long RETRY_MILLIS = 100;
    private static final long MAX_RETRY_MILLIS = 5_000;
    private static final long GIVE_UP_NANOS = TimeUnit.SECONDS.toNanos(60);
    private static final long SILENCE_NANOS = TimeUnit.SECONDS.toNanos(30);
    private static final long STALL_NANOS = TimeUnit.SECONDS.toNanos(300);

    private final String coflow;
    private final long flow;
    private final HostPort receiver;
    private final RelaySelector relays;
    private final FlowTls tls;
    private final long window;

    private final byte[] partial = new byte[Wire.MAX_CHUNK];
    private int partialLength;

    // Guarded by this: the chunks from position `acked` to position `end`.
    private final ArrayDeque<byte[]> unacked = new ArrayDeque<>();
    private long acked;
    private long end;
    private long progressNanos = System.nanoTime();
    private long waitingSinceNanos = progressNanos;
    private Connection current;
    private boolean isClosed;

    // Used by the writing thread only.
    private int nextGeneration;
    /** The relay of the last connection; null: the flow is direct. */
    private HostPort relay;
    private Reset relayFailure;
    /** Why the last connection could not be opened; null if it could. */
    private IOException lastError;
    private int failures;
    private long ackedAtFailure;
    private long directSinceNanos;

    /**
     * Creates a flow.
     *
     * @param relays the relays, one after the other
     * @param tls null for plain text
     * @param window the maximum number of unacknowledged bytes
     */
    public FlowSender(String coflow, long flow, HostPort receiver, RelaySelector relays, FlowTls tls, long window) {
        this.coflow = coflow;
        this.flow = flow;
        this.receiver = receiver;
        this.relays = relays;
        this.relay = relays.select();
        this.tls = tls;
        this.window = window;
        this.directSinceNanos = System.nanoTime();
    }

    @Override
    public void write(int b) throws IOException {
        write(new byte[] {(byte) b}, 0, 1);
    }

    @Override
    public void write(byte[] data, int from, int length) throws IOException {
        while (length > 0) {
            int n = Math.min(length, partial.length - partialLength);
            System.arraycopy(data, from, partial, partialLength, n);
            partialLength += n;
            from += n;
            length -= n;
            if (partialLength == partial.length) {
                flush();
            }
        }
    }

    @Override
    public void flush() throws IOException {
        if (partialLength > 0) {
            send(Wire.encodeChunk(partial, partialLength));
            partialLength = 0;
        }
    }

    /** Ends the flow, and waits until the receiver has acknowledged all of it. */
    public void finish() throws IOException {
        flush();
        send(Wire.encodeChunk(partial, 0));
        awaitUnacked(0);
        close();
    }

    /** Ends the connection. Unless the flow is finished, the receiver gets no more of it. */
    @Override
    public synchronized void close() {
        isClosed = true;
        if (current != null) {
            current.fail(Reset.LOST);
        }
        notifyAll();
    }

    /** Whether the last connection went directly to the receiver. */
    public boolean isDirect() {
        return relay == null;
    }

    /** Why the flow is direct although it had a relay; null if it is not, or had no relay. */
    public Reset relayFailure() {
        return relayFailure;
    }

    private void send(byte[] chunk) throws IOException {
        awaitUnacked(Math.max(0, window - chunk.length));
        Connection connection;
        synchronized (this) {
            if (unacked.isEmpty()) {
                waitingSinceNanos = System.nanoTime();
                progressNanos = waitingSinceNanos;
            }
            unacked.add(chunk);
            end += chunk.length;
            connection = current;
        }
        if (connection == null || !connection.write(chunk)) {
            reconnect();
        }
    }

    /** Waits until at most this many bytes are unacknowledged. */
    private void awaitUnacked(long max) throws IOException {
        while (true) {
            synchronized (this) {
                while (end - acked > max && current != null && current.failure == null) {
                    try {
                        wait();
                    } catch (InterruptedException e) {
                        Thread.currentThread().interrupt();
                        throw new IOException("interrupted");
                    }
                }
                if (end - acked <= max) {
                    return;
                }
            }
            reconnect();
        }
    }

    /** Opens the next connection and sends all unacknowledged chunks over it. */
    private void reconnect() throws IOException {
        Reset failure;
        do {
            synchronized (this) {
                if (isClosed) {
                    throw new IOException("flow " + flow + " of " + coflow + " was closed");
                }
                failure = current == null ? null : current.failure;
            }
            if (failure != null) {
                prepareRetry(failure);
            }
        } while (!connect());
    }

    private void prepareRetry(Reset failure) throws IOException {
        boolean hasProgressed;
        synchronized (this) {
            hasProgressed = acked > ackedAtFailure;
            ackedAtFailure = acked;
            if (current.isEstablished && failure != Reset.CORRUPT) {
                directSinceNanos = System.nanoTime();
            }
        }
        if (failure.isFatal() || nextGeneration > FirstLine.MAX_GENERATION) {
            throw new IOException("flow " + flow + " of " + coflow + " failed: " + failure);
        }
        failures = hasProgressed ? 1 : failures + 1;
        if (relay != null) {
            prepareRelayed(failure);
        } else if (lastError instanceof SSLPeerUnverifiedException) {
            // Another connection to this receiver would have the same certificate.
            String subject = "flow " + flow + " of " + coflow;
            throw new IOException(subject + ": the sender refuses the receiver: " + lastError.getMessage(), lastError);
        } else if (System.nanoTime() - directSinceNanos > GIVE_UP_NANOS) {
            throw new IOException("flow " + flow + " of " + coflow + " has not reached its receiver for 60 s: " + failure, lastError);
        } else {
            sleep(Math.min(MAX_RETRY_MILLIS, RETRY_MILLIS << Math.min(failures - 1, 10)));
        }
    }

    /** The next connection uses the same relay, another one if this one cannot be reached, or none. */
    private void prepareRelayed(Reset failure) throws IOException {
        HostPort failed = relay;
        if (lastError != null) {
            // A host that is off does not refuse connections: each further one could take as long as this one.
            relays.onConnectFailure(failed, Wire.reason(lastError));
            relay = relays.select();
        } else if (failure.requiresDirect() || failures > RELAY_RETRIES) {
            relays.onBypass(failed, failure);
            relay = null;
        } else {
            sleep(RETRY_MILLIS);
            return;
        }
        failures = 0;
        if (relay == null) {
            relayFailure = failure;
            directSinceNanos = System.nanoTime();
        }
    }

    private static void sleep(long millis) throws IOException {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IOException("interrupted");
        }
    }

    private boolean connect() {
        Connection connection = new Connection();
        byte[][] chunks;
        long offset;
        synchronized (this) {
            if (isClosed) {
                connection.fail(Reset.LOST);
            }
            current = connection;
            chunks = unacked.toArray(new byte[0][]);
            offset = acked;
            progressNanos = System.nanoTime();
        }
        if (!connection.open(offset)) {
            return false;
        }
        for (byte[] chunk : chunks) {
            if (!connection.write(chunk)) {
                return false;
            }
        }
        return true;
    }

    private final class Connection {
        // Guarded by the sender.
        private FlowSocket socket;
        private Future<?> check;
        private Reset failure;
        /** Whether the receiver has answered. */
        private boolean isEstablished;
        private long lineNanos = System.nanoTime();

        boolean open(long offset) {
            lastError = null;
            try {
                FlowSocket opened = FlowSocket.connect(relay == null ? receiver : relay, tls, relay != null, CONNECT_MILLIS);
                if (relay != null) {
                    relays.onConnected(relay);
                }
                synchronized (FlowSender.this) {
                    socket = opened;
                    check = FlowSocket.schedule(this::checkProgress, CHECK_MILLIS);
                    if (failure != null) {
                        // The sender was closed meanwhile.
                        end();
                        return false;
                    }
                }
                FirstLine line = new FirstLine(coflow, flow, nextGeneration, offset, receiver);
                nextGeneration++;
                Wire.writeLine(opened.output(), line.toString());
            } catch (IOException e) {
                lastError = e;
                fail(Reset.LOST);
                return false;
            }
            Thread thread = new Thread(this::readLines, "weir-acks-" + flow);
            thread.setDaemon(true);
            thread.start();
            return true;
        }

        boolean write(byte[] bytes) {
            try {
                socket.output().write(bytes);
                return true;
            } catch (IOException e) {
                awaitReason();
                fail(Reset.LOST);
                return false;
            }
        }

        /** The peer may have sent a reason before it closed: gives the reading thread time to find it. */
        private void awaitReason() {
            synchronized (FlowSender.this) {
                long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(RETRY_MILLIS);
                long left;
                while (failure == null && (left = (deadline - System.nanoTime()) / 1_000_000) > 0) {
                    try {
                        FlowSender.this.wait(left);
                    } catch (InterruptedException e) {
                        Thread.currentThread().interrupt();
                        return;
                    }
                }
            }
        }

        void fail(Reset reason) {
            synchronized (FlowSender.this) {
                if (failure == null) {
                    failure = reason;
                }
                end();
                FlowSender.this.notifyAll();
            }
        }

        private void end() {
            if (socket != null) {
                check.cancel(false);
                socket.close();
            }
        }

        private void checkProgress() {
            if (isStalled()) {
                fail(Reset.LOST);
            }
        }

        private void readLines() {
            Reset reason = Reset.LOST;
            try {
                InputStream in = new BufferedInputStream(socket.input(), Wire.MAX_LINE);
                StringBuilder line = new StringBuilder();
                for (int next; (next = in.read()) >= 0; ) {
                    if (next != '\n') {
                        line.append((char) next);
                        if (line.length() == Wire.MAX_LINE) {
                            reason = Reset.INVALID;
                            break;
                        }
                        continue;
                    }
                    if (line.indexOf("reset ") == 0) {
                        reason = Reset.parse(line.substring("reset ".length()));
                        break;
                    }
                    if (line.indexOf("ack ") != 0 || !acknowledge(line.substring("ack ".length()))) {
                        reason = Reset.INVALID;
                        break;
                    }
                    line.setLength(0);
                }
            } catch (IOException e) {
                // The connection is lost.
            } finally {
                fail(reason);
            }
        }

        private boolean isStalled() {
            synchronized (FlowSender.this) {
                long now = System.nanoTime();
                long silence = Math.min(now - lineNanos, now - waitingSinceNanos);
                return end > acked && (silence > SILENCE_NANOS || now - progressNanos > STALL_NANOS);
            }
        }

        /** Drops acknowledged chunks. Returns whether the acknowledged bytes were sent; a relay may acknowledge a part of a chunk. */
        private boolean acknowledge(String text) {
            long offset;
            try {
                offset = FirstLine.parseNumber("ack", text, FirstLine.MAX_OFFSET);
            } catch (IllegalArgumentException e) {
                return false;
            }
            synchronized (FlowSender.this) {
                isEstablished = true;
                lineNanos = System.nanoTime();
                // An earlier connection must not remove chunks that the current one is about to send.
                while (current == this && !unacked.isEmpty() && acked + unacked.peek().length <= offset) {
                    acked += unacked.remove().length;
                    progressNanos = System.nanoTime();
                }
                FlowSender.this.notifyAll();
                return current != this || offset <= end;
            }
        }
    }
}
