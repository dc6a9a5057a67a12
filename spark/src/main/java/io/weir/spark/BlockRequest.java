package io.weir.spark;

import io.weir.flow.HostPort;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.ProtocolException;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Asks the executor that has blocks to send them as one flow. Authenticated by a secret of the application. */
final class BlockRequest {
    static final String PROTOCOL = "weir-fetch/1";
    static final int KEY_LENGTH = 16;
    private static final int MAX_LENGTH = 16 << 20;
    private static final String MAC = "HmacSHA256";
    private static final int MAC_LENGTH = 32;

    /** The executor that has the blocks: another one may have inherited its port. */
    final String executor;
    final String coflow;
    final long flow;
    final HostPort receiver;
    /** Random bytes with which the flow begins, so that no other program can send it. */
    final byte[] key;
    final String[] blocks;

    BlockRequest(String executor, String coflow, long flow, HostPort receiver, byte[] key, String[] blocks) {
        this.executor = executor;
        this.coflow = coflow;
        this.flow = flow;
        this.receiver = receiver;
        this.key = key;
        this.blocks = blocks;
    }

    void write(OutputStream out, byte[] secret) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream body = new DataOutputStream(bytes);
        body.writeUTF(executor);
        body.writeUTF(coflow);
        body.writeLong(flow);
        body.writeUTF(receiver.toString());
        body.write(key);
        body.writeInt(blocks.length);
        for (String block : blocks) {
            body.writeUTF(block);
        }
        if (bytes.size() > MAX_LENGTH) {
            throw new ProtocolException(blocks.length + " blocks are too many for one request");
        }
        ByteArrayOutputStream request = new ByteArrayOutputStream();
        DataOutputStream message = new DataOutputStream(request);
        message.write((PROTOCOL + "\n").getBytes(StandardCharsets.US_ASCII));
        message.writeInt(bytes.size());
        bytes.writeTo(message);
        message.write(mac(secret, bytes.toByteArray()));
        request.writeTo(out);
        out.flush();
    }

    /** Reads what follows the first line. */
    static BlockRequest read(InputStream in, byte[] secret) throws IOException {
        DataInputStream message = new DataInputStream(in);
        int length = message.readInt();
        if (length < 0 || length > MAX_LENGTH) {
            throw new ProtocolException("length of the request: " + length + "; expected at most " + MAX_LENGTH);
        }
        byte[] bytes = readGrowing(message, length);
        byte[] mac = new byte[MAC_LENGTH];
        message.readFully(mac);
        if (!MessageDigest.isEqual(mac, mac(secret, bytes))) {
            throw new ProtocolException("the request is not authentic");
        }
        DataInputStream body = new DataInputStream(new ByteArrayInputStream(bytes));
        String executor = body.readUTF();
        String coflow = body.readUTF();
        long flow = body.readLong();
        HostPort receiver = HostPort.parse(body.readUTF());
        byte[] key = new byte[KEY_LENGTH];
        body.readFully(key);
        String[] blocks = new String[body.readInt()];
        for (int at = 0; at < blocks.length; at++) {
            blocks[at] = body.readUTF();
        }
        return new BlockRequest(executor, coflow, flow, receiver, key, blocks);
    }

    /** Allocates memory only for what arrives: the length is not authenticated yet. */
    private static byte[] readGrowing(InputStream in, int length) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        byte[] buffer = new byte[8192];
        while (bytes.size() < length) {
            int n = in.read(buffer, 0, Math.min(buffer.length, length - bytes.size()));
            if (n < 0) {
                throw new EOFException("the request is incomplete");
            }
            bytes.write(buffer, 0, n);
        }
        return bytes.toByteArray();
    }

    private static byte[] mac(byte[] secret, byte[] body) throws IOException {
        try {
            Mac mac = Mac.getInstance(MAC);
            mac.init(new SecretKeySpec(secret, MAC));
            return mac.doFinal(body);
        } catch (GeneralSecurityException e) {
            throw new IOException(e);
        }
    }
}
