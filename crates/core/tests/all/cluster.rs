//! Saba section 5.3: k-means and hierarchical clustering against examples by hand and against their
//! definitions.

use std::num::NonZeroUsize;

use proptest::prelude::*;
use weir_core::model::BitSet;
use weir_core::solve::cluster::{Dendrogram, Point, k_means};

fn point_on_line(x: f64) -> Point {
    [x, 0.0, 0.0, 0.0]
}

fn count(k: usize) -> NonZeroUsize {
    NonZeroUsize::new(k).unwrap()
}

fn squared_distance(a: &Point, b: &Point) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum()
}

fn set_of(members: &[usize]) -> BitSet {
    let mut mask = BitSet::default();
    for &member in members {
        mask.insert(member);
    }
    mask
}

/// Points with some duplicates.
fn points_with_duplicates() -> impl Strategy<Value = Vec<Point>> {
    proptest::collection::vec(proptest::array::uniform4((-4..=4i32).prop_map(f64::from)), 1..14)
}

/// Cost of a partition: the sum of squared distances to the cluster means.
fn partition_cost(points: &[Point], cluster_by_point: &[usize]) -> f64 {
    (0..points.len())
        .map(|cluster| {
            let members: Vec<&Point> = points
                .iter()
                .zip(cluster_by_point)
                .filter(|(_, own)| **own == cluster)
                .map(|(p, _)| p)
                .collect();
            let mean = std::array::from_fn(|i| {
                members.iter().map(|p| p[i]).sum::<f64>() / members.len().max(1) as f64
            });
            members.iter().map(|p| squared_distance(p, &mean)).sum::<f64>()
        })
        .sum()
}

proptest! {
    #[test]
    fn k_means_assigns_every_point_to_the_nearest_mean(points in points_with_duplicates(), clusters in 1usize..6) {
        let weighted: Vec<_> = points.iter().map(|&p| (p, 1)).collect();
        let found = k_means(&weighted, count(clusters));
        let mut different = points.clone();
        different.sort_by(|a, b| a.partial_cmp(b).unwrap());
        different.dedup();
        prop_assert_eq!(found.centres.len(), clusters.min(different.len()));
        for (point, &own) in points.iter().zip(&found.cluster_by_point) {
            let nearest = found.centres.iter().map(|c| squared_distance(point, c)).fold(f64::INFINITY, f64::min);
            prop_assert!(squared_distance(point, &found.centres[own]) <= nearest + 1e-12);
        }
        for (cluster, centre) in found.centres.iter().enumerate() {
            let members: Vec<_> = points.iter().zip(&found.cluster_by_point).filter(|(_, own)| **own == cluster).map(|(p, _)| p).collect();
            prop_assert!(!members.is_empty());
            for i in 0..4 {
                let mean = members.iter().map(|p| p[i]).sum::<f64>() / members.len() as f64;
                prop_assert!((mean - centre[i]).abs() < 1e-12);
            }
        }
        // Clusters are numbered in the order of their first points.
        let mut seen = 0;
        for &own in &found.cluster_by_point {
            prop_assert!(own <= seen);
            seen = seen.max(own + 1);
        }
    }

    #[test]
    fn k_means_treats_a_count_as_repeated_points(points in points_with_duplicates(), counts in proptest::collection::vec(1u32..4, 14), clusters in 1usize..5) {
        let weighted: Vec<_> = points.iter().zip(&counts).map(|(&p, &n)| (p, n)).collect();
        let repeated: Vec<_> = weighted.iter().flat_map(|&(p, n)| (0..n).map(move |_| (p, 1))).collect();
        let (short, long) = (k_means(&weighted, count(clusters)), k_means(&repeated, count(clusters)));
        let of: Vec<usize> = short.cluster_by_point.iter().zip(&counts).flat_map(|(&c, &n)| (0..n).map(move |_| c)).collect();
        prop_assert_eq!(of, long.cluster_by_point);
    }

    #[test]
    fn k_means_finds_well_separated_groups(sizes in proptest::collection::vec(1usize..5, 1..5), shake in proptest::collection::vec(-1.0..1.0f64, 20)) {
        // The groups are optimal: each is far smaller than the distance to the next one. Small instances are
        // checked exhaustively.
        let expected_clusters: Vec<usize> = sizes.iter().enumerate().flat_map(|(g, &n)| (0..n).map(move |_| g)).collect();
        let points: Vec<_> = expected_clusters.iter().zip(&shake).map(|(&g, s)| [100.0 * g as f64, *s, 0.0, 0.0]).collect();
        let weighted: Vec<_> = points.iter().map(|&p| (p, 1)).collect();
        prop_assert_eq!(&k_means(&weighted, count(sizes.len())).cluster_by_point, &expected_clusters);
        if points.len() <= 7 {
            let best = partitions(points.len(), sizes.len()).iter().map(|of| partition_cost(&points, of)).fold(f64::INFINITY, f64::min);
            prop_assert!(partition_cost(&points, &expected_clusters) <= best + 1e-9);
        }
    }

    #[test]
    fn dendrogram_merges_the_closest_pair_into_its_midpoint(points in points_with_duplicates()) {
        // Definition in section 5.3.2, without cached nearest neighbours.
        let dendrogram = Dendrogram::new(&points);
        let mut clusters: Vec<(usize, usize, Point)> = points.iter().enumerate().map(|(i, &p)| (i, i, p)).collect();
        for (round, merge) in dendrogram.merges().iter().enumerate() {
            let mut best = (0, 1);
            for i in 0..clusters.len() {
                for j in i + 1..clusters.len() {
                    if squared_distance(&clusters[i].2, &clusters[j].2) < squared_distance(&clusters[best.0].2, &clusters[best.1].2) {
                        best = (i, j);
                    }
                }
            }
            let (a, b) = (clusters[best.0], clusters[best.1]);
            let centre = std::array::from_fn(|i| 0.5 * a.2[i] + 0.5 * b.2[i]);
            prop_assert_eq!((merge.earlier_cluster, merge.later_cluster, merge.centre), (a.1, b.1, centre));
            clusters[best.0] = (a.0, points.len() + round, centre);
            clusters.remove(best.1);
        }
        prop_assert_eq!(clusters.len(), 1);
    }

    #[test]
    fn cut_selects_the_first_level_with_few_enough_clusters(points in points_with_duplicates(), present in proptest::collection::vec(any::<bool>(), 14), queues in 1usize..6) {
        let members: Vec<usize> = (0..points.len()).filter(|&p| present[p]).collect();
        let dendrogram = Dendrogram::new(&points);
        let cut = dendrogram.cut(&set_of(&members), count(queues));
        let mut level: Vec<Vec<usize>> = (0..points.len()).map(|p| vec![p]).collect();
        let mut names: Vec<usize> = (0..points.len()).collect();
        let present_clusters = |level: &[Vec<usize>]| level.iter().filter(|c| c.iter().any(|p| present[*p])).count();
        let mut expected = 1;
        for (round, merge) in dendrogram.merges().iter().enumerate() {
            if present_clusters(&level) <= queues {
                break;
            }
            let at = |name| names.iter().position(|n| *n == name).unwrap();
            let (a, b) = (at(merge.earlier_cluster), at(merge.later_cluster));
            let removed_level = level[b].clone();
            level[a].extend(removed_level);
            names[a] = points.len() + round;
            level.remove(b);
            names.remove(b);
            expected += 1;
        }
        prop_assert_eq!(cut.level, expected);
        prop_assert_eq!(cut.cluster_count, present_clusters(&level));
        prop_assert!(cut.cluster_count <= queues);
        for cluster in &level {
            // All members of a cluster stay together.
            prop_assert!(cluster.iter().all(|&p| cut.cluster_by_point[p] == cut.cluster_by_point[cluster[0]]));
        }
        for (i, a) in level.iter().enumerate() {
            for b in &level[..i] {
                let concern = |c: &[usize]| c.iter().any(|&p| present[p]);
                if concern(a) && concern(b) {
                    prop_assert!(cut.cluster_by_point[a[0]] != cut.cluster_by_point[b[0]]);
                }
            }
        }
        prop_assert!(cut.cluster_by_point.iter().all(|&c| c < cut.cluster_count.max(1)));
    }
}

/// All partitions of `n` points into at most `max_clusters` clusters.
fn partitions(n: usize, max_clusters: usize) -> Vec<Vec<usize>> {
    (0..n).fold(vec![Vec::new()], |all, _| {
        all.iter()
            .flat_map(|of| (0..max_clusters).map(move |c| of.iter().copied().chain([c]).collect::<Vec<_>>()))
            .collect()
    })
}

#[test]
fn k_means_on_a_line_matches_hand_computation() {
    // The mean is 4, so the seeds are 3 (first of the nearest), 10 and 0. The final clusters are {0, 1}, {2,
    // 3} and {10, 8}.
    let points: Vec<_> = [0.0, 1.0, 2.0, 3.0, 10.0, 8.0].iter().map(|&x| (point_on_line(x), 1)).collect();
    let found = k_means(&points, count(3));
    assert_eq!(found.cluster_by_point, [0, 0, 1, 1, 2, 2]);
    assert_eq!(found.centres, [point_on_line(0.5), point_on_line(2.5), point_on_line(9.0)]);
}

#[test]
fn clustering_of_zero_points_has_zero_clusters() {
    let found = k_means(&[], count(3));
    assert!(found.cluster_by_point.is_empty() && found.centres.is_empty());
    let cut = Dendrogram::new(&[]).cut(&set_of(&[]), count(1));
    assert_eq!((cut.level, cut.cluster_count, cut.cluster_by_point.len()), (1, 0, 0));
}

#[test]
fn dendrogram_cut_depends_on_the_points_present_at_the_port() {
    // Section 5.3.2, steps (a) to (c). Priority levels are 0, 1, 4, 6 and 20. The merge order is 0 and 1
    // (into 0.5), 4 and 6 (into 5), 0.5 and 5 (into 2.75), then all.
    let dendrogram = Dendrogram::new(&[0.0, 1.0, 4.0, 6.0, 20.0].map(point_on_line));
    let centres: Vec<f64> = dendrogram.merges().iter().map(|m| m.centre[0]).collect();
    assert_eq!(centres, [0.5, 5.0, 2.75, 11.375]);
    let at = |present: &[usize], queues| dendrogram.cut(&set_of(present), count(queues));
    let all = at(&[0, 1, 2, 3, 4], 3);
    assert_eq!((all.level, all.cluster_count, all.cluster_by_point), (3, 3, vec![0, 0, 1, 1, 2]));
    // A port that carries fewer applications separates them with the same number of queues.
    let few = at(&[0, 1, 4], 3);
    assert_eq!((few.level, few.cluster_count), (1, 3));
    assert_eq!((few.cluster_by_point[0], few.cluster_by_point[1], few.cluster_by_point[4]), (0, 1, 2));
    // Points 4 and 6 do not use this port. They take the cluster that they would merge into, with 0 and 1;
    // its first point is 0.
    assert_eq!(few.cluster_by_point[2..4], [0, 0]);
    let two = at(&[0, 1, 4], 2);
    assert_eq!((two.level, two.cluster_count, two.cluster_by_point), (2, 2, vec![0, 0, 0, 0, 1]));
    assert_eq!(at(&[0, 4], 1).level, 5);
}
