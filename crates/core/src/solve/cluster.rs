//! Clusters points with four coordinates: k-means, and a hierarchy that merges at midpoints.
//!
//! Katebzadeh et al., "Saba: Rethinking Datacenter Network Allocation from Application's Perspective", EuroSys '23,
//! section 5.3. K-means on the coefficients of their models groups applications into priority levels (5.3.1).
//! Agglomerative clustering, of which all levels are kept, maps priority levels to queues (5.3.2).
//!
//! Choices that the paper leaves open:
//!
//! - *Seeds of k-means* are not random: the first is the point nearest to the mean, each next one the point farthest from
//!   all seeds so far. Points that are far apart are in different clusters, and equal points give equal clusters.
//! - *Scale of coordinates*: unchanged; Euclidean distance in both steps.
//! - *Ties*: the earlier point, the earlier cluster, the earlier pair.
//! - *Empty clusters*, which a round of k-means can leave, get the point that is farthest from the centre of its cluster.
//! - *Rounds*: until no point moves, but at most [`MAX_ROUNDS`].
//! - *The midpoint* of two clusters is that of their two points, as the paper writes, independent of their numbers of
//!   members.
//! - *End of the hierarchy*: the paper stops at the smallest number of queues of any switch. Here merging continues to a
//!   single cluster, so that a level exists for any port.

use std::num::NonZeroUsize;

use smallvec::SmallVec;

use crate::model::BitSet;

/// The maximum number of rounds of k-means.
pub const MAX_ROUNDS: usize = 100;

/// A point. Coordinates are finite, and small enough that their squares do not overflow.
pub type Point = [f64; 4];

/// A partition of points.
#[derive(Debug, Clone, PartialEq)]
pub struct Clusters {
    /// The cluster of each point. Clusters are numbered in the order of their first points.
    pub cluster_by_point: Vec<usize>,
    /// The mean of each cluster's points.
    pub centres: Vec<Point>,
}

/// All levels of a clustering. At the first level each point is a cluster; each further level merges the two closest
/// clusters, until one remains.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Dendrogram {
    points: usize,
    merges: Vec<Merge>,
}

/// Two merged clusters. Clusters are numbered: first the points, in order, then the result of each merge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Merge {
    /// The cluster with the earliest point.
    pub earlier_cluster: usize,
    /// The other cluster.
    pub later_cluster: usize,
    /// The midpoint of the two clusters' points.
    pub centre: Point,
}

/// The clusters of one level, for a subset of the points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The level, from 1. At level 1 every point is a cluster.
    pub level: usize,
    /// The cluster of each point. Clusters of points in the subset are numbered in the order of these points. Any other
    /// point is in the cluster that it is merged with first.
    pub cluster_by_point: Vec<usize>,
    /// Number of clusters.
    pub cluster_count: usize,
}

/// A list with inline room for the hierarchy of some tens of points.
type InlineVec<T> = SmallVec<[T; 64]>;

fn distance(a: &Point, b: &Point) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// The index of the minimum; the first if several are equal.
fn index_of_min(values: impl Iterator<Item = f64>) -> Option<usize> {
    let mut least: Option<(usize, f64)> = None;
    for (place, value) in values.enumerate() {
        if least.is_none_or(|(_, best)| value < best) {
            least = Some((place, value));
        }
    }
    least.map(|(place, _)| place)
}

/// At most `k` clusters of points, each with its multiplicity. O(points x k) a round.
///
/// Equal points are always in one cluster, so there are at most as many clusters as distinct points.
pub fn k_means(points: &[(Point, u32)], k: NonZeroUsize) -> Clusters {
    let mut centres = choose_seeds(points, k.get());
    let mut cluster_by_point = vec![usize::MAX; points.len()];
    for _ in 0..MAX_ROUNDS {
        let mut moved = false;
        for ((point, _), own) in points.iter().zip(&mut cluster_by_point) {
            let nearest = index_of_min(centres.iter().map(|c| distance(point, c))).unwrap_or(0);
            moved |= *own != nearest;
            *own = nearest;
        }
        if !moved {
            break;
        }
        update_centres(points, &cluster_by_point, &mut centres);
    }
    // Drop clusters that the last round left empty.
    let mut new_numbers = vec![usize::MAX; centres.len()];
    let mut order = Vec::with_capacity(centres.len());
    for own in &mut cluster_by_point {
        if new_numbers[*own] == usize::MAX {
            new_numbers[*own] = order.len();
            order.push(*own);
        }
        *own = new_numbers[*own];
    }
    Clusters { cluster_by_point, centres: order.into_iter().map(|c| centres[c]).collect() }
}

/// At most `k` points that are far from each other.
fn choose_seeds(points: &[(Point, u32)], k: usize) -> Vec<Point> {
    let mean = mean(points.iter().copied());
    let mut seeds: Vec<Point> = Vec::with_capacity(k.min(points.len()));
    seeds.extend(index_of_min(points.iter().map(|(p, _)| distance(p, &mean))).map(|i| points[i].0));
    let Some(first) = seeds.first() else { return seeds };
    let mut seed_distances: Vec<f64> = points.iter().map(|(p, _)| distance(p, first)).collect();
    while seeds.len() < k {
        match index_of_min(seed_distances.iter().map(|d| -d)) {
            Some(farthest) if seed_distances[farthest] > 0.0 => seeds.push(points[farthest].0),
            _ => break,
        }
        let seed = seeds[seeds.len() - 1];
        for (away, (point, _)) in seed_distances.iter_mut().zip(points) {
            *away = away.min(distance(point, &seed));
        }
    }
    seeds
}

/// Moves centres to the means of their points, and centres without points to the points farthest from their centres.
fn update_centres(points: &[(Point, u32)], cluster_by_point: &[usize], centres: &mut [Point]) {
    let mut empty = Vec::new();
    for (cluster, centre) in centres.iter_mut().enumerate() {
        let members =
            points.iter().zip(cluster_by_point).filter(|(_, own)| **own == cluster).map(|(p, _)| *p);
        if members.clone().next().is_none() {
            empty.push(cluster);
        } else {
            *centre = mean(members);
        }
    }
    if empty.is_empty() {
        return;
    }
    let mut centre_distances: Vec<f64> =
        points.iter().zip(cluster_by_point).map(|((p, _), own)| distance(p, &centres[*own])).collect();
    for cluster in empty {
        if let Some(farthest) = index_of_min(centre_distances.iter().map(|d| -d)) {
            centres[cluster] = points[farthest].0;
            centre_distances[farthest] = 0.0;
        }
    }
}

fn mean(points: impl Iterator<Item = (Point, u32)>) -> Point {
    let (mut sum, mut point_count) = ([0.0; 4], 0.0);
    for (point, count) in points {
        point_count += f64::from(count);
        for (sum, x) in sum.iter_mut().zip(point) {
            *sum += f64::from(count) * x;
        }
    }
    sum.map(|x| if point_count > 0.0 { x / point_count } else { 0.0 })
}

impl Dendrogram {
    /// Merges `points` until one cluster remains. O(points^2), unless many have the same nearest neighbour.
    pub fn new(points: &[Point]) -> Dendrogram {
        let mut centres = points.to_vec();
        // The place of a cluster is that of its earliest point. By place: the cluster, and its nearest later neighbour.
        let mut cluster: Vec<usize> = (0..points.len()).collect();
        let mut remaining: Vec<usize> = (0..points.len()).collect();
        let nearest_after = |place: usize, alive: &[usize], centres: &[Point]| {
            let after = &alive[alive.partition_point(|&other| other <= place)..];
            let best = index_of_min(after.iter().map(|&other| distance(&centres[place], &centres[other])))?;
            Some((after[best], distance(&centres[place], &centres[after[best]])))
        };
        let mut nearest: Vec<_> =
            remaining.iter().map(|&place| nearest_after(place, &remaining, &centres)).collect();
        let mut merges = Vec::with_capacity(points.len().saturating_sub(1));
        while remaining.len() > 1 {
            let distances = remaining.iter().map(|&place| nearest[place].map_or(f64::INFINITY, |(_, d)| d));
            let Some(place) = index_of_min(distances).map(|i| remaining[i]) else { break };
            let Some((other, _)) = nearest[place] else { break };
            let (a, b) = (centres[place], centres[other]);
            let centre = std::array::from_fn(|i| 0.5 * a[i] + 0.5 * b[i]);
            merges.push(Merge { earlier_cluster: cluster[place], later_cluster: cluster[other], centre });
            centres[place] = centre;
            cluster[place] = points.len() + merges.len() - 1;
            remaining.retain(|&p| p != other);
            for &p in &remaining {
                let stale = p == place || nearest[p].is_some_and(|(q, _)| q == place || q == other);
                if stale {
                    nearest[p] = nearest_after(p, &remaining, &centres);
                } else if p < place {
                    let d = distance(&centres[p], &centre);
                    if nearest[p].is_none_or(|(q, best)| d < best || (d == best && place < q)) {
                        nearest[p] = Some((place, d));
                    }
                }
            }
        }
        Dendrogram { points: points.len(), merges }
    }

    /// The merges, in order. Level 1 precedes the first merge; each merge leads to the next level.
    pub fn merges(&self) -> &[Merge] {
        &self.merges
    }

    /// The first level at which the points of `present` are in at most `max_clusters` clusters (section 5.3.2). O(points).
    pub fn cut(&self, present: &BitSet, max_clusters: NonZeroUsize) -> Cut {
        const NONE: usize = usize::MAX;
        let nodes = self.points + self.merges.len();
        // A slice: each access to a vector with inline storage would check where its data is.
        let mut has_present_point: InlineVec<bool> = InlineVec::from_elem(false, nodes);
        let holds = &mut has_present_point[..];
        let mut clusters = 0;
        for point in present.iter().take_while(|&point| point < self.points) {
            holds[point] = true;
            clusters += 1;
        }
        let mut level = 1;
        for (merge, node) in self.merges.iter().zip(self.points..nodes) {
            let both = holds[merge.earlier_cluster] && holds[merge.later_cluster];
            holds[node] = holds[merge.earlier_cluster] || holds[merge.later_cluster];
            if clusters > max_clusters.get() {
                clusters -= usize::from(both);
                level += 1;
            }
        }
        // Clusters up to this number exist at this level, or are parts of clusters that do.
        let cluster_limit = self.points + level - 1;
        let mut owner: InlineVec<usize> = InlineVec::from_elem(NONE, nodes);
        let owner = &mut owner[..];
        for node in (0..nodes).filter(|&node| holds[node]) {
            owner[node] = match node.checked_sub(self.points).map(|merge| self.merges[merge]) {
                Some(merge) if node >= cluster_limit && owner[merge.earlier_cluster] != NONE => {
                    owner[merge.earlier_cluster]
                }
                Some(merge) if node >= cluster_limit => owner[merge.later_cluster],
                _ => node,
            };
        }
        // From the last merge to the first: a part belongs to the cluster of its parent. A part without a
        // cluster gets the cluster of its sibling.
        for (merge, node) in self.merges.iter().zip(self.points..nodes).rev() {
            for (part, other) in
                [(merge.earlier_cluster, merge.later_cluster), (merge.later_cluster, merge.earlier_cluster)]
            {
                if node < cluster_limit {
                    owner[part] = owner[node];
                } else if owner[part] == NONE {
                    owner[part] = if owner[other] == NONE { owner[node] } else { owner[other] };
                }
            }
        }
        let mut number: InlineVec<usize> = InlineVec::from_elem(NONE, nodes);
        let number = &mut number[..];
        let mut cluster_count = 0;
        for point in present.iter().take_while(|&point| point < self.points) {
            let number = &mut number[owner[point]];
            if *number == NONE {
                *number = cluster_count;
                cluster_count += 1;
            }
        }
        let cluster_by_point =
            owner[..self.points].iter().map(|&own| number.get(own).copied().unwrap_or(0)).collect();
        Cut { level, cluster_by_point, cluster_count }
    }
}
