package io.weir.spark;

import io.weir.flow.FlowReceiver;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.ProtocolException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.zip.CRC32;

/**
 * Blocks in a flow: the key of the request, then for each block its index in the request (4 bytes), its length (8), its data, and a
 * CRC-32 of its id and data (4), all big-endian.
 */
final class BlockFrames {
    private static final int HEADER = 12;
    private static final int TRAILER = 4;

    private BlockFrames() {}

    static void write(OutputStream out, int index, String id, long length, InputStream data) throws IOException {
        DataOutputStream frame = new DataOutputStream(out);
        frame.writeInt(index);
        frame.writeLong(length);
        CRC32 crc = startCrc(id);
        byte[] buffer = new byte[64 * 1024];
        for (long left = length; left > 0; ) {
            int n = data.read(buffer, 0, (int) Math.min(buffer.length, left));
            if (n < 0) {
                throw new EOFException("block " + id + " has " + (length - left) + " bytes; expected " + length);
            }
            crc.update(buffer, 0, n);
            frame.write(buffer, 0, n);
            left -= n;
        }
        frame.writeInt((int) crc.getValue());
    }

    private static CRC32 startCrc(String id) {
        CRC32 crc = new CRC32();
        crc.update(id.getBytes(StandardCharsets.UTF_8));
        return crc;
    }

    /** Where the data of a block goes. */
    interface Target {
        void write(byte[] data, int from, int length) throws IOException;

        /** Called when the block is complete and its checksum is correct. */
        void complete() throws IOException;

        /** Called when the block will not be completed. */
        void discard();
    }

    /** Opens the target of a block. */
    interface Targets {
        Target open(int index, long length) throws IOException;
    }

    /** Reads blocks from a flow. */
    static final class Reader implements FlowReceiver.Sink {
        private final byte[] key;
        private final String[] ids;
        private final Targets targets;
        private volatile long progressNanos = System.nanoTime();

        // The field that is being read, as far as it has arrived.
        private ByteBuffer field;
        private boolean hasKey;
        private int index;
        private long left;
        private CRC32 crc;
        private Target target;
        private boolean isDiscarded;

        Reader(byte[] key, String[] ids, Targets targets) {
            this.key = key;
            this.ids = ids;
            this.targets = targets;
            this.field = ByteBuffer.allocate(key.length);
        }

        /** When the last data arrived. */
        long progressNanos() {
            return progressNanos;
        }

        /** Discards a block that has begun. No further block begins. */
        synchronized void discard() {
            isDiscarded = true;
            if (target != null) {
                target.discard();
                target = null;
            }
        }

        @Override
        public synchronized void receive(byte[] data, int length) throws IOException {
            progressNanos = System.nanoTime();
            for (int at = 0; at < length; ) {
                if (isDiscarded) {
                    throw new ProtocolException("the request has ended");
                }
                boolean isData = target != null && left > 0;
                int n = (int) Math.min(length - at, isData ? left : field.remaining());
                if (isData) {
                    crc.update(data, at, n);
                    target.write(data, at, n);
                    left -= n;
                } else {
                    field.put(data, at, n);
                    if (!field.hasRemaining()) {
                        field.flip();
                        readField();
                    }
                }
                at += n;
            }
        }

        private void readField() throws IOException {
            if (!hasKey) {
                if (!MessageDigest.isEqual(field.array(), key)) {
                    throw new ProtocolException("the flow has another key");
                }
                hasKey = true;
                field = ByteBuffer.allocate(HEADER);
            } else if (target == null) {
                index = field.getInt();
                left = field.getLong();
                if (index < 0 || index >= ids.length || left < 0) {
                    throw new ProtocolException("the header of a block is malformed");
                }
                crc = startCrc(ids[index]);
                target = targets.open(index, left);
                field = ByteBuffer.allocate(TRAILER);
            } else {
                if (field.getInt() != (int) crc.getValue()) {
                    throw new ProtocolException("block " + ids[index] + " has a wrong checksum");
                }
                target.complete();
                target = null;
                field = ByteBuffer.allocate(HEADER);
            }
        }

        @Override
        public void end() throws IOException {
            if (!hasKey || target != null || field.position() > 0) {
                throw new EOFException("the flow ended within a block");
            }
        }
    }
}
