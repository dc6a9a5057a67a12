package io.weir.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.IntFunction;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps the coflows of the application registered, one for each shuffle: from its first map output until the stages that read it have
 * ended. Sizes follow with a short delay. Without a coordinator nothing waits for it.
 *
 * The coordinator knows the end of a coflow only after the last reports of relays. It keeps completed coflows with their times for
 * operators, and forgets them by itself.
 */
final class CoflowRegistry {
    private static final Logger LOG = LoggerFactory.getLogger(CoflowRegistry.class);
    private static final long INTERVAL_MILLIS = 200;
    /** The wait after a failure: it doubles up to the maximum. The first failure may be that of a connection that a restart has closed. */
    private static final long MIN_RETRY_NANOS = TimeUnit.MILLISECONDS.toNanos(200);
    private static final long MAX_RETRY_NANOS = TimeUnit.SECONDS.toNanos(10);
    /** How long the coordinator may take to complete a coflow after its stages. Afterwards it is deregistered. */
    private static final long COMPLETION_NANOS = TimeUnit.SECONDS.toNanos(2);

    private final CoordinatorClient coordinator;
    private final IntFunction<String> coflowName;
    private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(BlockServer.daemons("weir-coflows"));

    // Guarded by this.
    private final Map<Integer, Shuffle> shuffles = new HashMap<>();
    private final Map<String, String> executorRegions = new HashMap<>();
    private final Map<String, Integer> executorCores = new HashMap<>();

    // Used by the timer only.
    private long retryNanos = System.nanoTime();
    private long waitNanos = MIN_RETRY_NANOS;
    private boolean isFailing;

    private static final class Shuffle {
        final ShuffleSizes sizes = new ShuffleSizes();
        boolean hasChanged;
        boolean isActive = true;
        boolean isRegistered;
        boolean isCompleted;
        long endNanos;
        /** What the coordinator has. */
        String flows = "[]";
    }

    /** The coordinator may be null: then nothing is registered. */
    CoflowRegistry(CoordinatorClient coordinator, IntFunction<String> coflowName) {
        this.coordinator = coordinator;
        this.coflowName = coflowName;
        if (coordinator != null) {
            timer.scheduleWithFixedDelay(this::synchronize, INTERVAL_MILLIS, INTERVAL_MILLIS, TimeUnit.MILLISECONDS);
        }
    }

    synchronized void addExecutor(String executor, String region) {
        executorRegions.put(executor, region);
    }

    synchronized void setCores(String executor, int cores) {
        executorCores.put(executor, cores);
    }

    synchronized void removeExecutor(String executor) {
        executorRegions.remove(executor);
        executorCores.remove(executor);
    }

    synchronized void addMapOutput(int shuffle, int map, String region, long[] lengths) {
        change(shuffle).sizes.addMapOutput(map, region, lengths);
    }

    synchronized void addReader(int shuffle, int stage, int task, String region, int startMap, int endMap, int startPartition,
            int endPartition) {
        change(shuffle).sizes.addReader(stage, task, region, startMap, endMap, startPartition, endPartition);
    }

    private Shuffle change(int shuffle) {
        Shuffle changed = shuffles.computeIfAbsent(shuffle, s -> new Shuffle());
        changed.hasChanged = true;
        changed.isActive = true;
        return changed;
    }

    synchronized void endStage(int stage) {
        for (Shuffle shuffle : shuffles.values()) {
            if (shuffle.sizes.endStage(stage)) {
                shuffle.isActive = false;
                shuffle.hasChanged = true;
                shuffle.endNanos = System.nanoTime();
            }
        }
    }

    void removeShuffle(int shuffle) {
        Shuffle removed;
        synchronized (this) {
            removed = shuffles.remove(shuffle);
        }
        if (coordinator != null && removed != null && !timer.isShutdown()) {
            timer.execute(() -> deregister(shuffle, removed));
        }
    }

    /** Deregisters all coflows. */
    void close() {
        List<Integer> all;
        synchronized (this) {
            all = new ArrayList<>(shuffles.keySet());
        }
        all.forEach(this::removeShuffle);
        timer.shutdown();
        try {
            timer.awaitTermination(5, TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        timer.shutdownNow();
    }

    private void synchronize() {
        try {
            Map<Integer, Shuffle> changed = new HashMap<>();
            synchronized (this) {
                shuffles.forEach((number, shuffle) -> {
                    if (shuffle.hasChanged) {
                        changed.put(number, shuffle);
                    }
                });
            }
            for (Map.Entry<Integer, Shuffle> entry : changed.entrySet()) {
                if (System.nanoTime() - retryNanos < 0) {
                    return;
                }
                synchronize(entry.getKey(), entry.getValue());
            }
        } catch (Throwable e) {
            // The timer would stop after an exception.
            LOG.warn("coflows were not registered", e);
        }
    }

    private void synchronize(int number, Shuffle shuffle) {
        List<ShuffleSizes.Flow> flows;
        boolean isActive;
        long endNanos;
        synchronized (this) {
            shuffle.hasChanged = false;
            isActive = shuffle.isActive;
            endNanos = shuffle.endNanos;
            flows = shuffle.sizes.flows(regionShares());
        }
        if (!isActive) {
            end(number, shuffle, endNanos);
        } else if (!flows.isEmpty()) {
            register(number, shuffle, CoordinatorClient.encode(flows));
        }
    }

    private void register(int number, Shuffle shuffle, String flows) {
        if (shuffle.isCompleted) {
            // The shuffle is read again: its bytes count from 0.
            shuffle.isCompleted = false;
            deregister(number, shuffle);
        }
        if (shuffle.isRegistered && flows.equals(shuffle.flows)) {
            return;
        }
        try {
            coordinator.put(coflowName.apply(number), flows, shuffle.isRegistered);
            shuffle.isRegistered = true;
            shuffle.flows = flows;
            isFailing = false;
            waitNanos = MIN_RETRY_NANOS;
        } catch (Exception e) {
            synchronized (this) {
                shuffle.hasChanged = true;
            }
            fail(e);
        }
    }

    /** Waits until the coordinator has completed the coflow, and deregisters it if that takes too long. */
    private void end(int number, Shuffle shuffle, long endNanos) {
        if (!shuffle.isRegistered || shuffle.isCompleted) {
            return;
        }
        try {
            shuffle.isCompleted = coordinator.hasCompleted(coflowName.apply(number));
        } catch (Exception e) {
            fail(e);
        }
        if (shuffle.isCompleted) {
            return;
        }
        if (System.nanoTime() - endNanos > COMPLETION_NANOS) {
            deregister(number, shuffle);
        } else {
            synchronized (this) {
                shuffle.hasChanged = true;
            }
        }
    }

    private void deregister(int number, Shuffle shuffle) {
        if (shuffle.isRegistered && !shuffle.isCompleted) {
            shuffle.isRegistered = false;
            try {
                coordinator.delete(coflowName.apply(number));
            } catch (Exception e) {
                fail(e);
            }
        }
    }

    private void fail(Exception e) {
        retryNanos = System.nanoTime() + waitNanos;
        waitNanos = Math.min(2 * waitNanos, MAX_RETRY_NANOS);
        if (!isFailing) {
            isFailing = true;
            LOG.warn("coflows are not registered, so flows have no order: {}", e.toString());
        }
    }

    /** The share of each region in the cores of the application. */
    private Map<String, Double> regionShares() {
        Map<String, Double> shares = new HashMap<>();
        double total = 0;
        for (Map.Entry<String, String> executor : executorRegions.entrySet()) {
            double cores = executorCores.getOrDefault(executor.getKey(), 1);
            shares.merge(executor.getValue(), cores, Double::sum);
            total += cores;
        }
        double sum = total;
        shares.replaceAll((region, cores) -> cores / sum);
        return shares;
    }
}
