package io.weir.flow;

import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.net.SocketAddress;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * A connection with a relay or another executor: plain text or TLS. One thread may read while others write.
 *
 * Closing one never waits: a TLS socket of the JDK would wait for a thread that writes, so the TCP connection below it is closed.
 */
public final class FlowSocket implements Closeable {
    /** Checks of connections. Tasks must not wait. */
    private static final ScheduledThreadPoolExecutor TIMER = newTimer();

    private final Socket tcp;
    /** The same socket, or TLS over it. */
    private final Socket stream;
    private final Future<?> end;

    /** `secondsToExpiry`: when a certificate of the two ends expires. */
    private FlowSocket(Socket tcp, Socket stream, long secondsToExpiry) {
        this.tcp = tcp;
        this.stream = stream;
        this.end = stream == tcp ? null : TIMER.schedule(() -> Wire.close(tcp), secondsToExpiry, TimeUnit.SECONDS);
    }

    private static ScheduledThreadPoolExecutor newTimer() {
        ScheduledThreadPoolExecutor timer = new ScheduledThreadPoolExecutor(1, task -> {
            Thread thread = new Thread(task, "weir-timer");
            thread.setDaemon(true);
            return thread;
        });
        timer.setRemoveOnCancelPolicy(true);
        return timer;
    }

    /**
     * Connects to a relay, or to another executor. Without `tls`, and by default inside a host, in plain text.
     *
     * @param millis the maximum time for the connection, and for each step of the handshake
     * @throws javax.net.ssl.SSLPeerUnverifiedException if this end refuses the certificate of the other end
     */
    public static FlowSocket connect(HostPort to, FlowTls tls, boolean isRelay, int millis) throws IOException {
        Socket tcp = new Socket();
        try {
            tcp.setTcpNoDelay(true);
            tcp.connect(to.resolve(), millis);
            if (tls == null || !tls.appliesTo(tcp)) {
                return new FlowSocket(tcp, tcp, 0);
            }
            tcp.setSoTimeout(millis);
            FlowTls.Session session = tls.connect(tcp, isRelay);
            tcp.setSoTimeout(0);
            return new FlowSocket(tcp, session.socket, session.secondsToExpiry);
        } catch (IOException | RuntimeException e) {
            Wire.close(tcp);
            throw e;
        }
    }

    /** Takes an accepted connection. `millis`: the maximum time for each step of the handshake, and for each read that follows. */
    public static FlowSocket accept(Socket tcp, FlowTls tls, int millis) throws IOException {
        try {
            tcp.setTcpNoDelay(true);
            tcp.setSoTimeout(millis);
            if (tls == null || !tls.appliesTo(tcp)) {
                return new FlowSocket(tcp, tcp, 0);
            }
            FlowTls.Session session = tls.accept(tcp);
            return new FlowSocket(tcp, session.socket, session.secondsToExpiry);
        } catch (IOException | RuntimeException e) {
            Wire.close(tcp);
            throw e;
        }
    }

    /** Repeats a check of a connection until the future is cancelled. */
    public static Future<?> schedule(Runnable check, long millis) {
        return TIMER.scheduleWithFixedDelay(check, millis, millis, TimeUnit.MILLISECONDS);
    }

    public InputStream input() throws IOException {
        return stream.getInputStream();
    }

    public OutputStream output() throws IOException {
        return stream.getOutputStream();
    }

    /** Limits the wait of each read; 0: no limit. Bytes of a TLS record may be lost at a timeout, so the connection cannot continue. */
    public void setReadTimeout(int millis) throws IOException {
        tcp.setSoTimeout(millis);
    }

    /** Ends the data to the other end. */
    public void shutdownOutput() throws IOException {
        stream.shutdownOutput();
    }

    /** Whether this end has closed the connection. */
    public boolean isClosed() {
        return tcp.isClosed();
    }

    public SocketAddress remoteAddress() {
        return tcp.getRemoteSocketAddress();
    }

    /** Closes the connection unless the other end does so earlier. */
    void closeAfter(long millis) {
        TIMER.schedule(this::close, millis, TimeUnit.MILLISECONDS);
    }

    @Override
    public void close() {
        if (end != null) {
            end.cancel(false);
        }
        Wire.close(tcp);
    }
}
