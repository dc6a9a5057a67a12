package io.weir.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
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
 * operators, and failed ones with the reason, and forgets them by itself.
 */
final class CoflowRegistry {
    private static final Logger LOG = LoggerFactory.getLogger(CoflowRegistry.class);
    private static final long INTERVAL_MILLIS = 200;
    /** The time between two updates of a coflow grows with its flows: 1 s for 8,192, of which the coordinator makes new rules. */
    private static final long FLOW_NANOS = TimeUnit.MICROSECONDS.toNanos(125);
    /** The wait after a failure: it doubles up to the maximum. The first failure may be that of a connection that a restart has closed. */
    private static final long MIN_RETRY_NANOS = TimeUnit.MILLISECONDS.toNanos(200);
    private static final long MAX_RETRY_NANOS = TimeUnit.SECONDS.toNanos(10);
    /** How long the coordinator may take to complete a coflow after its stages. Afterwards it is deregistered. */
    private static final long COMPLETION_NANOS = TimeUnit.SECONDS.toNanos(2);
    /** The maximum number of coflows that wait for their deregistration while the coordinator does not answer. */
    private static final int MAX_DELETIONS = 10_000;
    /** The failure of a coflow without reported fallbacks. */
    private static final String NOT_COMPLETED = "not all bytes arrived over relays within 2 s after the last stage that reads the shuffle";
    private static final String BYPASSED = "Spark itself reads the shuffle: its merged blocks, or all blocks for a later attempt of a stage";
    /** How long the end of the application waits for deregistrations. */
    private static final long CLOSE_NANOS = TimeUnit.SECONDS.toNanos(5);

    private final CoordinatorClient coordinator;
    private final IntFunction<String> coflowName;
    private final Problems problems;
    private final DriverCounters counters;
    private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(BlockServer.daemons("weir-coflows"));

    // Guarded by this.
    private final Map<Integer, Shuffle> shuffles = new HashMap<>();
    private final Map<String, String> executorRegions = new HashMap<>();
    private final Map<String, Integer> executorCores = new HashMap<>();
    /** Why executors are refused that started before the coordinator answered: each may query again. */
    private final Map<String, String> refusals = new HashMap<>();
    /** The regions of the coordinator; null before it has answered. */
    private Set<String> regions;

    /** Coflows that have to be deregistered. Changed by the timer only. */
    private final Map<String, Deletion> deletions = new ConcurrentHashMap<>();

    // Used by the timer only.
    private long retryNanos = System.nanoTime();
    private long waitNanos = MIN_RETRY_NANOS;
    private boolean isFailing;
    /** Whether the coordinator has answered the check at the start. Written by the timer. */
    private volatile boolean isChecked;

    /** What the coordinator is asked for; the effect of a refusal on one coflow, and of a failure on all, whose requests are repeated. */
    private enum Request {
        REGISTRATION("is not registered, so its flows have no order", "coflows are not registered, so flows have no order"),
        STATE("has an unknown state", "the states of coflows are unknown, and new coflows wait"),
        DEREGISTRATION("stays registered", "coflows stay registered, and new coflows wait");

        final String effectOnOne;
        final String effectOnAll;

        Request(String effectOnOne, String effectOnAll) {
            this.effectOnOne = effectOnOne;
            this.effectOnAll = effectOnAll;
        }
    }

    private static final class Shuffle {
        final ShuffleSizes sizes = new ShuffleSizes();
        /** How the data of its coflow arrived: {@link PathCounts}. */
        final Map<String, Long> paths = new TreeMap<>();
        /** The coflow has ended, and the shuffle is not read again yet: further counts are those of the ended coflow. */
        boolean hasEnded;
        boolean hasChanged;
        boolean isActive = true;
        /** No block arrives as a flow. */
        boolean isBypassed;
        /** The coordinator has accepted the registration. */
        boolean isRegistered;
        /** The coordinator may have the coflow: the answer to a registration may have been lost. */
        boolean mayExist;
        boolean isCompleted;
        long endNanos;
        /** When the next request may follow. */
        long dueNanos = System.nanoTime();
        /** The hash of what the coordinator has. */
        long flowsHash;
    }

    /** The end of a coflow. */
    private static final class Deletion {
        final Shuffle shuffle;
        /** Why the coflow has failed, unless it completes before its deletion; null: no reason. */
        final String failure;
        /** How the data of a coflow arrived that seems to have failed. */
        final String paths;

        Deletion(Shuffle shuffle, String failure, String paths) {
            this.shuffle = shuffle;
            this.failure = failure;
            this.paths = paths;
        }
    }

    /** The coordinator may be null: then nothing is registered. */
    CoflowRegistry(CoordinatorClient coordinator, IntFunction<String> coflowName, Problems problems, DriverCounters counters) {
        this.coordinator = coordinator;
        this.coflowName = coflowName;
        this.problems = problems;
        this.counters = counters;
        if (coordinator != null) {
            timer.scheduleWithFixedDelay(this::synchronize, 0, INTERVAL_MILLIS, TimeUnit.MILLISECONDS);
        }
    }

    /** Returns why the executor cannot use flows; null if it can. Before the coordinator has answered, every region is accepted. */
    synchronized String addExecutor(String executor, String region) {
        if (regions != null && !regions.contains(region)) {
            if (!timer.isShutdown()) {
                // The configuration may have changed: the next executor of the region may be accepted.
                timer.execute(this::findRegions);
            }
            return describeUnknown(region);
        }
        executorRegions.put(executor, region);
        return null;
    }

    /**
     * Refuses an executor that was added before the coordinator answered, if the coordinator does not know its region: its cores do not
     * count any more. Returns why it cannot use flows; null if it can, or is unknown.
     */
    synchronized String refuseIfUnknown(String executor) {
        String region = executorRegions.get(executor);
        if (regions != null && region != null && !regions.contains(region)) {
            executorRegions.remove(executor);
            refusals.put(executor, describeUnknown(region));
        }
        return refusals.get(executor);
    }

    /** Whether the coordinator's regions are still requested, so that an executor may be refused later. */
    synchronized boolean isProvisional() {
        return coordinator != null && regions == null && !isChecked;
    }

    private String describeUnknown(String region) {
        return "region `" + region + "` is not in the coordinator's configuration; known regions: " + String.join(", ", regions);
    }

    synchronized void setCores(String executor, int cores) {
        executorCores.put(executor, cores);
    }

    synchronized void removeExecutor(String executor) {
        executorRegions.remove(executor);
        executorCores.remove(executor);
        refusals.remove(executor);
    }

    synchronized void addMapOutput(int shuffle, int map, String region, long[] lengths) {
        change(shuffle).sizes.addMapOutput(map, region, lengths);
    }

    synchronized void addReader(int shuffle, int stage, int task, String region, int startMap, int endMap, int startPartition,
            int endPartition) {
        Shuffle changed = change(shuffle);
        changed.isBypassed = false;
        changed.hasEnded = false;
        changed.sizes.addReader(stage, task, region, startMap, endMap, startPartition, endPartition);
    }

    /** Deregisters the coflow of a shuffle that Spark's own fetch reads, until another stage reads the shuffle with flows. */
    synchronized void bypass(int shuffle) {
        change(shuffle).isBypassed = true;
    }

    /** Adds how data of a shuffle arrived. Reports are late if Spark has removed the shuffle, or the coflow has ended. */
    synchronized void addPaths(int shuffle, Map<String, Long> counts) {
        Shuffle known = shuffles.get(shuffle);
        if (known != null && !known.hasEnded) {
            counts.forEach((name, count) -> known.paths.merge(name, count, Long::sum));
        }
    }

    /** Why data of a shuffle did not use relays; `otherwise` if no executor has reported that. */
    private synchronized String findFailure(Shuffle shuffle, String otherwise) {
        return PathCounts.hasFallback(shuffle.paths) ? PathCounts.describe(shuffle.paths) : otherwise;
    }

    private Shuffle change(int shuffle) {
        Shuffle changed = shuffles.computeIfAbsent(shuffle, s -> new Shuffle());
        changed.hasChanged = true;
        changed.isActive = true;
        changed.hasEnded &= changed.isBypassed;
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
            timer.execute(() -> deregister(shuffle, removed, findFailure(removed, null)));
        }
    }

    /** Deregisters all coflows. Waits for 5 s at most. */
    void close() {
        List<Integer> all;
        synchronized (this) {
            all = new ArrayList<>(shuffles.keySet());
        }
        all.forEach(this::removeShuffle);
        if (!timer.isShutdown()) {
            long deadline = System.nanoTime() + CLOSE_NANOS;
            timer.execute(() -> deleteUntil(deadline));
        }
        timer.shutdown();
        boolean hasEnded = false;
        try {
            hasEnded = timer.awaitTermination(CLOSE_NANOS, TimeUnit.NANOSECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        timer.shutdownNow();
        if (!hasEnded || !deletions.isEmpty()) {
            // The coordinator forgets only completed coflows by itself.
            String example = deletions.keySet().stream().findFirst().map(coflow -> ", " + coflow + " for example").orElse("");
            LOG.warn("some coflows stay registered{}: the coordinator did not deregister them within {} s; help: weir ctl coflow deregister",
                    example, TimeUnit.NANOSECONDS.toSeconds(CLOSE_NANOS));
        }
    }

    /** The last requests: each failed one is repeated after a short wait. */
    private void deleteUntil(long deadline) {
        while (!deletions.isEmpty() && System.nanoTime() - deadline < 0) {
            retryNanos = System.nanoTime();
            deletePending();
            if (!deletions.isEmpty()) {
                try {
                    Thread.sleep(INTERVAL_MILLIS);
                } catch (InterruptedException e) {
                    return;
                }
            }
        }
    }

    private void synchronize() {
        try {
            if (!isChecked && isDue(retryNanos)) {
                check();
            }
            deletePending();
            Map<Integer, Shuffle> changed = new HashMap<>();
            synchronized (this) {
                shuffles.forEach((number, shuffle) -> {
                    if (shuffle.hasChanged && isDue(shuffle.dueNanos)) {
                        changed.put(number, shuffle);
                    }
                });
            }
            for (Map.Entry<Integer, Shuffle> entry : changed.entrySet()) {
                if (!isDue(retryNanos)) {
                    return;
                }
                synchronize(entry.getKey(), entry.getValue());
            }
        } catch (Throwable e) {
            // The timer would stop after an exception.
            LOG.warn("coflows were not registered", e);
        }
    }

    private static boolean isDue(long nanos) {
        return System.nanoTime() - nanos >= 0;
    }

    /** Checks at the start of the application what can be known without a shuffle. */
    private void check() {
        try {
            findRegions(coordinator.absentRelays());
            String problem = coordinator.findServiceProblem();
            if (problem != null) {
                problems.report(problem, problem);
            }
            succeed();
            isChecked = true;
        } catch (IOException e) {
            if (isPermanent(e)) {
                problems.report(kind(Request.REGISTRATION, e), "flows have no order: the coordinator answered " + e.getMessage());
                isChecked = true;
            } else {
                fail(Request.REGISTRATION, e);
            }
        }
    }

    /** Whether a request without flows gets the same answer until the configuration changes. A limit (429) ends by itself. */
    private static boolean isPermanent(IOException e) {
        return isFinal(e) && ((CoordinatorClient.Refusal) e).status != 429;
    }

    private static boolean isFinal(IOException e) {
        return e instanceof CoordinatorClient.Refusal && ((CoordinatorClient.Refusal) e).isFinal();
    }

    private void findRegions() {
        try {
            findRegions(coordinator.absentRelays());
        } catch (IOException e) {
            LOG.debug("the regions of the coordinator are unknown", e);
        }
    }

    private synchronized void findRegions(Map<String, List<String>> absentRelays) {
        if (absentRelays.isEmpty()) {
            problems.report("regions", "flows have no order: the coordinator's configuration has no relays, [overlay.relay]");
            return;
        }
        regions = absentRelays.keySet();
        absentRelays.forEach((region, relays) -> {
            if (!relays.isEmpty()) {
                String text = "relays of region " + region + " are not connected to the coordinator: " + String.join(", ", relays);
                problems.report(text, text);
            }
        });
        // They registered before the coordinator answered. Each is refused at its next query.
        for (String region : executorRegions.values()) {
            if (!regions.contains(region)) {
                problems.report("early executors of " + region, describeUnknown(region)
                        + "; its executors, which started before the coordinator answered, use Spark's own fetch after their next query");
            }
        }
    }

    private void synchronize(int number, Shuffle shuffle) {
        List<ShuffleSizes.Flow> flows;
        boolean isActive;
        boolean isBypassed;
        long endNanos;
        synchronized (this) {
            shuffle.hasChanged = false;
            isBypassed = shuffle.isBypassed;
            isActive = shuffle.isActive;
            endNanos = shuffle.endNanos;
            flows = shuffle.sizes.flows(isActive ? regionShares() : Collections.emptyMap(), regions);
        }
        if (isBypassed) {
            deregister(number, shuffle, findFailure(shuffle, BYPASSED));
            takePaths(shuffle);
        } else if (!isActive) {
            end(number, shuffle, flows, endNanos);
        } else if (!flows.isEmpty()) {
            register(number, shuffle, flows);
        }
    }

    private void register(int number, Shuffle shuffle, List<ShuffleSizes.Flow> flows) {
        String coflow = coflowName.apply(number);
        boolean isDeleted = finishDeletion(coflow);
        if (isDeleted && shuffle.isCompleted) {
            // The shuffle is read again: its bytes count from 0.
            shuffle.isCompleted = false;
            deregister(number, shuffle, null);
            isDeleted = finishDeletion(coflow);
        }
        if (!isDeleted) {
            keepChange(shuffle);
            return;
        }
        long hash = ShuffleSizes.hash(flows);
        if (shuffle.isRegistered && hash == shuffle.flowsHash) {
            return;
        }
        boolean mayHaveExisted = shuffle.mayExist;
        shuffle.mayExist = true;
        try {
            coordinator.put(coflow, CoordinatorClient.encode(flows), shuffle.isRegistered);
            shuffle.isRegistered = true;
            shuffle.flowsHash = hash;
            shuffle.dueNanos = System.nanoTime() + flows.size() * FLOW_NANOS;
            succeed();
        } catch (IOException e) {
            shuffle.mayExist = mayHaveExisted || !isFinal(e);
            keepChange(shuffle);
            fail(Request.REGISTRATION, coflow, shuffle, e);
        }
    }

    private synchronized void keepChange(Shuffle shuffle) {
        shuffle.hasChanged = true;
    }

    /**
     * Waits until the coordinator has completed the coflow, and deregisters it if that takes too long. `flows`: those of readers that are
     * known. Partitions that an executor without Weir has read, or a second attempt, do not arrive as flows.
     */
    private void end(int number, Shuffle shuffle, List<ShuffleSizes.Flow> flows, long endNanos) {
        if (shuffle.isCompleted) {
            return;
        }
        if (!shuffle.isRegistered) {
            deregister(number, shuffle, findFailure(shuffle, null));
            takePaths(shuffle);
            return;
        }
        String coflow = coflowName.apply(number);
        try {
            long hash = ShuffleSizes.hash(flows);
            if (!flows.isEmpty() && hash != shuffle.flowsHash) {
                coordinator.put(coflow, CoordinatorClient.encode(flows), true);
                shuffle.flowsHash = hash;
            }
            shuffle.isCompleted = coordinator.hasCompleted(coflow);
        } catch (IOException e) {
            fail(Request.STATE, coflow, shuffle, e);
        }
        if (shuffle.isCompleted) {
            countCompletion(coflow, takePaths(shuffle));
            return;
        }
        if (System.nanoTime() - endNanos > COMPLETION_NANOS) {
            deregister(number, shuffle, findFailure(shuffle, NOT_COMPLETED));
        } else {
            keepChange(shuffle);
        }
    }

    private void countCompletion(String coflow, String paths) {
        counters.completedCoflows.inc();
        LOG.info("coflow {} has completed: {}", coflow, paths);
    }

    /** How the data of a coflow arrived that has ended. Counts of the next stage that reads the shuffle start from 0. */
    private synchronized String takePaths(Shuffle shuffle) {
        String text = PathCounts.describe(shuffle.paths);
        shuffle.paths.clear();
        // Another stage may read the shuffle already.
        shuffle.hasEnded = !shuffle.isActive || shuffle.isBypassed;
        return text;
    }

    /**
     * Deletes the coflow of a shuffle, now or as soon as the coordinator answers. `failure`: why it has failed, unless it completes before
     * its deletion; null: no reason.
     */
    private void deregister(int number, Shuffle shuffle, String failure) {
        if (!shuffle.mayExist || shuffle.isCompleted) {
            return;
        }
        shuffle.isRegistered = false;
        shuffle.mayExist = false;
        String coflow = coflowName.apply(number);
        Deletion deletion = new Deletion(shuffle, failure, failure == null ? null : takePaths(shuffle));
        if (deletions.size() < MAX_DELETIONS) {
            deletions.put(coflow, deletion);
            deletePending();
        } else {
            countFailure(coflow, deletion);
            problems.report("deletions", "coflow " + coflow + " stays registered: " + MAX_DELETIONS
                    + " others wait until the coordinator answers; help: weir ctl coflow deregister");
        }
    }

    private void deletePending() {
        for (String coflow : deletions.keySet()) {
            if (!isDue(retryNanos)) {
                return;
            }
            delete(coflow);
        }
    }

    /** Deletes a coflow if it waits for that. Returns whether it does not wait any more. */
    private boolean finishDeletion(String coflow) {
        return !deletions.containsKey(coflow) || isDue(retryNanos) && delete(coflow);
    }

    /** Deletes a coflow. Returns whether nothing remains to be done: otherwise it stays among those to be deregistered. */
    private boolean delete(String coflow) {
        Deletion deletion = deletions.get(coflow);
        try {
            if (deletion.failure != null && hasCompleted(coflow)) {
                deletion.shuffle.isCompleted = true;
                deletion.shuffle.mayExist = true;
            } else {
                coordinator.delete(coflow, deletion.failure);
            }
            succeed();
        } catch (IOException e) {
            if (!isPermanent(e)) {
                fail(Request.DEREGISTRATION, e);
                return false;
            }
            problems.report("refusal of deregistration", describe(Request.DEREGISTRATION, coflow, e));
        }
        deletions.remove(coflow);
        if (deletion.shuffle.isCompleted) {
            countCompletion(coflow, deletion.paths);
        } else {
            countFailure(coflow, deletion);
        }
        return true;
    }

    /**
     * Whether a coflow that seems to have failed has completed: since the last query, or while the coordinator did not answer. If the
     * coordinator refuses the query, it has not.
     */
    private boolean hasCompleted(String coflow) throws IOException {
        try {
            return coordinator.hasCompleted(coflow);
        } catch (IOException e) {
            if (isPermanent(e)) {
                return false;
            }
            throw e;
        }
    }

    private void countFailure(String coflow, Deletion deletion) {
        if (deletion.failure != null) {
            counters.failedCoflows.inc();
            LOG.info("coflow {} has failed: {}", coflow, deletion.failure);
        }
    }

    private void succeed() {
        waitNanos = MIN_RETRY_NANOS;
        if (isFailing) {
            isFailing = false;
            LOG.info("the coordinator answers again");
        }
    }

    private static String describe(Request request, String coflow, IOException e) {
        return "coflow " + coflow + " " + request.effectOnOne + ": the coordinator answered " + e.getMessage();
    }

    /** The kind of problem that a refusal is. */
    private static String kind(Request request, IOException refusal) {
        return "refusal " + request + " " + ((CoordinatorClient.Refusal) refusal).status;
    }

    /** A refused coflow does not delay others. */
    private void fail(Request request, String coflow, Shuffle shuffle, IOException e) {
        if (!isFinal(e)) {
            fail(request, e);
            return;
        }
        shuffle.dueNanos = System.nanoTime() + MAX_RETRY_NANOS;
        problems.report(kind(request, e), describe(request, coflow, e));
        // The configuration may have changed.
        findRegions();
    }

    private void fail(Request request, IOException e) {
        retryNanos = System.nanoTime() + waitNanos;
        waitNanos = Math.min(2 * waitNanos, MAX_RETRY_NANOS);
        if (!isFailing) {
            isFailing = true;
            String subject = e instanceof CoordinatorClient.Refusal ? "the coordinator answered " : "";
            problems.repeat(request.effectOnAll + ": " + subject + e.getMessage());
        }
    }

    /** The share of each region in the cores of the application. */
    private Map<String, Double> regionShares() {
        Map<String, Double> shares = new HashMap<>();
        double total = 0;
        for (Map.Entry<String, String> executor : executorRegions.entrySet()) {
            if (regions != null && !regions.contains(executor.getValue())) {
                // It is refused when it next queries the driver.
                continue;
            }
            double cores = executorCores.getOrDefault(executor.getKey(), 1);
            shares.merge(executor.getValue(), cores, Double::sum);
            total += cores;
        }
        double sum = total;
        shares.replaceAll((region, cores) -> cores / sum);
        return shares;
    }
}
