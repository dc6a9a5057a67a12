//! Rounding errors of times. Checks of outcomes allow for them.

/// Relative rounding error of a duration: policies treat a billionth of a link's capacity as none.
pub const DURATION_TOLERANCE: f64 = 1e-9;

/// Relative rounding error of a time since the start.
pub const CLOCK_TOLERANCE: f64 = 1e-14;

/// Whether a duration is below another one by more than rounding. The later of them ends at `end`. Times are in seconds.
pub fn is_shorter(duration: f64, other: f64, end: f64) -> bool {
    duration + CLOCK_TOLERANCE * end < other * (1.0 - DURATION_TOLERANCE)
}
