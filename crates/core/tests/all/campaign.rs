//! Size of slow tests: reduced by default, full with `WEIR_TEST_ALL=1`, as `make test-all` sets it.

/// Returns `reduced`, or `full` if `WEIR_TEST_ALL` is set.
pub fn test_scale<T>(reduced: T, full: T) -> T {
    if std::env::var_os("WEIR_TEST_ALL").is_some() { full } else { reduced }
}
