package io.weir.flow;

import java.net.InetSocketAddress;
import java.util.Objects;

/** A host, by name or address, and a TCP port. */
public final class HostPort {
    public final String host;
    public final int port;

    public HostPort(String host, int port) {
        if (!host.matches("[!-~]+") || port < 1 || port > 65535) {
            throw new IllegalArgumentException("address: " + host + ":" + port + "; expected HOST:PORT");
        }
        this.host = host;
        this.port = port;
    }

    /** Parses {@code 10.0.0.3:7000}, {@code [fd00::3]:7000} or {@code relay.example:7000}. */
    public static HostPort parse(String text) {
        int colon = text.lastIndexOf(':');
        if (colon > 0) {
            String host = text.substring(0, colon);
            boolean isBracketed = host.startsWith("[") && host.endsWith("]");
            if (isBracketed) {
                host = host.substring(1, host.length() - 1);
            }
            if (isBracketed == host.contains(":") && text.substring(colon + 1).matches("[0-9]{1,5}")) {
                return new HostPort(host, Integer.parseInt(text.substring(colon + 1)));
            }
        }
        throw new IllegalArgumentException("address: " + text + "; expected HOST:PORT");
    }

    /** Whether the host is an address, so that no name has to be resolved. */
    public boolean isAddress() {
        return host.matches("[0-9]+(\\.[0-9]+){3}|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*");
    }

    /** The address to connect to. Resolves a name. */
    public InetSocketAddress resolve() {
        return new InetSocketAddress(host, port);
    }

    @Override
    public String toString() {
        return (host.contains(":") ? "[" + host + "]" : host) + ":" + port;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof HostPort && host.equals(((HostPort) other).host) && port == ((HostPort) other).port;
    }

    @Override
    public int hashCode() {
        return Objects.hash(host, port);
    }
}
