//! How the capacity of a link is divided among the kinds of traffic that cross it: the one place for hosts, switches, the allocator
//! and the schedules of coflows. `docs/link-capacity.md` describes it for operators.

use crate::units::Rate;

/// Payload of a full packet, in bytes: TCP over IPv4 with time stamps.
pub const PAYLOAD_BYTES: u32 = 1448;

/// A full packet with its headers, as links count it.
pub const FRAME_BYTES: u32 = 1514;

/// An ACK without payload, as links count it.
const ACK_BYTES: u32 = 66;

/// Bytes of ACKs on the reverse path, as a fraction of the bytes of full packets: a receiver acknowledges every second one.
pub const ACK_FRACTION: f64 = ACK_BYTES as f64 / (2 * FRAME_BYTES) as f64;

/// The least guaranteed rate of the control class, in bytes per second: a report and an order of an idle host every lease.
const MIN_CONTROL_RATE: f64 = 8_000.0;

/// The control class gets at most this part of a link, however slow the link is.
const MAX_CONTROL_FRACTION: f64 = 0.1;

/// The parts of a link, as fractions of its rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkBudget {
    /// Stays unused, so that queues form at the host or switch that orders packets, and never behind it.
    margin: f64,
    /// Guaranteed to the streams between agents and the coordinator.
    control: f64,
    /// Guaranteed to packets without a class.
    unclassified: f64,
}

impl LinkBudget {
    /// The default of hosts and switches.
    pub const DEFAULT: LinkBudget = LinkBudget { margin: 0.01, control: 0.01, unclassified: 0.05 };

    /// A link that one kind of traffic uses: the packets that its queues classify.
    pub const UNDIVIDED: LinkBudget = LinkBudget { margin: 0.0, control: 0.0, unclassified: 0.0 };

    /// The same parts of a tenth less: while the queue of the next switch, which filled before, becomes empty.
    pub fn draining(self) -> LinkBudget {
        LinkBudget { margin: 0.1, ..self }
    }

    /// The same parts with another one for packets without a class. None unless it is from 0.001 to 0.999.
    pub fn with_unclassified(self, fraction: f64) -> Option<LinkBudget> {
        (0.001..=0.999).contains(&fraction).then_some(LinkBudget { unclassified: fraction, ..self })
    }

    /// The fraction of [`LinkBudget::shaped`] that packets without a class are guaranteed.
    pub fn unclassified_fraction(&self) -> f64 {
        self.unclassified
    }

    /// The rate at which a queue sends: the link's without the margin.
    pub fn shaped(&self, link: Rate) -> Rate {
        scale(link, 1.0 - self.margin)
    }

    /// The guaranteed rate of the control class.
    pub fn control(&self, link: Rate) -> Rate {
        let shaped = self.shaped(link).get();
        let least =
            if self.control > 0.0 { MIN_CONTROL_RATE.min(MAX_CONTROL_FRACTION * shaped) } else { 0.0 };
        rate((self.control * shaped).max(least))
    }

    /// The guaranteed rate of packets without a class.
    pub fn unclassified(&self, link: Rate) -> Rate {
        rate(self.unclassified * (self.shaped(link).get() - self.control(link).get()))
    }

    /// What all classes of services or applications are guaranteed together; they divide it by weight.
    pub fn services(&self, link: Rate) -> Rate {
        rate((1.0 - self.unclassified) * (self.shaped(link).get() - self.control(link).get()))
    }

    /// What the allocator divides among connections. Packets without a class are not in it: while there are none, services have their
    /// part, and their queue guarantees it to them otherwise.
    pub fn allocatable(&self, link: Rate) -> Rate {
        rate(self.shaped(link).get() - self.control(link).get())
    }

    /// The fraction of a link for full packets of coflows, if as many flow in the reverse direction, whose ACKs cross this link.
    fn data_fraction(&self) -> f64 {
        (1.0 - self.margin) / (1.0 + ACK_FRACTION)
    }

    /// The fraction of a link that waiting flows share, with headers.
    pub fn reserve_fraction(&self, reserve: f64) -> f64 {
        self.data_fraction() * reserve
    }

    /// The fraction of a link that schedules of coflows divide, in payload: without the part of waiting flows (`reserve`, 0 to 1), without
    /// headers, and without the ACKs of a reverse direction with as much data.
    pub fn coflow_payload_fraction(&self, reserve: f64) -> f64 {
        self.data_fraction() * (1.0 - reserve) * f64::from(PAYLOAD_BYTES) / f64::from(FRAME_BYTES)
    }
}

fn scale(link: Rate, fraction: f64) -> Rate {
    rate(link.get() * fraction)
}

/// Parts of a rate are rates: finite, and not negative except by rounding.
fn rate(bytes_per_second: f64) -> Rate {
    Rate::new(bytes_per_second.max(0.0)).unwrap_or(Rate::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate_of(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn parts_add_up_to_the_shaped_rate() {
        for link in ["8kbit", "500kbit", "15Mbit", "200Mbit", "100Gbit"].map(rate_of) {
            for unclassified in [0.001, 0.05, 0.4, 0.999] {
                let budget = LinkBudget::DEFAULT.with_unclassified(unclassified).unwrap();
                let parts = [budget.control(link), budget.unclassified(link), budget.services(link)];
                let sum: f64 = parts.iter().map(|part| part.get()).sum();
                assert!((sum / budget.shaped(link).get() - 1.0).abs() < 1e-12, "{link}: {parts:?}");
                assert!(parts.iter().all(|part| part.get() > 0.0), "{link}: {parts:?}");
            }
        }
    }

    #[test]
    fn default_parts_of_200_mbit_are_those_of_the_page() {
        let link = rate_of("200Mbit");
        let budget = LinkBudget::DEFAULT;
        let mbit = |rate: Rate| rate.get() * 8e-6;
        let parts =
            [budget.shaped(link), budget.control(link), budget.unclassified(link), budget.services(link)];
        for (part, expected) in parts.map(mbit).into_iter().zip([198.0, 1.98, 9.801, 186.219]) {
            assert!((part - expected).abs() < 1e-9, "{part} instead of {expected}");
        }
    }

    /// Both directions of a link carry their schedules, waiting flows, and the ACKs of the other direction.
    #[test]
    fn schedules_leave_room_for_the_acks_of_the_reverse_direction() {
        for reserve in [0.001, 0.01, 0.05, 0.5] {
            let budget = LinkBudget::DEFAULT;
            let full_packets = budget.coflow_payload_fraction(reserve) * f64::from(FRAME_BYTES)
                / f64::from(PAYLOAD_BYTES)
                + budget.reserve_fraction(reserve);
            let acks = full_packets / f64::from(2 * FRAME_BYTES) * 66.0;
            assert!((full_packets + acks - 0.99).abs() < 1e-12, "{reserve}: {full_packets} and {acks}");
        }
        assert!((0.02..0.025).contains(&ACK_FRACTION));
    }

    #[test]
    fn control_class_has_a_least_rate_but_never_a_large_part() {
        let control = |link| LinkBudget::DEFAULT.control(rate_of(link)).get() * 8.0;
        assert_eq!(control("2Mbit"), 64_000.0);
        assert!((control("100kbit") - 9_900.0).abs() < 1e-9);
        assert_eq!(LinkBudget::UNDIVIDED.control(rate_of("2Mbit")), Rate::ZERO);
    }

    #[test]
    fn fractions_out_of_range_are_refused() {
        for fraction in [0.0, 0.0009, 0.9991, 1.0, f64::NAN, -1.0] {
            assert_eq!(LinkBudget::DEFAULT.with_unclassified(fraction), None, "{fraction}");
        }
    }
}
