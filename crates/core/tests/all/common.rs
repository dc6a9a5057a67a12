//! Settings shared by the tests of the core and of the simulator.

use crate::campaign::test_scale;
use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngSeed;

/// Configuration for `cases` cases, or ten times as many with `WEIR_TEST_ALL`. The cases are the same in
/// every run unless `PROPTEST_RNG_SEED` or `PROPTEST_CASES` is set.
pub fn config_with_cases(cases: u32) -> ProptestConfig {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = test_scale(cases, 10 * cases);
    }
    if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        config.rng_seed = RngSeed::Fixed(0x5eed);
    }
    config
}
