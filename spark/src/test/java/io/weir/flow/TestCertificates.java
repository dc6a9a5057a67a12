package io.weir.flow;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** Certificates for tests, made by OpenSSL as docs/security.md says. */
public final class TestCertificates {
    private final Path directory;

    /** Makes an authority, with the files authority.pem and authority.key. */
    public TestCertificates(Path directory) throws IOException {
        this.directory = directory;
        run("ec", "-subj", "/CN=weir", "-days", "1", "-keyout", "authority.key", "-out", "authority.pem");
    }

    public static boolean areAvailable() {
        try {
            return new ProcessBuilder("openssl", "version").redirectErrorStream(true).start().waitFor(10, TimeUnit.SECONDS);
        } catch (IOException | InterruptedException e) {
            return false;
        }
    }

    /** Makes the files FILE.pem and FILE.key. */
    public TestCertificates add(String file, String name) throws IOException {
        return add(file, name, "ec");
    }

    /** `kind`: that of the key. */
    TestCertificates add(String file, String name, String kind) throws IOException {
        run(kind, "-subj", "/CN=" + file, "-addext", "subjectAltName=URI:" + name, "-addext", "basicConstraints=critical,CA:FALSE",
                "-CA", "authority.pem", "-CAkey", "authority.key", "-days", "1", "-keyout", file + ".key", "-out", file + ".pem");
        return this;
    }

    private void run(String kind, String... arguments) throws IOException {
        List<String> command = new ArrayList<>(Arrays.asList("openssl", "req", "-x509", "-nodes", "-newkey", kind));
        if (kind.equals("ec")) {
            command.addAll(Arrays.asList("-pkeyopt", "ec_paramgen_curve:P-256"));
        }
        command.addAll(Arrays.asList(arguments));
        Process process = new ProcessBuilder(command).directory(directory.toFile()).redirectErrorStream(true)
                .redirectOutput(directory.resolve("openssl.log").toFile()).start();
        try {
            if (process.waitFor() != 0) {
                throw new IOException("openssl failed: see " + directory.resolve("openssl.log"));
            }
        } catch (InterruptedException e) {
            throw new IOException(e);
        }
    }

    public Path file(String name) {
        return directory.resolve(name);
    }

    /** TLS with a certificate, also inside this host. */
    public FlowTls tls(String file) throws IOException {
        return new FlowTls(file(file + ".pem"), file(file + ".key"), file("authority.pem"), true);
    }
}
