//! Formats times as RFC 3339.

use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 86_400;

/// Days of 400 years of the Gregorian calendar.
const DAYS_PER_ERA: u64 = 146_097;

/// Days from 0000-03-01 to 1970-01-01. Years that begin in March end with the leap day.
const DAYS_BEFORE_1970: u64 = 719_468;

/// A time in UTC with milliseconds, such as `2026-01-31T08:15:00.250Z`. Times before 1970 count as 1970.
pub fn format(time: SystemTime) -> String {
    let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since_1970.as_secs() / SECONDS_PER_DAY, since_1970.as_secs() % SECONDS_PER_DAY);
    let days = days + DAYS_BEFORE_1970;
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / (DAYS_PER_ERA - 1)) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let milliseconds = since_1970.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_have_the_dates_of_the_gregorian_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.250Z"),
            (951_782_399, "2000-02-28T23:59:59.250Z"),
            (951_782_400, "2000-02-29T00:00:00.250Z"),
            (951_868_800, "2000-03-01T00:00:00.250Z"),
            (1_735_689_599, "2024-12-31T23:59:59.250Z"),
            (4_107_542_400, "2100-03-01T00:00:00.250Z"),
        ] {
            assert_eq!(format(UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 250)), expected);
        }
    }
}
