//! Names of congestion controls.

/// The expected value in errors about names of congestion controls.
pub const EXPECTED_CONGESTION_CONTROL: &str = "1 to 15 letters, digits, `-` or `_`, such as cubic";

/// Whether `name` is a valid name of a congestion control for the kernel.
pub fn is_congestion_control_name(name: &str) -> bool {
    let is_valid_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (1..=15).contains(&name.len()) && name.chars().all(is_valid_char)
}
