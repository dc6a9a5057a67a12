//! Minimum and maximum bandwidth of services. [`crate::network_bounds`] checks them against the network.
//!
//! - *Minimum.* A service is guaranteed its minimum on every link that it uses: the higher one of the minimum in sum over its hosts, which
//!   can cross one link as a whole, and of the minimum of each host.
//! - *Maximum.* A service does not exceed its maximum in sum over its hosts, and each host does not exceed that of a host, in each
//!   direction. Agents pace each connection at [`MIN_PACING_RATE`] at least, so that rate times the number of backlogged connections can
//!   exceed a maximum.
//!
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_core::units::Rate;
use weir_proto::{FRAME_BYTES, MIN_PACING_RATE, PAYLOAD_BYTES};

/// The lowest minimum that can be set, in bytes per second: the rate of the slowest link.
const LOWEST_MIN: f64 = 1e3;

/// The lowest maximum that can be set, in bytes per second: what one connection sends at the lowest pacing rate, with headers, rounded up.
const LOWEST_MAX: u32 = 13_125;

const _: () = assert!(LOWEST_MAX * PAYLOAD_BYTES >= MIN_PACING_RATE * FRAME_BYTES, "one connection holds it");

/// The minimum and maximum bandwidth of a service.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ServiceBandwidth {
    /// Guaranteed in sum over its hosts.
    pub min: Option<Rate>,
    /// Not exceeded in sum over its hosts.
    pub max: Option<Rate>,
    /// Guaranteed to each host, in each direction.
    pub min_per_host: Option<Rate>,
    /// Not exceeded by any host, in each direction.
    pub max_per_host: Option<Rate>,
}

impl ServiceBandwidth {
    /// Whether no minimum and no maximum is set.
    pub fn is_unset(&self) -> bool {
        *self == ServiceBandwidth::default()
    }

    /// Whether a minimum is set.
    pub fn has_min(&self) -> bool {
        self.min.is_some() || self.min_per_host.is_some()
    }

    /// Whether a maximum is set.
    pub fn has_max(&self) -> bool {
        self.max.is_some() || self.max_per_host.is_some()
    }

    /// What the service is guaranteed on each of its links, in bytes per second: no more than it may use there.
    pub fn link_min(&self) -> f64 {
        let get = |rate: Option<Rate>| rate.map_or(0.0, Rate::get);
        get(self.min).max(get(self.min_per_host)).min(self.host_link_max())
    }

    /// The maximum of the service on a link of a host, in bytes per second; infinite without one.
    pub fn host_link_max(&self) -> f64 {
        let get = |rate: Option<Rate>| rate.map_or(f64::INFINITY, Rate::get);
        get(self.max).min(get(self.max_per_host))
    }

    /// The rate of a key.
    pub fn get(&self, key: BandwidthKey) -> Option<Rate> {
        match key {
            BandwidthKey::Min => self.min,
            BandwidthKey::Max => self.max,
            BandwidthKey::MinPerHost => self.min_per_host,
            BandwidthKey::MaxPerHost => self.max_per_host,
        }
    }

    /// Sets the rate of a key.
    pub fn set(&mut self, key: BandwidthKey, rate: Option<Rate>) {
        let field = match key {
            BandwidthKey::Min => &mut self.min,
            BandwidthKey::Max => &mut self.max,
            BandwidthKey::MinPerHost => &mut self.min_per_host,
            BandwidthKey::MaxPerHost => &mut self.max_per_host,
        };
        *field = rate;
    }

    /// Checks that rates are not too low, and that minima do not exceed maxima.
    ///
    /// # Errors
    /// [`BandwidthError::Invalid`] with the key of the rate.
    pub fn check(&self) -> Result<(), BandwidthError> {
        let invalid = |key: &'static str, rate: Rate, expected: String| {
            Err(BandwidthError::Invalid { key, value: rate.to_string(), expected })
        };
        for key in BandwidthKey::ALL {
            if let Some(rate) = self.get(key).filter(|rate| rate.get() < key.lowest()) {
                return invalid(key.name(), rate, key.expected().to_owned());
            }
        }
        for (min_key, max_key) in [
            (BandwidthKey::Min, BandwidthKey::Max),
            (BandwidthKey::MinPerHost, BandwidthKey::MaxPerHost),
            (BandwidthKey::MinPerHost, BandwidthKey::Max),
        ] {
            if let (Some(min), Some(max)) = (self.get(min_key), self.get(max_key))
                && min > max
            {
                return invalid(min_key.name(), min, format!("at most the maximum, {max}"));
            }
        }
        Ok(())
    }
}

/// A rate of [`ServiceBandwidth`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BandwidthKey {
    /// [`ServiceBandwidth::min`].
    Min,
    /// [`ServiceBandwidth::max`].
    Max,
    /// [`ServiceBandwidth::min_per_host`].
    MinPerHost,
    /// [`ServiceBandwidth::max_per_host`].
    MaxPerHost,
}

impl BandwidthKey {
    /// All rates.
    pub const ALL: [BandwidthKey; 4] =
        [BandwidthKey::Min, BandwidthKey::Max, BandwidthKey::MinPerHost, BandwidthKey::MaxPerHost];

    /// The key in the configuration. In the API, it has underscores.
    pub fn name(self) -> &'static str {
        match self {
            BandwidthKey::Min => "min-bandwidth",
            BandwidthKey::Max => "max-bandwidth",
            BandwidthKey::MinPerHost => "min-bandwidth-per-host",
            BandwidthKey::MaxPerHost => "max-bandwidth-per-host",
        }
    }

    fn is_min(self) -> bool {
        matches!(self, BandwidthKey::Min | BandwidthKey::MinPerHost)
    }

    /// The lowest valid rate, in bytes per second.
    fn lowest(self) -> f64 {
        if self.is_min() { LOWEST_MIN } else { f64::from(LOWEST_MAX) }
    }

    /// The rule for the rate, for messages.
    pub fn expected(self) -> &'static str {
        match self.is_min() {
            true => "a rate with a unit, such as 10Mbit, of at least 8kbit",
            false => {
                "a rate with a unit, such as 10Mbit, of at least 105kbit, the lowest at which agents pace a connection"
            }
        }
    }
}

/// Why bandwidths are refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BandwidthError {
    /// A rate of a service is invalid.
    #[error("{key}: `{value}` is invalid; expected {expected}")]
    Invalid {
        /// The key in the configuration.
        key: &'static str,
        /// The rate.
        value: String,
        /// The expected value.
        expected: String,
    },
    /// The minima do not fit into a link.
    #[error(
        "minimum bandwidths of {sum} in total ({minima}) exceed a link; expected at most {services}, what services divide of {link}"
    )]
    LinkExceeded {
        /// The sum of the minima.
        sum: Rate,
        /// Each service with its minimum.
        minima: String,
        /// What services divide of the link.
        services: Rate,
        /// The link and its rate.
        link: String,
    },
    /// The rates of all services cannot be computed within the memory and time for them.
    #[error(
        "{services} services with {rows} links and maxima that flows can share; expected at most {max_services} services with them"
    )]
    TooManyServices {
        /// Number of services.
        services: usize,
        /// Number of links and maxima ([`crate::control_plane::DivisionSize::rows`]).
        rows: usize,
        /// The maximum number of services with as many links and maxima.
        max_services: usize,
    },
}

impl BandwidthError {
    /// The wrong value and the expected one.
    pub fn found_and_expected(&self) -> (String, String) {
        match self {
            BandwidthError::Invalid { value, expected, .. } => (value.clone(), expected.clone()),
            BandwidthError::LinkExceeded { sum, minima, services, link } => (
                format!("minimum bandwidths of {sum}"),
                format!("at most {services} in total, what services divide of {link}; found {minima}"),
            ),
            BandwidthError::TooManyServices { services, rows, max_services } => (
                format!("{services} services"),
                format!(
                    "at most {max_services} with {rows} links and maxima that flows can share, since the rates of services are computed for each"
                ),
            ),
        }
    }
}

/// The bandwidth of a service in the API and in the store.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BandwidthBody {
    /// Guaranteed in sum over its hosts, such as `100Mbit`.
    pub min_bandwidth: Option<String>,
    /// Not exceeded in sum over its hosts.
    pub max_bandwidth: Option<String>,
    /// Guaranteed to each host, in each direction.
    pub min_bandwidth_per_host: Option<String>,
    /// Not exceeded by any host, in each direction.
    pub max_bandwidth_per_host: Option<String>,
}

impl From<&ServiceBandwidth> for BandwidthBody {
    fn from(bandwidth: &ServiceBandwidth) -> BandwidthBody {
        let text = |rate: Option<Rate>| rate.map(|rate| rate.to_string());
        BandwidthBody {
            min_bandwidth: text(bandwidth.min),
            max_bandwidth: text(bandwidth.max),
            min_bandwidth_per_host: text(bandwidth.min_per_host),
            max_bandwidth_per_host: text(bandwidth.max_per_host),
        }
    }
}

impl TryFrom<&BandwidthBody> for ServiceBandwidth {
    type Error = BandwidthError;

    fn try_from(body: &BandwidthBody) -> Result<ServiceBandwidth, BandwidthError> {
        let mut bandwidth = ServiceBandwidth::default();
        let texts = [
            &body.min_bandwidth,
            &body.max_bandwidth,
            &body.min_bandwidth_per_host,
            &body.max_bandwidth_per_host,
        ];
        for (key, text) in BandwidthKey::ALL.into_iter().zip(texts) {
            let Some(text) = text else { continue };
            let rate = text.parse().map_err(|_| BandwidthError::Invalid {
                key: key.name(),
                value: text.clone(),
                expected: key.expected().to_owned(),
            })?;
            bandwidth.set(key, Some(rate));
        }
        Ok(bandwidth)
    }
}
