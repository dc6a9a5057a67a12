//! The traffic that shares a queue of a link.

use std::num::NonZeroU16;

use weir_core::model::ServiceNames;
use weir_core::saba::app_weights::DEFAULT_MIN_SHARE;
use weir_core::saba::{Fraction, controller};
use weir_proto::MAX_CLASSES;
use weir_trace::TraceError;
use weir_trace::toml_fields::{TableFields, Value};

/// The traffic that shares a queue of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QueueAssignment {
    /// Saba: applications of similar sensitivity.
    Applications(Saba),
    /// NetShare, group allocation: each service has a queue with its weight at every port.
    Services,
}

/// Parameters of Saba.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Saba {
    /// Settings of the controller.
    pub settings: controller::ControllerSettings,
    /// Number of queues of each link in each direction.
    pub queues: u16,
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
            queues: 8,
        }
    }
}

pub(super) fn read_queue_assignment(
    fields: &TableFields<'_>,
    queues: Option<Value<'_>>,
    saba: Option<Value<'_>>,
    names: &ServiceNames,
) -> Result<QueueAssignment, TraceError> {
    const EXPECTED: &str = "\"applications\" or \"services\"";
    let assignment = queues.as_ref().map(|value| fields.read_string(value, EXPECTED)).transpose()?;
    match (assignment, saba) {
        (None | Some("applications"), saba) => {
            let saba = saba.map(|value| read_saba(fields, &value)).transpose()?;
            Ok(QueueAssignment::Applications(saba.unwrap_or_default()))
        }
        (Some("services"), None) if names.services() <= MAX_CLASSES => Ok(QueueAssignment::Services),
        (Some("services"), None) => {
            let found = names.services().to_string();
            let expected = format!("at most {MAX_CLASSES} services, since each has a queue");
            Err(fields.key_error("service", &found, &expected))
        }
        (Some("services"), Some(saba)) => {
            Err(fields.value_error(&saba, "no table `[saba]`, since queues are those of services"))
        }
        (Some(other), _) => Err(fields.key_error("queues", other, EXPECTED)),
    }
}

fn read_saba(fields: &TableFields<'_>, value: &Value<'_>) -> Result<Saba, TraceError> {
    let mut saba_fields = fields.read_table(value, "saba ".to_owned())?;
    let default = Saba::default();
    let mut count = |key: &'static str| -> Result<Option<NonZeroU16>, TraceError> {
        const EXPECTED: &str = "a whole number from 2 to 63";
        let Some(value) = saba_fields.optional(key) else { return Ok(None) };
        let count = u16::try_from(saba_fields.read_u32(&value, EXPECTED)?)
            .ok()
            .filter(|count| (2..=63).contains(count));
        let count =
            count.and_then(NonZeroU16::new).ok_or_else(|| saba_fields.value_error(&value, EXPECTED))?;
        Ok(Some(count))
    };
    let max_levels = count("levels")?.unwrap_or(default.settings.max_levels);
    let queues = count("queues")?.map_or(default.queues, NonZeroU16::get);
    let c_saba = match saba_fields.optional("share") {
        None => default.settings.c_saba,
        Some(value) => Fraction::new(saba_fields.read_number(&value)?)
            .map_err(|_| saba_fields.value_error(&value, "a fraction of every link, above 0 and up to 1"))?,
    };
    saba_fields.finish()?;
    Ok(Saba { settings: controller::ControllerSettings { c_saba, max_levels, ..default.settings }, queues })
}
