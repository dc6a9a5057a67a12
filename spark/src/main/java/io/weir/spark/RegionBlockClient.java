package io.weir.spark;

import com.codahale.metrics.MetricSet;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.spark.TaskContext;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.network.shuffle.BlockPushingListener;
import org.apache.spark.network.shuffle.BlockStoreClient;
import org.apache.spark.network.shuffle.DownloadFileManager;
import org.apache.spark.network.shuffle.MergeFinalizerListener;
import org.apache.spark.network.shuffle.MergedBlocksMetaListener;
import org.apache.spark.network.shuffle.checksum.Cause;

/** Fetches blocks of executors in other regions as flows. Everything else is Spark's own client. */
final class RegionBlockClient extends BlockStoreClient {
    private final BlockStoreClient spark;
    private final WeirExecutor weir;
    private final int shuffle;
    private final int group;
    private final TaskContext context;

    RegionBlockClient(BlockStoreClient spark, WeirExecutor weir, int shuffle, int group, TaskContext context) {
        this.spark = spark;
        this.weir = weir;
        this.shuffle = shuffle;
        this.group = group;
        this.context = context;
    }

    @Override
    public void fetchBlocks(String host, int port, String executor, String[] blocks, BlockFetchingListener listener,
            DownloadFileManager files) {
        BlockRequest request = null;
        try {
            Peers.Peer peer = weir.peers().find(executor);
            if (areShuffleBlocks(blocks)) {
                request = newRequest(executor, peer, blocks);
            }
            if (request != null) {
                BlockFetch.Fallback fallback = rest -> spark.fetchBlocks(host, port, executor, rest, listener, files);
                weir.execute(new BlockFetch(weir, peer, request, listener, files, fallback, context::isCompleted));
                return;
            }
        } catch (Throwable e) {
            weir.warn("blocks of executor " + executor + " cannot be requested", e);
            if (request != null) {
                weir.release(request);
            }
        }
        spark.fetchBlocks(host, port, executor, blocks, listener, files);
    }

    /** A request for blocks of another region; null if Spark fetches them. */
    private BlockRequest newRequest(String executor, Peers.Peer peer, String[] blocks) {
        Counters.Fallback reason;
        if (peer == null) {
            reason = Counters.Fallback.PEER_UNKNOWN;
        } else if (peer.region.equals(weir.region())) {
            return null;
        } else if (weir.peers().isPaused(executor)) {
            reason = Counters.Fallback.PEER_PAUSED;
        } else {
            BlockRequest request = weir.newRequest(executor, shuffle, group, blocks);
            if (request != null) {
                return request;
            }
            reason = Counters.Fallback.NO_NUMBER;
        }
        weir.counters().countFallback(shuffle, reason, blocks.length);
        return null;
    }

    /** Merged blocks and their chunks have other names. */
    private static boolean areShuffleBlocks(String[] blocks) {
        for (String block : blocks) {
            if (!block.startsWith("shuffle_")) {
                return false;
            }
        }
        return true;
    }

    @Override
    public Cause diagnoseCorruption(String host, int port, String executor, int shuffle, long map, int reduce, long checksum,
            String algorithm) {
        return spark.diagnoseCorruption(host, port, executor, shuffle, map, reduce, checksum, algorithm);
    }

    @Override
    public MetricSet shuffleMetrics() {
        return spark.shuffleMetrics();
    }

    @Override
    public void setAppAttemptId(String attempt) {
        spark.setAppAttemptId(attempt);
    }

    @Override
    public String getAppAttemptId() {
        return spark.getAppAttemptId();
    }

    @Override
    public void getHostLocalDirs(String host, int port, String[] executors, CompletableFuture<Map<String, String[]>> directories) {
        spark.getHostLocalDirs(host, port, executors, directories);
    }

    @Override
    public void pushBlocks(String host, int port, String[] blocks, ManagedBuffer[] buffers, BlockPushingListener listener) {
        spark.pushBlocks(host, port, blocks, buffers, listener);
    }

    @Override
    public void finalizeShuffleMerge(String host, int port, int shuffle, int merge, MergeFinalizerListener listener) {
        spark.finalizeShuffleMerge(host, port, shuffle, merge, listener);
    }

    @Override
    public void getMergedBlockMeta(String host, int port, int shuffle, int merge, int reduce, MergedBlocksMetaListener listener) {
        spark.getMergedBlockMeta(host, port, shuffle, merge, reduce, listener);
    }

    @Override
    public boolean removeShuffleMerge(String host, int port, int shuffle, int merge) {
        return spark.removeShuffleMerge(host, port, shuffle, merge);
    }

    /** Spark's client outlives the task. */
    @Override
    public void close() {}
}
