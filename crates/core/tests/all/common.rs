//! Settings of property tests.

use crate::campaign::test_scale;
use proptest::prelude::ProptestConfig;

/// Configuration for `cases` cases, or ten times as many in a long campaign; `PROPTEST_CASES` overrides both.
pub fn config_with_cases(cases: u32) -> ProptestConfig {
    let cases =
        if std::env::var_os("PROPTEST_CASES").is_some() { None } else { Some(test_scale(cases, 10 * cases)) };
    let default = ProptestConfig::default();
    ProptestConfig { cases: cases.unwrap_or(default.cases), ..default }
}
