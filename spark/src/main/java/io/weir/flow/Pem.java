package io.weir.flow;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.PrivateKey;
import java.security.PublicKey;
import java.security.Signature;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Reads certificates and keys in PEM, as OpenSSL writes them. */
final class Pem {
    private static final Pattern KEY = Pattern.compile("-----BEGIN PRIVATE KEY-----([A-Za-z0-9+/=\\s]+)-----END PRIVATE KEY-----");
    private static final Pattern OTHER_KEY = Pattern.compile("-----BEGIN ([A-Z]+ PRIVATE KEY)-----");

    private Pem() {}

    /** The certificates of a file, at least one. */
    static List<X509Certificate> certificates(Path file) throws IOException {
        List<X509Certificate> list = new ArrayList<>();
        try {
            for (Certificate one : CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(read(file)))) {
                list.add((X509Certificate) one);
            }
        } catch (CertificateException e) {
            throw new IOException(file + ": cannot be used; expected certificates in PEM (" + e.getMessage() + ")", e);
        }
        if (list.isEmpty()) {
            throw new IOException(file + ": has no certificate; expected certificates in PEM");
        }
        return list;
    }

    /** The key of a file, which has to belong to a certificate with this public key. */
    static PrivateKey privateKey(Path file, PublicKey certified) throws IOException {
        String text = new String(read(file), StandardCharsets.ISO_8859_1);
        Matcher key = KEY.matcher(text);
        if (!key.find()) {
            Matcher other = OTHER_KEY.matcher(text);
            String found = other.find() ? "has `" + other.group(1) + "`" : "has no private key";
            throw new IOException(file + ": " + found + "; expected `PRIVATE KEY` in PEM; help: openssl pkcs8 -topk8 -nodes -in " + file);
        }
        PrivateKey decoded;
        try {
            byte[] bytes = Base64.getMimeDecoder().decode(key.group(1));
            decoded = KeyFactory.getInstance(certified.getAlgorithm()).generatePrivate(new PKCS8EncodedKeySpec(bytes));
            if (belongTogether(decoded, certified)) {
                return decoded;
            }
        } catch (GeneralSecurityException | IllegalArgumentException e) {
            throw new IOException(file + ": cannot be used; expected a key of the certificate's kind, " + certified.getAlgorithm(), e);
        }
        throw new IOException(file + ": does not belong to the certificate");
    }

    private static boolean belongTogether(PrivateKey key, PublicKey certified) throws GeneralSecurityException {
        String kind = certified.getAlgorithm();
        Signature signature = Signature.getInstance(kind.equals("EC") ? "SHA256withECDSA" : kind.equals("RSA") ? "SHA256withRSA" : kind);
        byte[] text = "weir".getBytes(StandardCharsets.US_ASCII);
        signature.initSign(key);
        signature.update(text);
        byte[] signed = signature.sign();
        signature.initVerify(certified);
        signature.update(text);
        return signature.verify(signed);
    }

    private static byte[] read(Path file) throws IOException {
        try {
            return Files.readAllBytes(file);
        } catch (IOException e) {
            throw new IOException(file + ": cannot be read: " + e, e);
        }
    }
}
