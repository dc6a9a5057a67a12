package io.weir.spark;

import com.codahale.metrics.Counter;
import io.weir.flow.Wire;
import java.security.SecureRandom;
import java.util.Base64;
import java.util.Collections;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The part in the driver: knows the executors and the sizes of shuffles, and registers coflows. */
public final class WeirDriver implements DriverPlugin, Messages.Handler {
    /** The key of the secret among the settings that the driver gives to executors. Spark hides values of keys with this word. */
    static final String SECRET = "secret";

    private static final Logger LOG = LoggerFactory.getLogger(WeirDriver.class);

    private static volatile WeirDriver active;

    private final Map<String, Peers.Peer> executors = new ConcurrentHashMap<>();
    private final ExecutorNumbers numbers = new ExecutorNumbers();
    private Problems problems;
    private Counter refusedExecutors;
    private DriverCounters counters;
    private CoflowRegistry coflows;

    @Override
    public Map<String, String> init(SparkContext spark, PluginContext context) {
        byte[] secret = new byte[32];
        new SecureRandom().nextBytes(secret);
        try {
            SparkConf conf = context.conf();
            String api = Settings.coordinator(conf);
            problems = new Problems(LOG, context.metricRegistry().counter("problems"));
            String bypass = Settings.findBypass(conf);
            if (bypass != null) {
                problems.report("bypass", bypass);
            }
            refusedExecutors = context.metricRegistry().counter("executors.refused");
            CoordinatorClient coordinator = api == null ? null : new CoordinatorClient(api, Settings.service(conf), Settings.tls(conf));
            counters = new DriverCounters(context.metricRegistry());
            coflows = new CoflowRegistry(coordinator, shuffle -> Settings.coflow(spark.applicationId(), shuffle), problems, counters);
            spark.addSparkListener(new Listener());
            active = this;
        } catch (Throwable e) {
            LOG.debug("Weir cannot start", e);
            LOG.warn("Weir cannot start, executors use Spark's own fetch: {}", Wire.reason(e));
            return Collections.emptyMap();
        }
        return Collections.singletonMap(SECRET, Base64.getEncoder().encodeToString(secret));
    }

    @Override
    public Object receive(Object message) {
        return Messages.dispatch(message, this);
    }

    @Override
    public void shutdown() {
        if (active == this) {
            active = null;
            coflows.close();
        }
    }

    /** Ends the coflow of a shuffle that Spark forgets. Has no effect outside the driver. */
    static void forgetShuffle(int shuffle) {
        WeirDriver driver = active;
        if (driver != null) {
            driver.guard(() -> driver.coflows.removeShuffle(shuffle));
        }
    }

    @Override
    public Messages.Admission onExecutor(String executor, Peers.Peer peer) {
        String refusal = coflows.addExecutor(executor, peer.region);
        if (refusal != null) {
            refusedExecutors.inc();
            return new Messages.Admission(-1, refusal);
        }
        executors.put(executor, peer);
        int number = numbers.reserve(executor);
        if (number < 0) {
            problems.report("number", "executor " + executor + " requests no flows, Spark fetches its blocks: " + FlowNumbers.MAX_EXECUTORS
                    + " others run");
        }
        return new Messages.Admission(number, null);
    }

    @Override
    public void onProblem(String kind, String text) {
        problems.report(kind, text);
    }

    @Override
    public Peers.Answer onPeer(String asker, String executor) {
        for (String early : new String[] {asker, executor}) {
            if (coflows.refuseIfUnknown(early) != null && executors.remove(early) != null) {
                refusedExecutors.inc();
            }
        }
        return new Peers.Answer(executors.get(executor), coflows.refuseIfUnknown(asker), coflows.isProvisional());
    }

    @Override
    public void onMapOutput(int shuffle, int map, String region, long[] lengths) {
        coflows.addMapOutput(shuffle, map, region, lengths);
    }

    @Override
    public void onReader(int shuffle, int stage, int task, String region, int startMap, int endMap, int startPartition,
            int endPartition) {
        coflows.addReader(shuffle, stage, task, region, startMap, endMap, startPartition, endPartition);
    }

    @Override
    public void onBypass(int shuffle) {
        coflows.bypass(shuffle);
    }

    @Override
    public void onPaths(int shuffle, Map<String, Long> counts) {
        counters.add(counts);
        coflows.addPaths(shuffle, counts);
    }

    /** Any exception in a listener, and a LinkageError above all, could stop the application. */
    private void guard(Runnable action) {
        try {
            action.run();
        } catch (Throwable e) {
            LOG.warn("sizes of coflows may be wrong", e);
        }
    }

    private final class Listener extends SparkListener {
        @Override
        public void onExecutorAdded(SparkListenerExecutorAdded event) {
            guard(() -> coflows.setCores(event.executorId(), event.executorInfo().totalCores()));
        }

        @Override
        public void onExecutorRemoved(SparkListenerExecutorRemoved event) {
            guard(() -> {
                executors.remove(event.executorId());
                numbers.release(event.executorId());
                coflows.removeExecutor(event.executorId());
            });
        }

        @Override
        public void onStageCompleted(SparkListenerStageCompleted event) {
            guard(() -> coflows.endStage(event.stageInfo().stageId()));
        }
    }
}
