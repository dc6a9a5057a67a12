package io.weir.flow;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.ProtocolException;
import java.net.Socket;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.zip.CRC32;

/** Lines and chunks on connections of flows. */
public final class Wire {
    static final int MAX_LINE = 256;
    static final int CHUNK_HEADER = 8;
    static final int MAX_CHUNK = 65536;

    private Wire() {}

    /** Reads a line without its end; null at the end of the stream. */
    public static String readLine(InputStream in) throws IOException {
        StringBuilder line = new StringBuilder();
        int next;
        while ((next = in.read()) != '\n') {
            if (next < 0) {
                if (line.length() == 0) {
                    return null;
                }
                throw new EOFException("the connection closed within a line");
            }
            if (line.length() == MAX_LINE - 1) {
                throw new ProtocolException("a line has more than " + MAX_LINE + " bytes");
            }
            line.append((char) next);
        }
        return line.toString();
    }

    public static void writeLine(OutputStream out, String line) throws IOException {
        out.write((line + "\n").getBytes(StandardCharsets.ISO_8859_1));
        out.flush();
    }

    /** Encodes a chunk. Without data it is the end of a flow. */
    static byte[] encodeChunk(byte[] data, int length) {
        return ByteBuffer.allocate(CHUNK_HEADER + length).putInt(length).putInt((int) crc(data, length)).put(data, 0, length).array();
    }

    static long crc(byte[] data, int length) {
        CRC32 crc = new CRC32();
        crc.update(data, 0, length);
        return crc.getValue();
    }

    /** An error in words. Some of the JDK's have only a part of them. */
    public static String reason(Throwable e) {
        if (e instanceof UnknownHostException) {
            return "unknown host " + e.getMessage();
        }
        return e.getMessage() == null ? e.toString() : e.getMessage();
    }

    /** Closes a connection whose state no longer matters. */
    public static void close(Socket socket) {
        try {
            socket.close();
        } catch (IOException e) {
            // The connection ends in either case.
        }
    }
}
