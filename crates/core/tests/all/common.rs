//! Settings of property tests.

use crate::campaign::test_scale;
use proptest::prelude::ProptestConfig;

/// Configuration for `cases` cases, or ten times as many in a long campaign; `PROPTEST_CASES` overrides both.
pub fn config_with_cases(cases: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => config,
        None => ProptestConfig { cases: test_scale(cases, 10 * cases), ..config },
    }
}
