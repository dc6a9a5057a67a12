package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;

class ShuffleSizesTest {
    private static final Map<String, Double> HALVES = new HashMap<>();

    static {
        HALVES.put("east", 0.5);
        HALVES.put("west", 0.5);
    }

    private final ShuffleSizes sizes = new ShuffleSizes();

    private String flows() {
        return CoordinatorClient.encode(sizes.flows(HALVES));
    }

    private static String flows(long eastToWest, long westToEast) {
        return "[{\"from\":\"east\",\"to\":\"west\",\"bytes\":" + eastToWest + "},{\"from\":\"west\",\"to\":\"east\",\"bytes\":"
                + westToEast + "}]";
    }

    @Test
    void partitions_without_a_reader_count_by_shares_of_cores() {
        sizes.addMapOutput(0, "west", new long[] {100, 200});
        sizes.addMapOutput(1, "east", new long[] {10, 30});
        assertEquals(flows(20, 150), flows());
        // A speculative attempt of map task 1.
        sizes.addMapOutput(1, "west", new long[] {10, 30});
        assertEquals(flows(20, 150), flows());
    }

    @Test
    void readers_make_sizes_exact() {
        sizes.addMapOutput(0, "west", new long[] {100, 200});
        sizes.addMapOutput(1, "east", new long[] {10, 30});
        sizes.addReader(2, 0, "west", 0, Integer.MAX_VALUE, 0, 1);
        assertEquals(flows(10 + 15, 100), flows());
        sizes.addReader(2, 1, "east", 0, Integer.MAX_VALUE, 1, 2);
        assertEquals(flows(10, 200), flows());
        // A speculative attempt in the other region.
        sizes.addReader(2, 1, "west", 0, Integer.MAX_VALUE, 1, 2);
        assertEquals(flows(10, 200), flows());
    }

    @Test
    void reader_of_some_map_tasks_counts_by_their_number() {
        for (int map = 0; map < 4; map++) {
            sizes.addMapOutput(map, "west", new long[] {100});
        }
        sizes.addReader(2, 0, "east", 0, 1, 0, 1);
        sizes.addReader(2, 1, "west", 1, 4, 0, 1);
        assertEquals("[{\"from\":\"west\",\"to\":\"east\",\"bytes\":100}]", flows());
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
        assertEquals("[{\"from\":\"west\",\"to\":\"east\",\"bytes\":100}]", flows());
    }

    @Test
    void no_output_is_no_flow() {
        assertEquals("[]", flows());
        sizes.addMapOutput(0, "west", new long[] {0, 0});
        assertEquals("[]", flows());
        assertEquals("[]", CoordinatorClient.encode(sizes.flows(Collections.emptyMap())));
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
            Map<String, Long> expected = new HashMap<>();
            for (int map = 0; map < maps; map++) {
                for (int partition = 0; partition < partitions; partition++) {
                    if (!mapRegions[map].equals(readRegions[partition])) {
                        expected.merge(mapRegions[map] + readRegions[partition], lengths[map][partition], Long::sum);
                    }
                }
            }
            expected.values().removeIf(bytes -> bytes == 0);
            Map<String, Long> flows = new HashMap<>();
            sizes.flows(HALVES).forEach(flow -> flows.put(flow.from + flow.to, flow.bytes));
            assertEquals(expected, flows);
        }
    }
}
