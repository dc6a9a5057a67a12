package io.weir.spark;

import io.weir.flow.FlowReceiver;
import io.weir.flow.FlowSocket;
import io.weir.flow.FlowTls;
import io.weir.flow.HostPort;
import io.weir.flow.Reset;
import io.weir.flow.Wire;
import java.io.IOException;
import java.net.InetAddress;
import java.security.SecureRandom;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
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
import org.apache.spark.storage.BlockManagerId;
import org.apache.spark.storage.ShuffleBlockBatchId;
import org.apache.spark.storage.ShuffleBlockId;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Tuple2;
import scala.Tuple3;
import scala.collection.Iterator;
import scala.collection.Seq;

/** The part in each executor. If it cannot start, the executor uses Spark's own fetch. */
public final class WeirExecutor implements ExecutorPlugin {
    private static final Logger LOG = LoggerFactory.getLogger(WeirExecutor.class);
    private static final int MAX_FETCHES = 64;
    private static final long PATH_REPORT_MILLIS = 1_000;

    private static volatile WeirExecutor active;
    private static volatile WeirExecutor reporting;

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
    private FlowTls tls;
    private Counters counters;
    private Future<?> pathReports;
    private final Set<String> reportedRelays = ConcurrentHashMap.newKeySet();

    /** The plugin of this executor; null if Spark's own fetch is used. */
    static WeirExecutor active() {
        return active;
    }

    /** The plugin of this executor, also one that is not active; null if its driver does not accept reports. */
    static WeirExecutor reporting() {
        return reporting;
    }

    // An exception here would end the executor, and its cluster manager would start the next one, without end.
    @Override
    public void init(PluginContext context, Map<String, String> driverSettings) {
        this.context = context;
        // In local mode the driver is the executor.
        if (context.executorID().equals("driver")) {
            return;
        }
        String refusal;
        try {
            refusal = start(context.conf(), driverSettings);
        } catch (Throwable e) {
            LOG.debug("Weir cannot start", e);
            refusal = Wire.reason(e);
        }
        if (refusal == null) {
            active = this;
            String protection = tls == null ? "plain text" : "TLS";
            LOG.info("blocks of regions other than {} arrive as flows at {}, {}", region, server.address(), protection);
            Thread probe = new Thread(this::probeRelays, "weir-probe");
            probe.setDaemon(true);
            probe.start();
        } else {
            LOG.warn("this executor uses Spark's own fetch: {}", refusal);
            reportProblem(refusal, "", "uses Spark's own fetch: " + refusal);
            close();
        }
    }

    /** Returns why this executor uses Spark's own fetch only; null if it does not. */
    private String start(SparkConf conf, Map<String, String> driverSettings) throws Exception {
        if (!driverSettings.containsKey(WeirDriver.SECRET)) {
            return "the plugin did not start in the driver";
        }
        // Below, the start may fail. The blocks that Spark fetches are counted in any case.
        counters = new Counters(context.metricRegistry(), this::reportPaths);
        pathReports = FlowSocket.schedule(this::reportPaths, PATH_REPORT_MILLIS);
        peers = new Peers(executor -> Messages.decodePeer(context.ask(Messages.peer(context.executorID(), executor))), this::refuse);
        reporting = this;
        region = Settings.region(conf);
        if (region == null) {
            return "no region is set; help: set WEIR_REGION in the environment of its worker";
        }
        tls = Settings.tls(conf);
        if (Settings.wouldExposeBlocks(conf, tls)) {
            return "Spark encrypts transfers, but flows are plain text; help: set spark.weir.certificate or spark.io.encryption.enabled";
        }
        secret = Base64.getDecoder().decode(driverSettings.get(WeirDriver.SECRET));
        application = conf.get("spark.app.id");
        timeoutNanos = TimeUnit.MILLISECONDS.toNanos(Settings.timeoutMillis(conf));
        Map<String, String> keys = new HashMap<>();
        for (Tuple2<String, String> entry : conf.getAll()) {
            keys.put(entry._1(), entry._2());
        }
        transportConf = new TransportConf("shuffle", new MapConfigProvider(keys));
        fetches = new ThreadPoolExecutor(MAX_FETCHES, MAX_FETCHES, 30, TimeUnit.SECONDS, new LinkedBlockingQueue<>(),
                BlockServer.daemons("weir-fetch"));
        fetches.allowCoreThreadTimeOut(true);
        server = new BlockServer(context.executorID(), secret, WeirExecutor::readBlock, InetAddress.getByName(host()), conf, tls, counters,
                this::reportRelay);
        Peers.Peer self = new Peers.Peer(region, server.address());
        Messages.Admission admission = Messages.decodeAdmission(context.ask(Messages.executor(context.executorID(), self)));
        if (admission.refusal != null) {
            return admission.refusal;
        }
        flowNumbers = new FlowNumbers(admission.number);
        if (admission.number < 0) {
            LOG.warn("this executor requests no flows, Spark fetches its blocks: {} others run", FlowNumbers.MAX_EXECUTORS);
        }
        return null;
    }

    /** The context's own method fails in executors. */
    private static String host() {
        return SparkEnv.get().blockManager().blockManagerId().host();
    }

    /** An exception that no thread catches would end the executor. */
    private void probeRelays() {
        try {
            server.relays().probe(server.address(), tls);
        } catch (Throwable e) {
            LOG.warn("the relays were not probed", e);
        }
    }

    /**
     * Uses Spark's own fetch from now on: the coordinator, which did not answer at the start, does not know the region. Flows in progress
     * continue, so the port stays open.
     */
    private synchronized void refuse(String refusal) {
        if (active == this) {
            active = null;
            server.refuseRequests();
            LOG.warn("this executor uses Spark's own fetch from now on: {}", refusal);
            reportProblem(refusal, "", "uses Spark's own fetch: " + refusal);
        }
    }

    /** Logs a problem of a relay once, here and at the driver. */
    private void reportRelay(HostPort relay, String problem) {
        String kind = "relay " + relay + ": " + problem;
        boolean isFirst = reportedRelays.add(relay.toString());
        // After another problem, a lost connection is no news.
        if ((isFirst || !problem.equals(Reset.LOST.toString())) && reportedRelays.add(kind)) {
            LOG.warn("{}: some flows bypass it", kind);
            reportProblem(kind, kind + ": some flows of ", "bypass it");
        }
    }

    /** `prefix` and `text`: the sentence before and after the name of this executor. */
    private void reportProblem(String kind, String prefix, String text) {
        try {
            context.send(Messages.problem(kind, prefix + "executor " + context.executorID() + " at " + host() + " " + text));
        } catch (Throwable e) {
            LOG.debug("the driver did not receive a problem", e);
        }
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
        if (reporting == this) {
            reporting = null;
        }
        if (pathReports != null) {
            pathReports.cancel(false);
            reportPaths();
        }
        close();
    }

    /** Ends what only an active plugin needs. */
    private void close() {
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

    Counters counters() {
        return counters;
    }

    /** Null: plain text. */
    FlowTls tls() {
        return tls;
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

    /**
     * Counts the blocks of other regions that Spark's own fetch reads for a task. If the region of this executor or of another one is
     * unknown, all blocks of the other one count.
     */
    static void countOwnFetch(Counters.Fallback reason, int shuffle, int startMap, int endMap, int startPartition, int endPartition) {
        WeirExecutor plugin = reporting;
        if (plugin == null) {
            return;
        }
        try {
            Iterator<Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>>> blocks = SparkEnv.get().mapOutputTracker()
                    .getMapSizesByExecutorId(shuffle, startMap, endMap, startPartition, endPartition);
            int count = 0;
            while (blocks.hasNext()) {
                Tuple2<BlockManagerId, Seq<Tuple3<BlockId, Object, Object>>> ofExecutor = blocks.next();
                count += plugin.isElsewhere(ofExecutor._1().executorId()) ? ofExecutor._2().size() : 0;
            }
            if (count > 0) {
                plugin.counters.countFallback(shuffle, reason, count);
            }
        } catch (Throwable e) {
            LOG.debug("blocks that Spark's own fetch reads were not counted", e);
        }
    }

    /** Whether an executor is in another region, or may be. */
    private boolean isElsewhere(String executor) {
        if (executor.equals(context.executorID())) {
            return false;
        }
        Peers.Peer peer = region == null ? null : peers.find(executor);
        return peer == null || !peer.region.equals(region);
    }

    /** Reports how data arrived since the last report. An exception would end the periodic reports. */
    private void reportPaths() {
        try {
            for (Map.Entry<Integer, Map<String, Long>> entry : counters.takeByShuffle().entrySet()) {
                context.send(Messages.paths(entry.getKey(), entry.getValue()));
            }
        } catch (Throwable e) {
            LOG.debug("the driver did not receive how data arrived", e);
        }
    }

    /** Reports that all tasks that read a shuffle use Spark's own fetch. */
    void reportBypass(int shuffle) {
        try {
            context.send(Messages.bypass(shuffle));
        } catch (Throwable e) {
            LOG.debug("the driver did not receive that a shuffle bypasses Weir", e);
        }
    }
}
