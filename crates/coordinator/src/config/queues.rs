//! The traffic that shares a queue of a link.

use std::num::NonZeroU16;

use weir_core::saba::app_weights::DEFAULT_MIN_SHARE;
use weir_core::saba::controller::PortLimits;
use weir_core::saba::{Fraction, controller};
use weir_fields::{FileError, TableFields, Value};
use weir_proto::QUEUED_LINK_RATES;

use super::{Host, JoinRule};

/// The traffic that shares a queue of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QueueAssignment {
    /// Saba: applications of similar sensitivity.
    Applications(Saba),
    /// NetShare, group allocation: each service has a queue with its weight at every port, as far as queues suffice.
    Services,
}

/// Parameters of Saba.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Saba {
    /// Settings of the controller.
    pub settings: controller::ControllerSettings,
    /// The queues of each link in each direction, except those of switches with own limits.
    pub limits: PortLimits,
}

impl Default for Saba {
    /// Saba, section 5.3: the 8 priority levels of Ethernet, and the 8 queues that switches have. Saba's applications may
    /// use the whole link.
    fn default() -> Saba {
        let levels = NonZeroU16::new(8).expect("8 is not 0");
        Saba {
            settings: controller::ControllerSettings {
                c_saba: Fraction::ALL,
                min_share: DEFAULT_MIN_SHARE,
                max_levels: levels,
            },
            limits: PortLimits::from(8),
        }
    }
}

impl QueueAssignment {
    /// The parameters of Saba; none if queues belong to services.
    pub fn saba(&self) -> Option<&Saba> {
        match self {
            QueueAssignment::Applications(saba) => Some(saba),
            QueueAssignment::Services => None,
        }
    }
}

pub(super) fn read_queue_assignment(
    fields: &TableFields<'_>,
    queues: Option<Value<'_>>,
    saba: Option<Value<'_>>,
) -> Result<QueueAssignment, FileError> {
    const EXPECTED: &str = "\"applications\" or \"services\"";
    let assignment = queues.as_ref().map(|value| fields.read_string(value, EXPECTED)).transpose()?;
    match (assignment, saba) {
        (None | Some("applications"), saba) => {
            let saba = saba.map(|value| read_saba(fields, &value)).transpose()?;
            Ok(QueueAssignment::Applications(saba.unwrap_or_default()))
        }
        (Some("services"), None) => Ok(QueueAssignment::Services),
        (Some("services"), Some(saba)) => {
            Err(fields.value_error(&saba, "no table `[saba]`, since queues are those of services"))
        }
        (Some(other), _) => Err(fields.key_error("queues", other, EXPECTED)),
    }
}

/// Checks that agents can configure queues of services at the links of all hosts, also of those that join.
pub(super) fn check_link_rates(
    fields: &TableFields<'_>,
    queues: &QueueAssignment,
    hosts: &[Host],
    joins: &[JoinRule],
) -> Result<(), FileError> {
    let of_hosts = hosts.iter().map(|host| (&host.name, host.link.send));
    let mut rates = of_hosts.chain(joins.iter().map(|rule| (&rule.names, rule.max_rate)));
    match rates.find(|(_, rate)| !QUEUED_LINK_RATES.contains(&rate.get())) {
        Some((name, rate)) if *queues == QueueAssignment::Services => {
            let expected = format!(
                "links of hosts from 8kbit to 100Gbit, which agents have queues for (host `{name}` has {rate})"
            );
            Err(fields.key_error("queues", "services", &expected))
        }
        _ => Ok(()),
    }
}

fn read_saba(fields: &TableFields<'_>, value: &Value<'_>) -> Result<Saba, FileError> {
    let mut saba_fields = fields.read_table(value, "saba ".to_owned())?;
    let default = Saba::default();
    let (levels, queues) = (saba_fields.optional("levels"), saba_fields.optional("queues"));
    let min_weight = saba_fields.optional("min-weight");
    let max_levels = match levels {
        None => default.settings.max_levels,
        Some(value) => read_count(&saba_fields, &value)?,
    };
    let c_saba = match saba_fields.optional("share") {
        None => default.settings.c_saba,
        Some(value) => Fraction::new(saba_fields.read_number(&value)?)
            .map_err(|_| saba_fields.value_error(&value, "a fraction of every link, above 0 and up to 1"))?,
    };
    saba_fields.finish()?;
    let limits = read_port_limits(&saba_fields, queues, min_weight, c_saba, default.limits)?;
    Ok(Saba { settings: controller::ControllerSettings { c_saba, max_levels, ..default.settings }, limits })
}

fn read_count(fields: &TableFields<'_>, value: &Value<'_>) -> Result<NonZeroU16, FileError> {
    const EXPECTED: &str = "a whole number from 2 to 63";
    let count =
        u16::try_from(fields.read_u32(value, EXPECTED)?).ok().filter(|count| (2..=63).contains(count));
    count.and_then(NonZeroU16::new).ok_or_else(|| fields.value_error(value, EXPECTED))
}

/// Reads `queues` and `min-weight` of the table `fields`. Missing keys have the values of `default`.
pub(super) fn read_port_limits(
    fields: &TableFields<'_>,
    queues: Option<Value<'_>>,
    min_weight: Option<Value<'_>>,
    c_saba: Fraction,
    default: PortLimits,
) -> Result<PortLimits, FileError> {
    let queue_count = match &queues {
        None => default.queues,
        Some(value) => read_count(fields, value)?.get(),
    };
    let limits = PortLimits {
        queues: queue_count,
        min_weight: min_weight.as_ref().map_or(Ok(default.min_weight), |value| fields.read_number(value))?,
    };
    if limits.is_feasible(c_saba) {
        return Ok(limits);
    }
    let max = PortLimits::rounded_max_min_weight(queue_count, c_saba);
    let share = match c_saba < Fraction::ALL {
        true => format!(" with a `share` of {}", c_saba.get()),
        false => String::new(),
    };
    match (min_weight, queues) {
        (None, Some(value)) => {
            let found = limits.min_weight;
            let expected = format!(
                "fewer queues{share}, or a `min-weight` from 0 to {max}; that of `[saba]` is {found}"
            );
            Err(fields.value_error(&value, &expected))
        }
        (Some(value), _) => {
            let expected =
                format!("a fraction of a link, 0 to {max}, the maximum for {queue_count} queues{share}");
            Err(fields.value_error(&value, &expected))
        }
        (None, None) => Ok(limits),
    }
}
