//! What is worth a report: the coordinator reckons that flows send as they were told, and so hears only of what goes otherwise.

use std::time::{Duration, Instant};

use weir_proto::{Report, reckon};

/// How far what a flow has sent may be from what the coordinator reckons, in bytes: a large packet more or less.
const SLACK: f64 = 65_536.0;

/// What a coordinator was told of a flow last.
#[derive(Debug, Clone, Copy)]
pub struct Told {
    sent: u64,
    rate: Option<u64>,
    at: Instant,
}

impl Told {
    /// A flow that has sent so many bytes, and goes on at a rate, in bytes per second, or as its transport lets it.
    pub fn new(sent: u64, rate: Option<u64>, at: Instant) -> Told {
        Told { sent, rate, at }
    }

    /// Whether the same flow is something else by now. With another rate it is: from when on it has that, nobody else knows.
    pub fn is_old(&self, now: &Told) -> bool {
        let Some(rate) = self.rate.filter(|_| self.rate == now.rate) else {
            return (self.sent, self.rate) != (now.sent, now.rate);
        };
        let reckoned = self.sent as f64 + reckon(rate, (now.at - self.at).as_secs_f64());
        (now.sent as f64 - reckoned).abs() > SLACK
    }
}

/// When a report was sent last, and with which order in force.
#[derive(Debug, Default)]
pub struct Voice(Option<(Instant, (u64, u64))>);

impl Voice {
    /// Whether a report has to be sent, for what is in it or since the last was `most` ago; it counts as sent then.
    pub fn speaks(&mut self, report: &Report, most: Duration, now: Instant) -> bool {
        let is_news = !report.flows.is_empty() || !report.found.is_empty() || !report.arrivals.is_empty();
        let silent = self.0.is_some_and(|(at, obeys)| obeys == report.obeys && now - at < most);
        let speaks = is_news || !silent;
        if speaks {
            self.0 = Some((now, report.obeys));
        }
        speaks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_that_sends_as_told_is_no_news() {
        let began = Instant::now();
        let after = |ms| began + Duration::from_millis(ms);
        // A thousand full packets a second.
        let rate = Some(1_514_000);
        let told = Told::new(1000, rate, began);
        let reckoned = 1000 + 144_800;
        for (sent, ms) in [(1000, 0), (reckoned, 100), (reckoned - 65_536, 100), (reckoned + 65_536, 100)] {
            assert!(!told.is_old(&Told::new(sent, rate, after(ms))), "{sent} after {ms} ms");
        }
        for (sent, ms) in [(reckoned - 65_537, 100), (reckoned + 65_537, 100), (1000, 46)] {
            assert!(told.is_old(&Told::new(sent, rate, after(ms))), "{sent} after {ms} ms");
        }
        assert!(told.is_old(&Told::new(reckoned, Some(1_514_001), after(100))));
        assert!(told.is_old(&Told::new(reckoned, None, after(100))));
        // Of what nobody paces each byte is news.
        let free = Told::new(1000, None, began);
        assert!(free.is_old(&Told::new(1001, None, began)));
        assert!(!free.is_old(&Told::new(1000, None, after(1000))));
        assert!(free.is_old(&Told::new(1000, Some(1), began)));
    }

    #[test]
    fn who_has_no_news_says_so_now_and_then_and_when_it_obeys_another_order() {
        let (began, most) = (Instant::now(), Duration::from_millis(20));
        let report = |seq| Report { obeys: (1, seq), ..Report::default() };
        let mut voice = Voice::default();
        let mut speaks = |report: &Report, ms| voice.speaks(report, most, began + Duration::from_millis(ms));
        assert!(speaks(&report(1), 0));
        assert!(!speaks(&report(1), 8));
        assert!(speaks(&report(2), 16));
        assert!(!speaks(&report(2), 35));
        assert!(speaks(&report(2), 36));
        let found = weir_proto::Found {
            application: "web".into(),
            peer: std::net::Ipv4Addr::LOCALHOST.into(),
            open: 1,
            sent: 0,
            demand: weir_proto::Demand::Unknown,
        };
        assert!(speaks(&Report { found: vec![found], ..report(2) }, 40));
        assert!(!speaks(&report(2), 48));
    }
}
