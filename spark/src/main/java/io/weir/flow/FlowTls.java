package io.weir.flow;

import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.CertificateException;
import java.security.cert.CertificateExpiredException;
import java.security.cert.CertificateNotYetValidException;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLPeerUnverifiedException;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509TrustManager;

/**
 * TLS 1.3 with certificates at both ends. Names {@code weir://ROLE/NAME} in certificates decide: docs/security.md. The program's
 * certificate has the name {@code weir://framework/SERVICE}.
 */
public final class FlowTls {
    private static final String SCHEME = "weir://";
    private static final String RELAY = "weir://relay/";
    private static final String PROTOCOL = "weir-flow";
    private static final int URI = 6;

    private final boolean isLocalIncluded;
    private final KeyManager[] keys;
    private final TrustManager[] authorities;
    private final X509TrustManager verifier;
    private final String name;
    private final X509Certificate[] chain;
    private final SSLSocketFactory coordinator;

    /** A connection after its handshake. */
    static final class Session {
        final SSLSocket socket;
        final long secondsToExpiry;

        Session(SSLSocket socket, long secondsToExpiry) {
            this.socket = socket;
            this.secondsToExpiry = secondsToExpiry;
        }
    }

    /**
     * Reads files in PEM: the program's certificate with its key, and the authority of relays, programs and the coordinator.
     *
     * @param isLocalIncluded whether TLS applies inside a host, too
     * @throws IOException if a file cannot be used; the message names the file
     */
    public FlowTls(Path certificate, Path key, Path authority, boolean isLocalIncluded) throws IOException {
        this.isLocalIncluded = isLocalIncluded;
        chain = Pem.certificates(certificate).toArray(new X509Certificate[0]);
        PrivateKey privateKey = Pem.privateKey(key, chain[0].getPublicKey());
        Collection<X509Certificate> trusted = Pem.certificates(authority);
        try {
            KeyStore own = emptyStore();
            own.setKeyEntry("program", privateKey, new char[0], chain);
            KeyManagerFactory keyFactory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
            keyFactory.init(own, new char[0]);
            keys = keyFactory.getKeyManagers();
            KeyStore others = emptyStore();
            for (X509Certificate one : trusted) {
                others.setCertificateEntry("authority " + others.size(), one);
            }
            TrustManagerFactory trustFactory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trustFactory.init(others);
            authorities = trustFactory.getTrustManagers();
            verifier = (X509TrustManager) authorities[0];
            coordinator = newContext().getSocketFactory();
        } catch (GeneralSecurityException e) {
            throw new IOException(certificate + " with key " + key + ": cannot be used: " + e.getMessage(), e);
        }
        name = checkOwn(certificate, authority);
    }

    private static KeyStore emptyStore() throws GeneralSecurityException, IOException {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        return store;
    }

    /** Checks the own certificate as other ends do. Returns its name. */
    private String checkOwn(Path certificate, Path authority) throws IOException {
        try {
            chain[0].checkValidity();
            verifier.checkClientTrusted(chain, chain[0].getPublicKey().getAlgorithm());
            return name(chain[0]);
        } catch (CertificateExpiredException e) {
            throw new IOException(certificate + ": has expired at " + chain[0].getNotAfter().toInstant(), e);
        } catch (CertificateNotYetValidException e) {
            throw new IOException(certificate + ": is not valid before " + chain[0].getNotBefore().toInstant(), e);
        } catch (SSLException e) {
            throw new IOException(certificate + ": " + e.getMessage(), e);
        } catch (CertificateException e) {
            throw new IOException(certificate + ": was not signed by an authority in " + authority + ": " + e.getMessage(), e);
        }
    }

    /** The name in the own certificate. */
    public String name() {
        return name;
    }

    /** Connections to the coordinator, whose certificate has its host name or address. */
    public SSLSocketFactory coordinator() {
        return coordinator;
    }

    /** Whether a connection uses TLS. Equal addresses are those of one host. Both ends get the same result. */
    boolean appliesTo(Socket socket) {
        InetAddress local = socket.getLocalAddress();
        InetAddress remote = socket.getInetAddress();
        return isLocalIncluded || !(local.isLoopbackAddress() || remote.isLoopbackAddress() || local.equals(remote));
    }

    /** Connects to a relay, or to a program of the same service. */
    Session connect(Socket tcp, boolean isRelay) throws IOException {
        return handshake(tcp, true, isRelay ? RELAY : name, isRelay ? RELAY + "NAME" : name);
    }

    /** Accepts relays, and programs of the same service. */
    Session accept(Socket tcp) throws IOException {
        return handshake(tcp, false, name, RELAY + "NAME or " + name);
    }

    /** The other end must have the name, or be a relay if that is the name or this end is the server. */
    private Session handshake(Socket tcp, boolean isClient, String required, String expected) throws IOException {
        SSLSocket socket = handshake(tcp, isClient);
        X509Certificate[] peer = (X509Certificate[]) socket.getSession().getPeerCertificates();
        String found = name(peer[0]);
        boolean mayBeRelay = !isClient || required.equals(RELAY);
        if (!(found.equals(required) || mayBeRelay && found.startsWith(RELAY))) {
            throw new SSLPeerUnverifiedException("the certificate has the name " + found + "; expected " + expected);
        }
        return new Session(socket, secondsToExpiry(peer));
    }

    /** A context for one connection: no session can be resumed, so every connection verifies certificates. */
    private SSLContext newContext() throws GeneralSecurityException {
        SSLContext context = SSLContext.getInstance("TLSv1.3");
        context.init(keys, authorities, null);
        return context;
    }

    private SSLSocket handshake(Socket tcp, boolean isClient) throws IOException {
        try {
            SSLSocketFactory factory = newContext().getSocketFactory();
            SSLSocket socket = (SSLSocket) factory.createSocket(tcp, tcp.getInetAddress().getHostAddress(), tcp.getPort(), true);
            socket.setUseClientMode(isClient);
            socket.setEnabledProtocols(new String[] {"TLSv1.3"});
            socket.setNeedClientAuth(!isClient);
            SSLParameters parameters = socket.getSSLParameters();
            setProtocol(parameters);
            socket.setSSLParameters(parameters);
            socket.startHandshake();
            return socket;
        } catch (GeneralSecurityException e) {
            throw new IOException("this JVM has no TLS 1.3: " + e.getMessage(), e);
        } catch (SSLException e) {
            if (String.valueOf(e.getMessage()).contains("Unsupported or unrecognized SSL message")) {
                throw new SSLException("the other end uses plain text; expected TLS", e);
            }
            if (e.getCause() instanceof CertificateException) {
                SSLPeerUnverifiedException refused = new SSLPeerUnverifiedException("the certificate is refused: " + e.getMessage());
                refused.initCause(e);
                throw refused;
            }
            throw e;
        }
    }

    /** Names the protocol (ALPN). Java 8 has the method in its later updates only; without the name, relays accept the connection, too. */
    private static void setProtocol(SSLParameters parameters) {
        try {
            SSLParameters.class.getMethod("setApplicationProtocols", String[].class)
                    .invoke(parameters, (Object) new String[] {PROTOCOL});
        } catch (ReflectiveOperationException e) {
            // An early Java 8.
        }
    }

    private static String name(X509Certificate certificate) throws SSLPeerUnverifiedException {
        List<String> names = new ArrayList<>();
        try {
            Collection<List<?>> alternatives = certificate.getSubjectAlternativeNames();
            if (alternatives != null) {
                for (List<?> alternative : alternatives) {
                    if (alternative.get(0).equals(URI) && alternative.get(1).toString().startsWith(SCHEME)) {
                        names.add(alternative.get(1).toString());
                    }
                }
            }
        } catch (CertificateException e) {
            // Names that cannot be read are none.
        }
        if (names.size() != 1) {
            throw new SSLPeerUnverifiedException("the certificate has " + names.size() + " names " + SCHEME + "ROLE/NAME; expected one");
        }
        return names.get(0);
    }

    private long secondsToExpiry(X509Certificate[] peer) {
        long expiry = Long.MAX_VALUE;
        for (X509Certificate[] end : new X509Certificate[][] {chain, peer}) {
            for (X509Certificate certificate : end) {
                expiry = Math.min(expiry, certificate.getNotAfter().getTime());
            }
        }
        return Math.max(0, TimeUnit.MILLISECONDS.toSeconds(expiry - System.currentTimeMillis()) + 1);
    }
}
