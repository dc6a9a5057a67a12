//! Saba section 5.3: k-means and hierarchical clustering against examples by hand and against their
//! definitions.

use std::num::NonZeroUsize;

use proptest::prelude::*;
use weir_core::model::Mask;
use weir_core::solve::cluster::{Dendrogram, Point, k_means};

fn line(x: f64) -> Point {
    [x, 0.0, 0.0, 0.0]
}

fn k(k: usize) -> NonZeroUsize {
    NonZeroUsize::new(k).unwrap()
}

fn squares(a: &Point, b: &Point) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum()
}

fn mask(members: &[usize]) -> Mask {
    let mut mask = Mask::default();
    for &member in members {
        mask.insert(member);
    }
    mask
}

/// Points with some duplicates.
fn points() -> impl Strategy<Value = Vec<Point>> {
    proptest::collection::vec(proptest::array::uniform4((-4..=4i32).prop_map(f64::from)), 1..14)
}

/// Cost of a partition: the sum of squared distances to the cluster means.
fn cost(points: &[Point], of: &[usize]) -> f64 {
    (0..points.len())
        .map(|cluster| {
            let members: Vec<&Point> =
                points.iter().zip(of).filter(|(_, own)| **own == cluster).map(|(p, _)| p).collect();
            let mean = std::array::from_fn(|i| {
                members.iter().map(|p| p[i]).sum::<f64>() / members.len().max(1) as f64
            });
            members.iter().map(|p| squares(p, &mean)).sum::<f64>()
        })
        .sum()
}

proptest! {
    #[test]
    fn k_means_assigns_every_point_to_the_nearest_mean(points in points(), clusters in 1usize..6) {
        let weighted: Vec<_> = points.iter().map(|&p| (p, 1)).collect();
        let found = k_means(&weighted, k(clusters));
        let mut different = points.clone();
        different.sort_by(|a, b| a.partial_cmp(b).unwrap());
        different.dedup();
        prop_assert_eq!(found.centres.len(), clusters.min(different.len()));
        for (point, &own) in points.iter().zip(&found.of) {
            let nearest = found.centres.iter().map(|c| squares(point, c)).fold(f64::INFINITY, f64::min);
            prop_assert!(squares(point, &found.centres[own]) <= nearest + 1e-12);
        }
        for (cluster, centre) in found.centres.iter().enumerate() {
            let members: Vec<_> = points.iter().zip(&found.of).filter(|(_, own)| **own == cluster).map(|(p, _)| p).collect();
            prop_assert!(!members.is_empty());
            for i in 0..4 {
                let mean = members.iter().map(|p| p[i]).sum::<f64>() / members.len() as f64;
                prop_assert!((mean - centre[i]).abs() < 1e-12);
            }
        }
        // Clusters are numbered in the order of their first points.
        let mut seen = 0;
        for &own in &found.of {
            prop_assert!(own <= seen);
            seen = seen.max(own + 1);
        }
    }

    #[test]
    fn k_means_treats_a_count_as_repeated_points(points in points(), counts in proptest::collection::vec(1u32..4, 14), clusters in 1usize..5) {
        let weighted: Vec<_> = points.iter().zip(&counts).map(|(&p, &n)| (p, n)).collect();
        let repeated: Vec<_> = weighted.iter().flat_map(|&(p, n)| (0..n).map(move |_| (p, 1))).collect();
        let (short, long) = (k_means(&weighted, k(clusters)), k_means(&repeated, k(clusters)));
        let of: Vec<usize> = short.of.iter().zip(&counts).flat_map(|(&c, &n)| (0..n).map(move |_| c)).collect();
        prop_assert_eq!(of, long.of);
    }

    #[test]
    fn k_means_finds_well_separated_groups(sizes in proptest::collection::vec(1usize..5, 1..5), shake in proptest::collection::vec(-1.0..1.0f64, 20)) {
        // The groups are optimal: each is far smaller than the distance to the next one. Small instances are
        // checked exhaustively.
        let truth: Vec<usize> = sizes.iter().enumerate().flat_map(|(g, &n)| (0..n).map(move |_| g)).collect();
        let points: Vec<_> = truth.iter().zip(&shake).map(|(&g, s)| [100.0 * g as f64, *s, 0.0, 0.0]).collect();
        let weighted: Vec<_> = points.iter().map(|&p| (p, 1)).collect();
        prop_assert_eq!(&k_means(&weighted, k(sizes.len())).of, &truth);
        if points.len() <= 7 {
            let best = partitions(points.len(), sizes.len()).iter().map(|of| cost(&points, of)).fold(f64::INFINITY, f64::min);
            prop_assert!(cost(&points, &truth) <= best + 1e-9);
        }
    }

    #[test]
    fn dendrogram_merges_the_closest_pair_into_its_midpoint(points in points()) {
        // Definition in section 5.3.2, without cached nearest neighbours.
        let dendrogram = Dendrogram::new(&points);
        let mut clusters: Vec<(usize, usize, Point)> = points.iter().enumerate().map(|(i, &p)| (i, i, p)).collect();
        for (round, merge) in dendrogram.merges().iter().enumerate() {
            let mut best = (0, 1);
            for i in 0..clusters.len() {
                for j in i + 1..clusters.len() {
                    if squares(&clusters[i].2, &clusters[j].2) < squares(&clusters[best.0].2, &clusters[best.1].2) {
                        best = (i, j);
                    }
                }
            }
            let (a, b) = (clusters[best.0], clusters[best.1]);
            let centre = std::array::from_fn(|i| 0.5 * a.2[i] + 0.5 * b.2[i]);
            prop_assert_eq!((merge.first, merge.second, merge.centre), (a.1, b.1, centre));
            clusters[best.0] = (a.0, points.len() + round, centre);
            clusters.remove(best.1);
        }
        prop_assert_eq!(clusters.len(), 1);
    }

    #[test]
    fn cut_selects_the_first_level_with_few_enough_clusters(points in points(), present in proptest::collection::vec(any::<bool>(), 14), queues in 1usize..6) {
        let members: Vec<usize> = (0..points.len()).filter(|&p| present[p]).collect();
        let dendrogram = Dendrogram::new(&points);
        let cut = dendrogram.cut(&mask(&members), k(queues));
        let mut level: Vec<Vec<usize>> = (0..points.len()).map(|p| vec![p]).collect();
        let mut names: Vec<usize> = (0..points.len()).collect();
        let concerned = |level: &[Vec<usize>]| level.iter().filter(|c| c.iter().any(|p| present[*p])).count();
        let mut expected = 1;
        for (round, merge) in dendrogram.merges().iter().enumerate() {
            if concerned(&level) <= queues {
                break;
            }
            let at = |name| names.iter().position(|n| *n == name).unwrap();
            let (a, b) = (at(merge.first), at(merge.second));
            let gone = level[b].clone();
            level[a].extend(gone);
            names[a] = points.len() + round;
            level.remove(b);
            names.remove(b);
            expected += 1;
        }
        prop_assert_eq!(cut.level, expected);
        prop_assert_eq!(cut.clusters, concerned(&level));
        prop_assert!(cut.clusters <= queues);
        for cluster in &level {
            // All members of a cluster stay together.
            prop_assert!(cluster.iter().all(|&p| cut.of[p] == cut.of[cluster[0]]));
        }
        for (i, a) in level.iter().enumerate() {
            for b in &level[..i] {
                let concern = |c: &[usize]| c.iter().any(|&p| present[p]);
                if concern(a) && concern(b) {
                    prop_assert!(cut.of[a[0]] != cut.of[b[0]]);
                }
            }
        }
        prop_assert!(cut.of.iter().all(|&c| c < cut.clusters.max(1)));
    }
}

/// All partitions of `n` points into at most `most` clusters.
fn partitions(n: usize, most: usize) -> Vec<Vec<usize>> {
    (0..n).fold(vec![Vec::new()], |all, _| {
        all.iter()
            .flat_map(|of| (0..most).map(move |c| of.iter().copied().chain([c]).collect::<Vec<_>>()))
            .collect()
    })
}

#[test]
fn k_means_on_a_line_matches_hand_computation() {
    // The mean is 4, so the seeds are 3 (first of the nearest), 10 and 0. The final clusters are {0, 1}, {2,
    // 3} and {10, 8}.
    let points: Vec<_> = [0.0, 1.0, 2.0, 3.0, 10.0, 8.0].iter().map(|&x| (line(x), 1)).collect();
    let found = k_means(&points, k(3));
    assert_eq!(found.of, [0, 0, 1, 1, 2, 2]);
    assert_eq!(found.centres, [line(0.5), line(2.5), line(9.0)]);
}

#[test]
fn clustering_of_zero_points_has_zero_clusters() {
    let found = k_means(&[], k(3));
    assert!(found.of.is_empty() && found.centres.is_empty());
    let cut = Dendrogram::new(&[]).cut(&mask(&[]), k(1));
    assert_eq!((cut.level, cut.clusters, cut.of.len()), (1, 0, 0));
}

#[test]
fn dendrogram_cut_depends_on_the_points_present_at_the_port() {
    // Section 5.3.2, steps (a) to (c). Priority levels are 0, 1, 4, 6 and 20. The merge order is 0 and 1
    // (into 0.5), 4 and 6 (into 5), 0.5 and 5 (into 2.75), then all.
    let dendrogram = Dendrogram::new(&[0.0, 1.0, 4.0, 6.0, 20.0].map(line));
    let centres: Vec<f64> = dendrogram.merges().iter().map(|m| m.centre[0]).collect();
    assert_eq!(centres, [0.5, 5.0, 2.75, 11.375]);
    let at = |present: &[usize], queues| dendrogram.cut(&mask(present), k(queues));
    let all = at(&[0, 1, 2, 3, 4], 3);
    assert_eq!((all.level, all.clusters, all.of), (3, 3, vec![0, 0, 1, 1, 2]));
    // A port that carries fewer applications separates them with the same number of queues.
    let few = at(&[0, 1, 4], 3);
    assert_eq!((few.level, few.clusters), (1, 3));
    assert_eq!((few.of[0], few.of[1], few.of[4]), (0, 1, 2));
    // Points 4 and 6 do not use this port. They take the cluster that they would merge into, with 0 and 1;
    // its first point is 0.
    assert_eq!(few.of[2..4], [0, 0]);
    let two = at(&[0, 1, 4], 2);
    assert_eq!((two.level, two.clusters, two.of), (2, 2, vec![0, 0, 0, 0, 1]));
    assert_eq!(at(&[0, 4], 1).level, 5);
}
