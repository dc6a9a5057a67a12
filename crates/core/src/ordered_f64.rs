//! Total order of floating-point numbers.

/// A number with the total order of `f64`. It is never NaN here.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OrderedF64(pub f64);

impl Eq for OrderedF64 {}

impl PartialOrd for OrderedF64 {
    #[inline]
    fn partial_cmp(&self, other: &OrderedF64) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedF64 {
    #[inline]
    fn cmp(&self, other: &OrderedF64) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
