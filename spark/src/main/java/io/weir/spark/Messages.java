package io.weir.spark;

import io.weir.flow.HostPort;

/** Messages of executors to the driver. They consist of JDK types, since Spark 3.5 decodes them without the jars of the application. */
final class Messages {
    private static final String EXECUTOR = "executor";
    private static final String PEER = "peer";
    private static final String MAP = "map";
    private static final String READER = "reader";

    private Messages() {}

    /** What the driver does with messages. Return values are the answers. */
    interface Handler {
        /** An executor accepts requests. Returns its number among the executors that run; negative if no number is free. */
        int onExecutor(String executor, Peers.Peer peer);

        /** Returns null if the executor is unknown. */
        Peers.Peer onPeer(String executor);

        /** A map task has written partitions of these lengths. */
        void onMapOutput(int shuffle, int map, String region, long[] lengths);

        /** A task reads partitions [startPartition, endPartition) of maps [startMap, endMap). */
        void onReader(int shuffle, int stage, int task, String region, int startMap, int endMap, int startPartition, int endPartition);
    }

    static Object[] executor(String executor, Peers.Peer peer) {
        return new Object[] {EXECUTOR, executor, peer.region, peer.address.toString()};
    }

    static Object[] peer(String executor) {
        return new Object[] {PEER, executor};
    }

    static Object[] mapOutput(int shuffle, int map, String region, long[] lengths) {
        return new Object[] {MAP, shuffle, map, region, lengths};
    }

    static Object[] reader(int shuffle, int stage, int task, String region, int startMap, int endMap, int startPartition,
            int endPartition) {
        return new Object[] {READER, shuffle, stage, task, region, startMap, endMap, startPartition, endPartition};
    }

    /** Decodes the answer to `peer`: null if the executor is unknown. */
    static Peers.Peer decodePeer(Object answer) {
        Object[] fields = (Object[]) answer;
        return fields.length == 0 ? null : new Peers.Peer((String) fields[0], HostPort.parse((String) fields[1]));
    }

    static Object dispatch(Object message, Handler handler) {
        Object[] fields = (Object[]) message;
        switch ((String) fields[0]) {
            case EXECUTOR:
                return handler.onExecutor((String) fields[1], new Peers.Peer((String) fields[2], HostPort.parse((String) fields[3])));
            case PEER:
                Peers.Peer peer = handler.onPeer((String) fields[1]);
                return peer == null ? new Object[0] : new Object[] {peer.region, peer.address.toString()};
            case MAP:
                handler.onMapOutput((Integer) fields[1], (Integer) fields[2], (String) fields[3], (long[]) fields[4]);
                return true;
            case READER:
                handler.onReader((Integer) fields[1], (Integer) fields[2], (Integer) fields[3], (String) fields[4],
                        (Integer) fields[5], (Integer) fields[6], (Integer) fields[7], (Integer) fields[8]);
                return true;
            default:
                throw new IllegalArgumentException("unknown message: " + fields[0]);
        }
    }
}
