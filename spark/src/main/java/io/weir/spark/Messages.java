package io.weir.spark;

import io.weir.flow.HostPort;
import java.util.Map;
import java.util.TreeMap;

/** Messages of executors to the driver. They consist of JDK types, since Spark 3.5 decodes them without the jars of the application. */
final class Messages {
    private static final String EXECUTOR = "executor";
    private static final String PEER = "peer";
    private static final String MAP = "map";
    private static final String READER = "reader";
    private static final String BYPASS = "bypass";
    private static final String PATHS = "paths";
    private static final String PROBLEM = "problem";

    private Messages() {}

    /** What the driver does with messages. Return values are the answers. */
    interface Handler {
        /** An executor accepts requests. */
        Admission onExecutor(String executor, Peers.Peer peer);

        /** An executor, `asker`, requests the address of another one. */
        Peers.Answer onPeer(String asker, String executor);

        /** A map task has written partitions of these lengths. */
        void onMapOutput(int shuffle, int map, String region, long[] lengths);

        /** A task reads partitions [startPartition, endPartition) of maps [startMap, endMap). */
        void onReader(int shuffle, int stage, int task, String region, int startMap, int endMap, int startPartition, int endPartition);

        /** All tasks that read a shuffle use Spark's own fetch. */
        void onBypass(int shuffle);

        /** How data of a shuffle arrived at or left an executor: {@link PathCounts}. */
        void onPaths(int shuffle, Map<String, Long> counts);

        /** An executor cannot do all that it should. Problems of the same kind are logged once. */
        void onProblem(String kind, String text);
    }

    /** The driver's answer to an executor. */
    static final class Admission {
        /** The number among the executors that run; negative if no number is free. */
        final int number;
        /** Why the executor uses Spark's own fetch only; null if it does not. */
        final String refusal;

        Admission(int number, String refusal) {
            this.number = number;
            this.refusal = refusal;
        }
    }

    static Object[] executor(String executor, Peers.Peer peer) {
        return new Object[] {EXECUTOR, executor, peer.region, peer.address.toString()};
    }

    static Object[] peer(String asker, String executor) {
        return new Object[] {PEER, asker, executor};
    }

    static Object[] mapOutput(int shuffle, int map, String region, long[] lengths) {
        return new Object[] {MAP, shuffle, map, region, lengths};
    }

    static Object[] reader(int shuffle, int stage, int task, String region, int startMap, int endMap, int startPartition,
            int endPartition) {
        return new Object[] {READER, shuffle, stage, task, region, startMap, endMap, startPartition, endPartition};
    }

    static Object[] bypass(int shuffle) {
        return new Object[] {BYPASS, shuffle};
    }

    static Object[] paths(int shuffle, Map<String, Long> counts) {
        return new Object[] {PATHS, shuffle, new TreeMap<>(counts)};
    }

    static Object[] problem(String kind, String text) {
        return new Object[] {PROBLEM, kind, text};
    }

    static Admission decodeAdmission(Object answer) {
        Object[] fields = (Object[]) answer;
        return new Admission((Integer) fields[0], (String) fields[1]);
    }

    /** Decodes the answer to `peer`. */
    static Peers.Answer decodePeer(Object answer) {
        Object[] fields = (Object[]) answer;
        Peers.Peer peer = fields[0] == null ? null : new Peers.Peer((String) fields[0], HostPort.parse((String) fields[1]));
        return new Peers.Answer(peer, (String) fields[2], (Boolean) fields[3]);
    }

    private static Object[] encode(Peers.Answer answer) {
        Peers.Peer peer = answer.peer;
        return new Object[] {peer == null ? null : peer.region, peer == null ? null : peer.address.toString(), answer.refusal,
            answer.isProvisional};
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Long> decodeCounts(Object counts) {
        return (Map<String, Long>) counts;
    }

    /** Returns the answer; null to messages without one, since Spark logs each answer to those. */
    static Object dispatch(Object message, Handler handler) {
        Object[] fields = (Object[]) message;
        switch ((String) fields[0]) {
            case EXECUTOR:
                Peers.Peer added = new Peers.Peer((String) fields[2], HostPort.parse((String) fields[3]));
                Admission admission = handler.onExecutor((String) fields[1], added);
                return new Object[] {admission.number, admission.refusal};
            case PEER:
                return encode(handler.onPeer((String) fields[1], (String) fields[2]));
            case MAP:
                handler.onMapOutput((Integer) fields[1], (Integer) fields[2], (String) fields[3], (long[]) fields[4]);
                return null;
            case READER:
                handler.onReader((Integer) fields[1], (Integer) fields[2], (Integer) fields[3], (String) fields[4],
                        (Integer) fields[5], (Integer) fields[6], (Integer) fields[7], (Integer) fields[8]);
                return null;
            case BYPASS:
                handler.onBypass((Integer) fields[1]);
                return null;
            case PATHS:
                handler.onPaths((Integer) fields[1], decodeCounts(fields[2]));
                return null;
            case PROBLEM:
                handler.onProblem((String) fields[1], (String) fields[2]);
                return null;
            default:
                throw new IllegalArgumentException("unknown message: " + fields[0]);
        }
    }
}
