//! Lengths and seeds of campaigns: short ones by default, long ones with `WEIR_TEST_LENGTH=long`.

/// Returns the value for the length that `WEIR_TEST_LENGTH` names.
pub fn test_scale<T>(short: T, long: T) -> T {
    match std::env::var("WEIR_TEST_LENGTH").as_deref() {
        Err(_) | Ok("short") => short,
        Ok("long") => long,
        Ok(other) => panic!("WEIR_TEST_LENGTH: `{other}`; expected `short` or `long`"),
    }
}

/// The seeds of a simulation, from `PROPTEST_RNG_SEED` on: as many as `WEIR_SEEDS` says, or the length.
#[allow(dead_code, reason = "not every crate simulates by seed")]
pub fn seeds(short: u64, long: u64) -> impl Iterator<Item = u64> {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{name}: `{text}`; expected a whole number")))
    };
    let first: u64 = number("PROPTEST_RNG_SEED").unwrap_or(0);
    let count = number("WEIR_SEEDS").unwrap_or_else(|| test_scale(short, long));
    (0..count).map(move |index| first.wrapping_add(index))
}
