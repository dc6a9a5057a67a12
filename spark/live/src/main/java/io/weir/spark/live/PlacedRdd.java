package io.weir.spark.live;

import java.util.Collections;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.rdd.RDD;
import scala.collection.Iterator;
import scala.collection.JavaConverters;
import scala.collection.Seq;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/** The same records, computed at given hosts. */
final class PlacedRdd<T> extends RDD<T> {
    private final String[] hosts;

    private PlacedRdd(RDD<T> parent, String[] hosts, ClassTag<T> type) {
        super(parent, type);
        this.hosts = hosts;
    }

    /** Computes partition N at host N. */
    static <T> JavaRDD<T> place(RDD<T> parent, String[] hosts) {
        ClassTag<T> type = ClassTag$.MODULE$.apply(Object.class);
        return new JavaRDD<>(new PlacedRdd<>(parent, hosts, type), type);
    }

    @Override
    public Iterator<T> compute(Partition partition, TaskContext context) {
        return this.<T>firstParent(elementClassTag()).iterator(partition, context);
    }

    @Override
    public Partition[] getPartitions() {
        return this.<T>firstParent(elementClassTag()).partitions();
    }

    @Override
    public Seq<String> getPreferredLocations(Partition partition) {
        return JavaConverters.asScalaBuffer(Collections.singletonList(hosts[partition.index()]));
    }
}
