package io.weir.spark.live;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.executor.ShuffleReadMetrics;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.scheduler.StageInfo;

/** Records the times of stages, and what their tasks read from other executors. */
final class StageTimes extends SparkListener {
    static final class Stage {
        double seconds;
        long submissionMillis;
        /** When each task began, by partition. */
        final Map<Integer, Long> launches = new HashMap<>();
        /** The longest time that a task waited for blocks. */
        double slowestReadSeconds;
        long remoteBytes;
    }

    private final Map<Integer, Stage> stages = new TreeMap<>();

    @Override
    public synchronized void onTaskStart(SparkListenerTaskStart event) {
        stage(event.stageId()).launches.putIfAbsent(event.taskInfo().index(), event.taskInfo().launchTime());
    }

    @Override
    public synchronized void onTaskEnd(SparkListenerTaskEnd event) {
        if (event.taskMetrics() != null) {
            Stage stage = stage(event.stageId());
            ShuffleReadMetrics read = event.taskMetrics().shuffleReadMetrics();
            stage.slowestReadSeconds = Math.max(stage.slowestReadSeconds, read.fetchWaitTime() / 1e3);
            stage.remoteBytes += read.remoteBytesRead();
        }
    }

    @Override
    public synchronized void onStageCompleted(SparkListenerStageCompleted event) {
        StageInfo info = event.stageInfo();
        if (info.submissionTime().isDefined() && info.completionTime().isDefined()) {
            stage(info.stageId()).submissionMillis = (Long) info.submissionTime().get();
            stage(info.stageId()).seconds += ((Long) info.completionTime().get() - (Long) info.submissionTime().get()) / 1e3;
        }
    }

    private Stage stage(int id) {
        return stages.computeIfAbsent(id, stage -> new Stage());
    }

    /** Returns the stages since the last call, in the order of their numbers. */
    synchronized List<Stage> take() {
        List<Stage> list = new ArrayList<>(stages.values());
        stages.clear();
        return list;
    }
}
