//! The lowest levels on the path of a class: its demand at a link is the lowest level at the other links.

/// The lowest and the second lowest level of the queues of a class, and these queues.
#[derive(Debug, Clone, Copy)]
pub(super) struct LowestLevels {
    lowest: f64,
    lowest_queue: u32,
    second_lowest: f64,
    second_queue: u32,
}

impl LowestLevels {
    /// No queue limits the class.
    pub(super) const NONE: LowestLevels = LowestLevels {
        lowest: f64::INFINITY,
        lowest_queue: u32::MAX,
        second_lowest: f64::INFINITY,
        second_queue: u32::MAX,
    };

    /// The lowest levels of the queues of `path`.
    pub(super) fn new(path: &[u32], levels: &[f64]) -> LowestLevels {
        let mut lowest_levels = LowestLevels::NONE;
        path.iter().for_each(|&queue| lowest_levels.add_level(queue, levels[queue as usize]));
        lowest_levels
    }

    /// The lowest level of the queues other than `queue`.
    pub(super) fn without(&self, queue: u32) -> f64 {
        if queue == self.lowest_queue { self.second_lowest } else { self.lowest }
    }

    /// Updates the levels after that of `queue` has changed. O(1), and O(path) if another queue can have one of the lowest levels.
    pub(super) fn update(&mut self, queue: u32, path: &[u32], levels: &[f64]) {
        let level = levels[queue as usize];
        if queue == self.lowest_queue && level <= self.second_lowest {
            self.lowest = level;
        } else if queue == self.second_queue && (self.lowest..=self.second_lowest).contains(&level) {
            self.second_lowest = level;
        } else if queue == self.lowest_queue || queue == self.second_queue {
            *self = LowestLevels::new(path, levels);
        } else {
            self.add_level(queue, level);
        }
    }

    fn add_level(&mut self, queue: u32, level: f64) {
        if level < self.lowest {
            *self = LowestLevels {
                lowest: level,
                lowest_queue: queue,
                second_lowest: self.lowest,
                second_queue: self.lowest_queue,
            };
        } else if level < self.second_lowest {
            (self.second_lowest, self.second_queue) = (level, queue);
        }
    }
}
