package io.weir.spark;

import io.weir.flow.FlowReceiver;
import io.weir.flow.FlowSocket;
import java.io.EOFException;
import java.io.IOException;
import java.net.ProtocolException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.buffer.NioManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.network.shuffle.DownloadFile;
import org.apache.spark.network.shuffle.DownloadFileManager;
import org.apache.spark.network.shuffle.DownloadFileWritableChannel;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Fetches blocks of one executor as one flow. Blocks that do not arrive are fetched by Spark's own client, so each block is reported
 * exactly once, and only Spark reports failures.
 */
final class BlockFetch implements Runnable {
    private static final Logger LOG = LoggerFactory.getLogger(BlockFetch.class);
    private static final int CONNECT_MILLIS = 5_000;
    private static final int CHECK_MILLIS = 500;

    /** Fetches blocks in the way of unmodified Spark. */
    interface Fallback {
        void fetch(String[] blocks);
    }

    private final WeirExecutor weir;
    private final Peers.Peer peer;
    private final BlockRequest request;
    private final BlockFetchingListener listener;
    private final DownloadFileManager files;
    private final Fallback fallback;
    private final TaskState task;
    private final BlockFrames.Reader reader;
    /** Blocks that have not been reported; null: reported. */
    private final String[] pending;
    /** Why this end gave up the flow; null if it did not. */
    private volatile String abandonment;

    /** Whether the task still needs the blocks. */
    interface TaskState {
        boolean isCompleted();
    }

    BlockFetch(WeirExecutor weir, Peers.Peer peer, BlockRequest request, BlockFetchingListener listener, DownloadFileManager files,
            Fallback fallback, TaskState task) {
        this.weir = weir;
        this.peer = peer;
        this.request = request;
        this.listener = listener;
        this.files = files;
        this.fallback = fallback;
        this.task = task;
        this.reader = new BlockFrames.Reader(request.key, request.blocks, this::open);
        this.pending = request.blocks.clone();
    }

    @Override
    public void run() {
        try {
            transfer();
        } catch (Throwable e) {
            if (!task.isCompleted()) {
                // Of the concurrent flows of an executor that has exited, the first one says so.
                String text = "a flow of {} from executor {} failed, Spark fetches the rest: {}";
                if (weir.peers().pause(request.executor, weir.timeoutNanos())) {
                    LOG.warn(text, request.coflow, request.executor, e.toString());
                } else {
                    LOG.debug(text, request.coflow, request.executor, e.toString());
                }
            }
        }
        weir.release(request);
        reader.discard();
        String[] rest = takePending();
        if (rest.length > 0 && !task.isCompleted()) {
            weir.counters().countFallback(Settings.shuffle(request.coflow), Counters.Fallback.FLOW_FAILED, rest.length);
            fetchRest(rest);
        }
    }

    private void transfer() throws IOException {
        FlowReceiver receiver = weir.receiver();
        receiver.expect(request.coflow, request.flow, reader);
        int connectMillis = (int) Math.min(TimeUnit.NANOSECONDS.toMillis(weir.timeoutNanos()), CONNECT_MILLIS);
        try (FlowSocket control = weir.peers().connect(request.executor, peer, weir.tls(), connectMillis)) {
            request.write(control.output(), weir.secret());
            if (awaitAnswer(control) != BlockServer.SENT) {
                throw new EOFException("the executor did not send all blocks");
            }
        } finally {
            receiver.remove(request.coflow, request.flow);
        }
    }

    private int awaitAnswer(FlowSocket control) throws IOException {
        Future<?> check = FlowSocket.schedule(() -> abandonIfNeeded(control), CHECK_MILLIS);
        try {
            return control.input().read();
        } catch (IOException e) {
            throw abandonment == null ? e : new IOException(abandonment);
        } finally {
            check.cancel(false);
        }
    }

    private void abandonIfNeeded(FlowSocket control) {
        if (task.isCompleted()) {
            abandonment = "the task has completed";
        } else if (System.nanoTime() - reader.progressNanos() > weir.timeoutNanos()) {
            abandonment = "no data arrived for " + TimeUnit.NANOSECONDS.toMillis(weir.timeoutNanos()) + " ms";
        }
        if (abandonment != null) {
            control.close();
        }
    }

    private void fetchRest(String[] rest) {
        try {
            fallback.fetch(rest);
        } catch (Throwable e) {
            for (String block : rest) {
                listener.onBlockFetchFailure(block, e);
            }
        }
    }

    private synchronized String[] takePending() {
        List<String> rest = new ArrayList<>();
        for (int index = 0; index < pending.length; index++) {
            if (pending[index] != null) {
                rest.add(pending[index]);
                pending[index] = null;
            }
        }
        return rest.toArray(new String[0]);
    }

    private synchronized String take(int index) {
        String block = pending[index];
        pending[index] = null;
        return block;
    }

    private void report(int index, long length, ManagedBuffer data) throws IOException {
        String block = take(index);
        if (block == null) {
            throw new ProtocolException("block " + request.blocks[index] + " arrived twice");
        }
        weir.counters().countBlock(length);
        listener.onBlockFetchSuccess(block, data);
    }

    private BlockFrames.Target open(int index, long length) throws IOException {
        if (files != null) {
            return new ToFile(index, length);
        }
        if (length > Integer.MAX_VALUE - 8) {
            throw new ProtocolException("block " + request.blocks[index] + " has " + length + " bytes, too many for memory");
        }
        return new ToMemory(index, (int) length);
    }

    private final class ToMemory implements BlockFrames.Target {
        private final int index;
        private final ByteBuffer memory;

        ToMemory(int index, int length) {
            this.index = index;
            this.memory = ByteBuffer.allocate(length);
        }

        @Override
        public void write(byte[] data, int from, int length) {
            memory.put(data, from, length);
        }

        @Override
        public void complete() throws IOException {
            memory.flip();
            report(index, memory.remaining(), new NioManagedBuffer(memory));
        }

        @Override
        public void discard() {}
    }

    private final class ToFile implements BlockFrames.Target {
        private final int index;
        private final long length;
        private final DownloadFile file;
        private final DownloadFileWritableChannel channel;

        ToFile(int index, long length) throws IOException {
            this.index = index;
            this.length = length;
            this.file = files.createTempFile(weir.transportConf());
            this.channel = file.openForWriting();
        }

        @Override
        public void write(byte[] data, int from, int count) throws IOException {
            ByteBuffer bytes = ByteBuffer.wrap(data, from, count);
            while (bytes.hasRemaining()) {
                channel.write(bytes);
            }
        }

        @Override
        public void complete() throws IOException {
            report(index, length, channel.closeAndRead());
            if (!files.registerTempFileToClean(file)) {
                file.delete();
            }
        }

        @Override
        public void discard() {
            try {
                channel.close();
            } catch (IOException e) {
                // The file is deleted in either case.
            }
            file.delete();
        }
    }
}
