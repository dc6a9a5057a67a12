package io.weir.flow;

import java.io.IOException;
import java.io.InputStream;
import java.net.SocketTimeoutException;

/** Finds out whether a relay can be reached, and speaks this protocol. */
public final class RelayProbe {
    /** No coflow has this name, so a relay answers {@code reset unknown-coflow}. */
    private static final String COFLOW = "weir-probe";
    private static final int MILLIS = 5_000;
    /** The first byte of a TLS record: an alert. */
    private static final int TLS_ALERT = 0x15;

    private RelayProbe() {}

    /** Returns what prevents flows over a relay; null if nothing does. Waits for up to 15 s. */
    public static String findProblem(HostPort relay, HostPort receiver, FlowTls tls) {
        try (FlowSocket socket = FlowSocket.connect(relay, tls, true, MILLIS)) {
            socket.setReadTimeout(MILLIS);
            Wire.writeLine(socket.output(), new FirstLine(COFLOW, 0, 0, 0, receiver).toString());
            return findProblem(socket.input(), tls != null);
        } catch (SocketTimeoutException e) {
            return "no answer within " + MILLIS / 1000 + " s";
        } catch (RuntimeException e) {
            // A security provider may have other classes than expected.
            return "the probe failed: " + e;
        } catch (IOException e) {
            String message = Wire.reason(e);
            boolean isPortOfRelays = message.endsWith("no_application_protocol");
            return isPortOfRelays ? "the port is that for other relays; help: use that of --programs" : message;
        }
    }

    private static String findProblem(InputStream in, boolean hasFiles) throws IOException {
        int first = in.read();
        if (first == TLS_ALERT) {
            String help = hasFiles ? "WEIR_TLS_LOCAL=1, which applies inside this host" : "WEIR_CERTIFICATE, WEIR_KEY and WEIR_AUTHORITY";
            return "the relay expects TLS; help: set " + help;
        }
        if (first < 0) {
            return "the relay closed the connection without an answer; help: use its address for programs (--programs), and TLS if it does";
        }
        String line = (char) first + Wire.readLine(in);
        if (line.equals("reset " + Reset.INVALID)) {
            return "the relay has another version of the flow protocol than " + FirstLine.PROTOCOL;
        }
        return line.startsWith("reset ") || line.startsWith("ack ") ? null : "the program at this address is no relay";
    }
}
