package io.weir.spark;

import com.codahale.metrics.Counter;
import io.weir.flow.FlowReceiver;
import java.io.IOException;
import java.net.InetAddress;
import java.security.SecureRandom;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.util.MapConfigProvider;
import org.apache.spark.network.util.TransportConf;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.ShuffleBlockBatchId;
import org.apache.spark.storage.ShuffleBlockId;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Tuple2;

/** The part in each executor. If it cannot start, the executor uses Spark's own fetch. */
public final class WeirExecutor implements ExecutorPlugin {
    private static final Logger LOG = LoggerFactory.getLogger(WeirExecutor.class);
    private static final int MAX_FETCHES = 64;

    private static volatile WeirExecutor active;

    private PluginContext context;
    private String region;
    private byte[] secret;
    private String application;
    private long timeoutNanos;
    private FlowNumbers flowNumbers;
    private final SecureRandom random = new SecureRandom();
    private BlockServer server;
    private Peers peers;
    private ThreadPoolExecutor fetches;
    private TransportConf transportConf;
    private Counter flowBlocks;
    private Counter flowBytes;
    private Counter fallbackBlocks;

    /** The plugin of this executor; null if Spark's own fetch is used. */
    static WeirExecutor active() {
        return active;
    }

    // An exception here would end the executor, and its cluster manager would start the next one, without end.
    @Override
    public void init(PluginContext context, Map<String, String> driverSettings) {
        try {
            if (start(context, driverSettings)) {
                active = this;
                LOG.info("blocks of regions other than {} arrive as flows at {}", region, server.address());
            }
        } catch (Throwable e) {
            LOG.warn("Weir cannot start: this executor uses Spark's own fetch", e);
            shutdown();
        }
    }

    private boolean start(PluginContext context, Map<String, String> driverSettings) throws Exception {
        SparkConf conf = context.conf();
        region = Settings.region(conf);
        // In local mode the driver is the executor.
        if (region == null || context.executorID().equals("driver")) {
            LOG.info("spark.weir.region is not set: this executor uses Spark's own fetch");
            return false;
        }
        if (Settings.wouldExposeBlocks(conf)) {
            LOG.warn("spark.io.encryption.enabled is not set, but encryption of transfers is: this executor uses Spark's own fetch");
            return false;
        }
        this.context = context;
        secret = Base64.getDecoder().decode(driverSettings.get(WeirDriver.SECRET));
        application = conf.get("spark.app.id");
        timeoutNanos = TimeUnit.MILLISECONDS.toNanos(Settings.timeoutMillis(conf));
        flowBlocks = context.metricRegistry().counter("flow.blocks");
        flowBytes = context.metricRegistry().counter("flow.bytes");
        fallbackBlocks = context.metricRegistry().counter("fallback.blocks");
        Map<String, String> keys = new HashMap<>();
        for (Tuple2<String, String> entry : conf.getAll()) {
            keys.put(entry._1(), entry._2());
        }
        transportConf = new TransportConf("shuffle", new MapConfigProvider(keys));
        fetches = new ThreadPoolExecutor(MAX_FETCHES, MAX_FETCHES, 30, TimeUnit.SECONDS, new LinkedBlockingQueue<>(),
                BlockServer.daemons("weir-fetch"));
        fetches.allowCoreThreadTimeOut(true);
        peers = new Peers(executor -> Messages.decodePeer(context.ask(Messages.peer(executor))));
        InetAddress host = InetAddress.getByName(SparkEnv.get().blockManager().blockManagerId().host());
        server = new BlockServer(context.executorID(), secret, WeirExecutor::readBlock, host, Settings.port(conf), Settings.relays(conf),
                Settings.window(conf), Settings.connections(conf));
        Object number = context.ask(Messages.executor(context.executorID(), new Peers.Peer(region, server.address())));
        flowNumbers = new FlowNumbers((Integer) number);
        return true;
    }

    private static ManagedBuffer readBlock(String name) throws IOException {
        BlockId id = BlockId.apply(name);
        if (!(id instanceof ShuffleBlockId || id instanceof ShuffleBlockBatchId)) {
            throw new IOException("block " + name + " is not a block of a shuffle");
        }
        return SparkEnv.get().blockManager().getLocalBlockData(id);
    }

    @Override
    public void shutdown() {
        if (active == this) {
            active = null;
        }
        try {
            if (server != null) {
                server.close();
            }
            if (fetches != null) {
                fetches.shutdownNow();
            }
        } catch (Throwable e) {
            LOG.info("the port did not close", e);
        }
    }

    String region() {
        return region;
    }

    byte[] secret() {
        return secret;
    }

    Peers peers() {
        return peers;
    }

    FlowReceiver receiver() {
        return server.receiver();
    }

    TransportConf transportConf() {
        return transportConf;
    }

    long timeoutNanos() {
        return timeoutNanos;
    }

    void execute(BlockFetch fetch) {
        fetches.execute(fetch);
    }

    void warn(String message, Throwable e) {
        LOG.warn("{}: Spark's own fetch is used", message, e);
    }

    void countBlock(long bytes) {
        flowBlocks.inc();
        flowBytes.inc(bytes);
    }

    void countFallback(int blocks) {
        fallbackBlocks.inc(blocks);
    }

    /** Blocks and bytes that arrived as flows, and blocks that Spark fetched after a failure. */
    long[] counts() {
        return new long[] {flowBlocks.getCount(), flowBytes.getCount(), fallbackBlocks.getCount()};
    }

    /** A request with a reserved flow number; null if none is free. */
    BlockRequest newRequest(String executor, int shuffle, int group, String[] blocks) {
        String coflow = Settings.coflow(application, shuffle);
        long flow = flowNumbers.reserve(coflow, group);
        if (flow < 0) {
            return null;
        }
        byte[] key = new byte[BlockRequest.KEY_LENGTH];
        random.nextBytes(key);
        return new BlockRequest(executor, coflow, flow, server.address(), key, blocks);
    }

    /** The flow of a request has ended. */
    void release(BlockRequest request) {
        flowNumbers.release(request.coflow, request.flow);
    }

    void reportMapOutput(int shuffle, int map, ShuffleWriter<?, ?> writer) {
        try {
            long[] lengths = writer.getPartitionLengths();
            if (lengths != null) {
                context.send(Messages.mapOutput(shuffle, map, region, lengths));
            }
        } catch (Throwable e) {
            LOG.debug("the driver did not receive the sizes of a map task", e);
        }
    }

    void reportReader(int shuffle, TaskContext task, int startMap, int endMap, int startPartition, int endPartition) {
        try {
            context.send(Messages.reader(shuffle, task.stageId(), task.partitionId(), region, startMap, endMap, startPartition,
                    endPartition));
        } catch (Throwable e) {
            LOG.debug("the driver did not receive the region of a task", e);
        }
    }
}
