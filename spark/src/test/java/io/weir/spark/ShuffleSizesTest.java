package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;

class ShuffleSizesTest {
    private static final Map<String, Double> HALVES = new HashMap<>();

    static {
        HALVES.put("east", 0.5);
        HALVES.put("west", 0.5);
    }

    private final ShuffleSizes sizes = new ShuffleSizes();

    /** The bytes of each flow: `west>east 3` is flow group 3 from west to east. */
    private static String describe(List<ShuffleSizes.Flow> flows) {
        Map<String, Long> bytes = new TreeMap<>();
        for (ShuffleSizes.Flow flow : flows) {
            assertEquals(flow.firstNumber + FlowNumbers.first(1) - 1, flow.lastNumber);
            bytes.put(flow.from + ">" + flow.to + " " + flow.firstNumber / FlowNumbers.first(1), flow.bytes);
        }
        return bytes.toString();
    }

    private String flows() {
        return describe(sizes.flows(HALVES, null));
    }

    @Test
    void partitions_without_a_reader_count_by_shares_of_cores() {
        sizes.addMapOutput(0, "west", new long[] {100, 200});
        sizes.addMapOutput(1, "east", new long[] {10, 30});
        String expected = "{east>east 0=5, east>east 1=15, east>west 0=5, east>west 1=15, "
                + "west>east 0=50, west>east 1=100, west>west 0=50, west>west 1=100}";
        assertEquals(expected, flows());
        // A speculative attempt of map task 1.
        sizes.addMapOutput(1, "west", new long[] {10, 30});
        assertEquals(expected, flows());
    }

    @Test
    void readers_make_sizes_exact() {
        sizes.addMapOutput(0, "west", new long[] {100, 200});
        sizes.addMapOutput(1, "east", new long[] {10, 30});
        sizes.addReader(2, 0, "west", 0, Integer.MAX_VALUE, 0, 1);
        assertEquals("{east>east 1=15, east>west 0=10, east>west 1=15, west>east 1=100, west>west 0=100, west>west 1=100}", flows());
        sizes.addReader(2, 1, "east", 0, Integer.MAX_VALUE, 1, 2);
        String expected = "{east>east 1=30, east>west 0=10, west>east 1=200, west>west 0=100}";
        assertEquals(expected, flows());
        // A speculative attempt in the other region.
        sizes.addReader(2, 1, "west", 0, Integer.MAX_VALUE, 1, 2);
        assertEquals(expected, flows());
    }

    @Test
    void partitions_of_one_reader_count_at_the_group_of_the_first() {
        sizes.addMapOutput(0, "west", new long[] {1, 20, 300, 4000});
        sizes.addReader(2, 0, "east", 0, 1, 1, 3);
        assertEquals("{west>east 0=1, west>east 1=320, west>east 3=2000, west>west 0=1, west>west 3=2000}", flows());
        sizes.addReader(2, 1, "east", 0, 1, 0, 1);
        sizes.addReader(2, 2, "west", 0, 1, 3, 4);
        assertEquals("{west>east 0=1, west>east 1=320, west>west 3=4000}", flows());
        // Another stage reads all partitions at once.
        sizes.addReader(3, 0, "east", 0, 1, 0, 4);
        assertEquals("{west>east 0=4322, west>east 1=320, west>west 3=4000}", flows());
    }

    @Test
    void reader_of_some_map_tasks_counts_by_their_number() {
        for (int map = 0; map < 4; map++) {
            sizes.addMapOutput(map, "west", new long[] {100});
        }
        sizes.addReader(2, 0, "east", 0, 1, 0, 1);
        sizes.addReader(2, 1, "west", 1, 4, 0, 1);
        assertEquals("{west>east 0=100, west>west 0=300}", flows());
    }

    @Test
    void last_stage_ends_the_coflow_and_a_later_one_begins_it_again() {
        sizes.addMapOutput(0, "west", new long[] {100});
        sizes.addReader(2, 0, "east", 0, 1, 0, 1);
        sizes.addReader(3, 0, "east", 0, 1, 0, 1);
        assertFalse(sizes.endStage(1));
        assertFalse(sizes.endStage(2));
        assertTrue(sizes.endStage(3));
        sizes.addReader(4, 0, "east", 0, 1, 0, 1);
        assertEquals("{west>east 0=100}", flows());
    }

    @Test
    void no_bytes_between_regions_are_no_flows() {
        assertEquals("{}", flows());
        sizes.addMapOutput(0, "west", new long[] {0, 0});
        assertEquals("{}", flows());
        assertEquals("[]", CoordinatorClient.encode(sizes.flows(Collections.emptyMap(), null)));
        sizes.addMapOutput(1, "west", new long[] {5, 5});
        assertEquals("{}", describe(sizes.flows(Collections.singletonMap("west", 1.0), null)));
    }

    @Test
    void flows_are_encoded_with_their_numbers() {
        sizes.addMapOutput(0, "west", new long[] {0, 7});
        sizes.addReader(2, 0, "east", 0, 1, 1, 2);
        assertEquals("[{\"from\":\"west\",\"to\":\"east\",\"bytes\":7,\"numbers\":[4194304,8388607]}]",
                CoordinatorClient.encode(sizes.flows(HALVES, null)));
    }

    @Test
    void registered_groups_are_bounded_and_contain_the_numbers_of_all_partitions() {
        for (int partitions : new int[] {1, 5, 1023, 1024, 1025, 20_000}) {
            for (int regions : new int[] {2, 3, 5, 32}) {
                ShuffleSizes sizes = new ShuffleSizes();
                Map<String, Double> shares = new HashMap<>();
                long[] lengths = new long[partitions];
                Arrays.fill(lengths, 1000);
                for (int region = 0; region < regions; region++) {
                    sizes.addMapOutput(region, "r" + region, lengths);
                    shares.put("r" + region, 1.0 / regions);
                }
                List<ShuffleSizes.Flow> flows = sizes.flows(shares, null);
                assertTrue(flows.size() <= ShuffleSizes.MAX_FLOWS, partitions + " " + regions + " " + flows.size());
                int groups = Math.min(Math.min(partitions, 1024), 8192 / regions / regions);
                assertEquals(groups * regions * regions, flows.size());
                long next = 0;
                long bytes = 0;
                for (ShuffleSizes.Flow flow : flows.subList(0, groups)) {
                    assertEquals(next, flow.firstNumber);
                    next = flow.lastNumber + 1;
                    bytes += flow.bytes;
                }
                assertEquals(FlowNumbers.first(FlowNumbers.groups(partitions)), next);
                assertEquals(1000.0 * partitions / regions, bytes, groups);
            }
        }
    }

    @Test
    void ranges_of_groups_do_not_change_while_map_tasks_of_further_regions_end() {
        Map<String, Double> shares = new HashMap<>();
        long[] lengths = new long[1024];
        Arrays.fill(lengths, 1000);
        for (int region = 0; region < 5; region++) {
            shares.put("r" + region, 0.2);
        }
        // A reader may start before the first map task has reported.
        sizes.addReader(7, 0, "r1", 0, 1, 0, 1);
        assertEquals(0, sizes.flows(shares, null).size());
        sizes.endStage(7);
        for (int region = 0; region < 5; region++) {
            sizes.addMapOutput(region, "r" + region, lengths);
            List<ShuffleSizes.Flow> flows = sizes.flows(shares, null);
            assertEquals(8192 / 25, flows.stream().map(flow -> flow.firstNumber + " " + flow.lastNumber).distinct().count());
        }
        // An executor that exits makes no groups smaller.
        shares.keySet().retainAll(Arrays.asList("r0", "r1"));
        assertEquals(8192 / 25, sizes.flows(shares, null).stream().map(flow -> flow.firstNumber).distinct().count());
    }

    @Test
    void flows_of_unknown_regions_do_not_count() {
        sizes.addMapOutput(0, "west", new long[] {100});
        sizes.addMapOutput(1, "wset", new long[] {100});
        sizes.addReader(2, 0, "east", 0, 2, 0, 1);
        Set<String> known = new TreeSet<>(Arrays.asList("west", "east"));
        assertEquals("{west>east 0=100}", describe(sizes.flows(HALVES, known)));
        assertEquals("{}", describe(sizes.flows(HALVES, Collections.singleton("east"))));
        assertEquals("{west>east 0=100, wset>east 0=100}", describe(sizes.flows(HALVES, null)));
    }

    @Test
    void hash_of_flows_depends_on_every_field() {
        ShuffleSizes.Flow flow = new ShuffleSizes.Flow("a", "b", 1, 0, 9);
        Set<Long> hashes = new TreeSet<>();
        for (ShuffleSizes.Flow other : new ShuffleSizes.Flow[] {
            flow, new ShuffleSizes.Flow("b", "a", 1, 0, 9), new ShuffleSizes.Flow("a", "c", 1, 0, 9), new ShuffleSizes.Flow("a", "b", 2, 0, 9),
            new ShuffleSizes.Flow("a", "b", 1, 1, 9), new ShuffleSizes.Flow("a", "b", 1, 0, 10),
        }) {
            hashes.add(ShuffleSizes.hash(Collections.singletonList(other)));
        }
        hashes.add(ShuffleSizes.hash(Arrays.asList(flow, flow)));
        hashes.add(ShuffleSizes.hash(Collections.emptyList()));
        assertEquals(8, hashes.size());
        assertTrue(hashes.contains(ShuffleSizes.hash(Collections.singletonList(new ShuffleSizes.Flow("a", "b", 1, 0, 9)))));
    }

    @Test
    void sizes_equal_a_sum_over_blocks_for_random_placements() {
        for (int seed = 0; seed < 50; seed++) {
            Random random = new Random(seed);
            ShuffleSizes sizes = new ShuffleSizes();
            String[] regions = {"a", "b", "c"};
            int maps = 1 + random.nextInt(10);
            int partitions = 1 + random.nextInt(10);
            long[][] lengths = new long[maps][partitions];
            String[] mapRegions = new String[maps];
            String[] readRegions = new String[partitions];
            for (int map = 0; map < maps; map++) {
                mapRegions[map] = regions[random.nextInt(3)];
                for (int partition = 0; partition < partitions; partition++) {
                    lengths[map][partition] = random.nextInt(1000);
                }
                sizes.addMapOutput(map, mapRegions[map], lengths[map]);
            }
            for (int partition = 0; partition < partitions; partition++) {
                readRegions[partition] = regions[random.nextInt(3)];
                sizes.addReader(1, partition, readRegions[partition], 0, maps, partition, partition + 1);
            }
            Map<String, Long> expected = new TreeMap<>();
            boolean isBetweenRegions = false;
            for (int map = 0; map < maps; map++) {
                for (int partition = 0; partition < partitions; partition++) {
                    if (lengths[map][partition] > 0) {
                        String flow = mapRegions[map] + ">" + readRegions[partition] + " " + partition;
                        expected.merge(flow, lengths[map][partition], Long::sum);
                        isBetweenRegions |= !mapRegions[map].equals(readRegions[partition]);
                    }
                }
            }
            assertEquals(isBetweenRegions ? expected.toString() : "{}", describe(sizes.flows(HALVES, null)));
        }
    }
}
