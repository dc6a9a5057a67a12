package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.weir.flow.HostPort;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.apache.spark.SparkConf;
import org.junit.jupiter.api.Test;

class CodecTest {
    private static final byte[] KEY = "0123456789abcdef".getBytes();
    private static final String[] IDS = {"shuffle_0_1_2", "shuffle_0_3_4", "shuffle_0_5_6_8"};

    /** Collects blocks in the form `index:data`. */
    private static final class Collector implements BlockFrames.Targets {
        final List<String> complete = new ArrayList<>();
        int discarded;

        @Override
        public BlockFrames.Target open(int index, long length) {
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            return new BlockFrames.Target() {
                @Override
                public void write(byte[] data, int from, int n) {
                    bytes.write(data, from, n);
                }

                @Override
                public void complete() {
                    complete.add(index + ":" + bytes);
                }

                @Override
                public void discard() {
                    discarded++;
                }
            };
        }
    }

    private static byte[] encode(String... blocks) throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        out.write(KEY);
        for (int index = 0; index < blocks.length; index++) {
            BlockFrames.write(out, index, IDS[index], blocks[index].length(), new ByteArrayInputStream(blocks[index].getBytes()));
        }
        return out.toByteArray();
    }

    @Test
    void blocks_arrive_whatever_the_slices() throws IOException {
        byte[] flow = encode("first", "", "the third block");
        for (int seed = 0; seed < 100; seed++) {
            Random random = new Random(seed);
            Collector collector = new Collector();
            BlockFrames.Reader reader = new BlockFrames.Reader(KEY, IDS, collector);
            for (int at = 0; at < flow.length; ) {
                int n = Math.min(flow.length - at, 1 + random.nextInt(20));
                reader.receive(Arrays.copyOfRange(flow, at, at + n), n);
                at += n;
            }
            reader.end();
            assertEquals(Arrays.asList("0:first", "1:", "2:the third block"), collector.complete);
        }
    }

    @Test
    void no_flipped_bit_reaches_a_complete_block() throws IOException {
        byte[] flow = encode("first");
        for (int bit = 0; bit < flow.length * 8; bit++) {
            byte[] corrupt = flow.clone();
            corrupt[bit / 8] ^= 1 << bit % 8;
            Collector collector = new Collector();
            BlockFrames.Reader reader = new BlockFrames.Reader(KEY, IDS, collector);
            assertThrows(IOException.class, () -> {
                reader.receive(corrupt, corrupt.length);
                reader.end();
            }, "bit " + bit);
            assertEquals(Collections.emptyList(), collector.complete);
        }
    }

    @Test
    void incomplete_block_is_discarded() throws IOException {
        byte[] flow = encode("first");
        Collector collector = new Collector();
        BlockFrames.Reader reader = new BlockFrames.Reader(KEY, IDS, collector);
        reader.receive(flow, flow.length - 1);
        assertThrows(IOException.class, reader::end);
        reader.discard();
        assertEquals(1, collector.discarded);
        assertThrows(IOException.class, () -> reader.receive(new byte[1], 1));
    }

    @Test
    void source_that_is_too_short_fails() {
        ByteArrayInputStream data = new ByteArrayInputStream(new byte[3]);
        assertThrows(IOException.class, () -> BlockFrames.write(new ByteArrayOutputStream(), 0, IDS[0], 4, data));
    }

    @Test
    void requests_round_trip_and_forged_ones_are_refused() throws IOException {
        byte[] secret = "secret".getBytes();
        BlockRequest request =
                new BlockRequest("7", "spark-app-shuffle1", 1 << 18, HostPort.parse("10.0.0.3:7000"), KEY, IDS);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        request.write(out, secret);
        int line = BlockRequest.PROTOCOL.length() + 1;
        byte[] body = Arrays.copyOfRange(out.toByteArray(), line, out.size());
        BlockRequest read = BlockRequest.read(new ByteArrayInputStream(body), secret);
        assertEquals("7 spark-app-shuffle1 262144 10.0.0.3:7000", read.executor + " " + read.coflow + " " + read.flow + " " + read.receiver);
        assertArrayEquals(KEY, read.key);
        assertArrayEquals(IDS, read.blocks);

        assertThrows(IOException.class, () -> BlockRequest.read(new ByteArrayInputStream(body), "other".getBytes()));
        for (int at = 0; at < body.length; at++) {
            byte[] forged = body.clone();
            forged[at] ^= 1;
            assertThrows(IOException.class, () -> BlockRequest.read(new ByteArrayInputStream(forged), secret));
            byte[] truncated = Arrays.copyOf(body, at);
            assertThrows(IOException.class, () -> BlockRequest.read(new ByteArrayInputStream(truncated), secret));
        }
    }

    @Test
    void encrypted_transfers_require_encrypted_blocks() {
        SparkConf conf = new SparkConf(false);
        assertFalse(Settings.wouldExposeBlocks(conf, null));
        assertTrue(Settings.wouldExposeBlocks(conf.set("spark.network.crypto.enabled", "true"), null));
        assertFalse(Settings.wouldExposeBlocks(conf.set("spark.io.encryption.enabled", "true"), null));
    }

    @Test
    void coflow_names_have_no_spaces_and_a_bounded_length() {
        assertEquals("spark-app-1-shuffle3", Settings.coflow("app-1", 3));
        assertEquals(3, Settings.shuffle(Settings.coflow("app-shuffle7", 3)));
        assertEquals(-1, Settings.shuffle("weir-probe"));
        assertEquals(-1, Settings.shuffle("spark-app-1-shuffle"));
        assertEquals("spark-my_app_-shuffle3", Settings.coflow("my app\u00e9", 3));
        assertTrue(Settings.coflow(new String(new char[500]).replace('\0', 'a'), Integer.MAX_VALUE).length() <= 128);
    }

    @Test
    void relays_are_a_list_of_addresses() {
        SparkConf conf = new SparkConf(false);
        assertEquals("[]", Settings.relays(conf).toString());
        assertEquals("[relay-1:7711, [fd00::1]:7711]", Settings.relays(conf.set("spark.weir.relay", "relay-1:7711,[fd00::1]:7711")).toString());
        for (String text : new String[] {"relay-1", "relay-1:7711,", "relay-1:7711, relay-2:7711", "relay-1:7711 ", "relay-1:7711x"}) {
            conf.set("spark.weir.relay", text);
            String message = assertThrows(IllegalArgumentException.class, () -> Settings.relays(conf), text).getMessage();
            assertTrue(message.startsWith("spark.weir.relay: `") && message.endsWith("separated by commas without spaces"), message);
        }
    }

    @Test
    void tls_needs_all_files() throws IOException {
        SparkConf conf = new SparkConf(false);
        assertNull(Settings.tls(conf));
        conf.set("spark.weir.certificate", "program.pem");
        assertTrue(assertThrows(IllegalArgumentException.class, () -> Settings.tls(conf)).getMessage().contains("some are missing"));
        conf.set("spark.weir.key", "program.key").set("spark.weir.authority", "authority.pem");
        assertTrue(assertThrows(IOException.class, () -> Settings.tls(conf)).getMessage().startsWith("program.pem: cannot be read"));
        conf.set("spark.weir.tls.local", "yes");
        assertTrue(assertThrows(IllegalArgumentException.class, () -> Settings.tls(conf)).getMessage().contains("expected 1 or 0"));
    }

    @Test
    void relays_at_both_ends_of_flows_are_chosen_independently() {
        for (int shift : new int[] {0, 10, 22}) {
            int[] counts = new int[4];
            for (long number = 0; number < 1000; number++) {
                long flow = number << shift & 0xffff_ffffL;
                // The relay's choice: relays_for in crates/relay/src/forwarding.rs.
                int next = (int) ((flow * 0x9e3779b97f4a7c15L >>> 32) % 2);
                counts[2 * Relays.index(flow, 2) + next]++;
            }
            for (int count : counts) {
                assertTrue(count > 200 && count < 300, Arrays.toString(counts));
            }
        }
    }

    @Test
    void flows_divide_evenly_among_relays() {
        for (int shift : new int[] {0, 10, 22}) {
            int[] counts = new int[3];
            for (long flow = 0; flow < 600; flow++) {
                counts[Relays.index(flow << shift & 0xffff_ffffL, counts.length)]++;
            }
            for (int count : counts) {
                assertTrue(count > 150 && count < 250, Arrays.toString(counts));
            }
        }
    }
}
