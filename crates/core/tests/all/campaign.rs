//! How much of a slow test runs: a part by default, all of it with `WEIR_TEST_ALL=1`, as `make test-all` sets it.

/// `part`, or `all` with `WEIR_TEST_ALL`.
pub fn campaign<T>(part: T, all: T) -> T {
    if std::env::var_os("WEIR_TEST_ALL").is_some() { all } else { part }
}
