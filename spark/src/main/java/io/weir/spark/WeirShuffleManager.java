package io.weir.spark;

import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.BaseShuffleHandle;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.sort.SortShuffleManager;
import org.apache.spark.util.TaskCompletionListener;

/** Spark's shuffle, whose readers fetch blocks of other regions as flows. The value of {@code spark.shuffle.manager}. */
public final class WeirShuffleManager extends SortShuffleManager {
    public WeirShuffleManager(SparkConf conf) {
        super(conf);
    }

    @Override
    public <K, V> ShuffleWriter<K, V> getWriter(ShuffleHandle handle, long map, TaskContext context,
            ShuffleWriteMetricsReporter metrics) {
        ShuffleWriter<K, V> writer = super.getWriter(handle, map, context, metrics);
        WeirExecutor weir = WeirExecutor.active();
        if (weir != null) {
            context.addTaskCompletionListener((TaskCompletionListener) task -> {
                if (!task.isFailed()) {
                    weir.reportMapOutput(handle.shuffleId(), task.partitionId(), writer);
                }
            });
        }
        return writer;
    }

    @Override
    public <K, C> ShuffleReader<K, C> getReader(ShuffleHandle handle, int startMap, int endMap, int startPartition, int endPartition,
            TaskContext context, ShuffleReadMetricsReporter metrics) {
        WeirExecutor weir = WeirExecutor.active();
        ShuffleDependency<K, ?, C> dependency = dependency(handle);
        boolean isMerged = dependency.isShuffleMergeFinalizedMarked();
        // A later attempt of a stage follows a failed fetch: it takes no risk.
        if (weir != null && !isMerged && context.stageAttemptNumber() == 0) {
            weir.reportReader(handle.shuffleId(), context, startMap, endMap, startPartition, endPartition);
            return new RegionShuffleReader<>(dependency, startMap, endMap, startPartition, endPartition,
                    canUseBatchFetch(startPartition, endPartition, context), weir, context, metrics);
        }
        // Fails if the locations of blocks are unknown. Otherwise they can be counted.
        ShuffleReader<K, C> reader = super.getReader(handle, startMap, endMap, startPartition, endPartition, context, metrics);
        if (!isMerged) {
            Counters.Fallback reason = weir == null ? Counters.Fallback.INACTIVE : Counters.Fallback.STAGE_ATTEMPT;
            WeirExecutor.countOwnFetch(reason, handle.shuffleId(), startMap, endMap, startPartition, endPartition);
        }
        if (weir != null) {
            // Spark reads merged blocks, and those of the shuffle that are not merged, or all blocks of a later attempt.
            weir.reportBypass(handle.shuffleId());
        }
        return reader;
    }

    @SuppressWarnings("unchecked")
    private static <K, C> ShuffleDependency<K, ?, C> dependency(ShuffleHandle handle) {
        return ((BaseShuffleHandle<K, ?, C>) handle).dependency();
    }

    @Override
    public boolean unregisterShuffle(int shuffle) {
        WeirDriver.forgetShuffle(shuffle);
        return super.unregisterShuffle(shuffle);
    }
}
