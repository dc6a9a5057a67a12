package io.weir.spark;

import java.io.InputStream;
import java.lang.reflect.Array;
import java.lang.reflect.Constructor;
import java.util.NoSuchElementException;
import org.apache.spark.Aggregator;
import org.apache.spark.InterruptibleIterator;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.internal.config.ConfigEntry;
import org.apache.spark.internal.config.package$;
import org.apache.spark.io.CompressionCodec;
import org.apache.spark.io.CompressionCodec$;
import org.apache.spark.serializer.SerializerInstance;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.ShuffleBlockFetcherIterator;
import org.apache.spark.util.SystemClock;
import org.apache.spark.util.collection.ExternalSorter;
import scala.Option;
import scala.Product2;
import scala.Tuple2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/** Reads a shuffle as Spark's BlockStoreShuffleReader does, with another client for blocks. */
final class RegionShuffleReader<K, V, C> implements ShuffleReader<K, C> {
    private final ShuffleDependency<K, V, C> dependency;
    private final ShuffleBlockFetcherIterator blocks;
    private final TaskContext context;
    private final ShuffleReadMetricsReporter metrics;

    RegionShuffleReader(ShuffleDependency<K, V, C> dependency, int startMap, int endMap, int startPartition, int endPartition,
            boolean mayBatch, WeirExecutor weir, TaskContext context, ShuffleReadMetricsReporter metrics) {
        this.dependency = dependency;
        this.context = context;
        this.metrics = metrics;
        SparkEnv env = SparkEnv.get();
        package$ keys = package$.MODULE$;
        int shuffle = dependency.shuffleId();
        int group = FlowNumbers.group(startPartition, dependency.partitioner().numPartitions());
        blocks = new ShuffleBlockFetcherIterator(
                context,
                new RegionBlockClient(env.blockManager().blockStoreClient(), weir, shuffle, group, context),
                env.blockManager(),
                env.mapOutputTracker(),
                env.mapOutputTracker().getMapSizesByExecutorId(shuffle, startMap, endMap, startPartition, endPartition),
                (BlockId id, InputStream in) -> env.serializerManager().wrapStream(id, in),
                number(env, keys.REDUCER_MAX_SIZE_IN_FLIGHT()) << 20,
                (int) number(env, keys.REDUCER_MAX_REQS_IN_FLIGHT()),
                (int) number(env, keys.REDUCER_MAX_BLOCKS_IN_FLIGHT_PER_ADDRESS()),
                number(env, keys.MAX_REMOTE_BLOCK_SIZE_FETCH_TO_MEM()),
                (int) number(env, keys.SHUFFLE_MAX_ATTEMPTS_ON_NETTY_OOM()),
                isSet(env, keys.SHUFFLE_DETECT_CORRUPT()),
                isSet(env, keys.SHUFFLE_DETECT_CORRUPT_MEMORY()),
                isSet(env, keys.SHUFFLE_CHECKSUM_ENABLED()),
                env.conf().get(keys.SHUFFLE_CHECKSUM_ALGORITHM()),
                metrics,
                mayBatch && canBatch(env),
                new SystemClock());
    }

    private static long number(SparkEnv env, ConfigEntry<Object> key) {
        return ((Number) env.conf().get(key)).longValue();
    }

    private static boolean isSet(SparkEnv env, ConfigEntry<Object> key) {
        return (Boolean) env.conf().get(key);
    }

    /** Whether adjacent blocks of a map task may arrive as one: their bytes must make sense when concatenated. */
    private boolean canBatch(SparkEnv env) {
        SparkConf conf = env.conf();
        package$ keys = package$.MODULE$;
        if (!dependency.serializer().supportsRelocationOfSerializedObjects()
                || isSet(env, keys.SHUFFLE_USE_OLD_FETCH_PROTOCOL())
                || isSet(env, keys.IO_ENCRYPTION_ENABLED())) {
            return false;
        }
        return !isSet(env, keys.SHUFFLE_COMPRESS())
                || CompressionCodec$.MODULE$.supportsConcatenationOfSerializedStreams(CompressionCodec.createCodec(conf));
    }

    @Override
    public Iterator<Product2<K, C>> read() {
        Iterator<Product2<Object, Object>> records =
                new InterruptibleIterator<>(context, new Records(blocks.toCompletionIterator(), dependency.serializer().newInstance()));
        Iterator<?> result = dependency.keyOrdering().isDefined() ? sort(records) : combine(records);
        return cast(result instanceof InterruptibleIterator ? result : new InterruptibleIterator<>(context, result));
    }

    private Iterator<?> combine(Iterator<Product2<Object, Object>> records) {
        if (dependency.aggregator().isEmpty()) {
            return records;
        }
        Aggregator<K, V, C> aggregator = dependency.aggregator().get();
        return dependency.mapSideCombine()
                ? aggregator.combineCombinersByKey(cast(records), context)
                : aggregator.combineValuesByKey(cast(records), context);
    }

    private Iterator<?> sort(Iterator<Product2<Object, Object>> records) {
        Option<?> aggregator = dependency.aggregator();
        if (aggregator.isDefined() && dependency.mapSideCombine()) {
            // The map side has made combiners: here they are the values.
            Aggregator<K, V, C> combined = dependency.aggregator().get();
            aggregator = Option.apply(new Aggregator<K, C, C>(value -> value, combined.mergeCombiners(), combined.mergeCombiners()));
        }
        ExternalSorter<K, Object, C> sorter = newSorter(aggregator);
        return sorter.insertAllAndUpdateMetrics(cast(records));
    }

    /** Spark 4.1 added a parameter: checksums of the map side, empty here. */
    private ExternalSorter<K, Object, C> newSorter(Option<?> aggregator) {
        try {
            Constructor<?> constructor = ExternalSorter.class.getConstructors()[0];
            Class<?>[] types = constructor.getParameterTypes();
            Object[] arguments = new Object[types.length];
            arguments[0] = context;
            arguments[1] = aggregator;
            arguments[2] = Option.empty();
            arguments[3] = dependency.keyOrdering();
            arguments[4] = dependency.serializer();
            for (int at = 5; at < types.length; at++) {
                arguments[at] = Array.newInstance(types[at].getComponentType(), 0);
            }
            return cast(constructor.newInstance(arguments));
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException("this version of Spark has another ExternalSorter", e);
        }
    }

    @SuppressWarnings("unchecked")
    private static <T> T cast(Object value) {
        return (T) value;
    }

    /** The records of all blocks. Counts them, and merges the task's metrics at the end. */
    private final class Records extends AbstractIterator<Product2<Object, Object>> {
        private final Iterator<Tuple2<BlockId, InputStream>> streams;
        private final SerializerInstance serializer;
        private Iterator<Tuple2<Object, Object>> records;
        private boolean isMerged;

        Records(Iterator<Tuple2<BlockId, InputStream>> streams, SerializerInstance serializer) {
            this.streams = streams;
            this.serializer = serializer;
        }

        @Override
        public boolean hasNext() {
            while (records == null || !records.hasNext()) {
                if (!streams.hasNext()) {
                    if (!isMerged) {
                        isMerged = true;
                        context.taskMetrics().mergeShuffleReadMetrics();
                    }
                    return false;
                }
                records = serializer.deserializeStream(streams.next()._2()).asKeyValueIterator();
            }
            return true;
        }

        @Override
        public Product2<Object, Object> next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            metrics.incRecordsRead(1);
            return records.next();
        }
    }
}
