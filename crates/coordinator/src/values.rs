//! Valid values of requests. The checks of requests and the schemas of `/openapi.json` use the same bounds.

use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{Deserializer, Error, Unexpected, Visitor};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};
use weir_proto::MAX_ID_LENGTH;

/// Valid weights of coflows and services.
pub const WEIGHT_RANGE: RangeInclusive<f64> = weir_trace::MIN_WEIGHT..=weir_trace::MAX_WEIGHT;

/// Valid weights of connections.
pub const CONNECTION_WEIGHTS: RangeInclusive<f64> = 0.001..=1000.0;

/// Maximum size of a flow, in bytes. A binary64 represents every integer up to it.
pub const MAX_FLOW_BYTES: u64 = weir_trace::MAX_BYTES as u64 - 1;

/// Maximum length of the reason why a coflow failed, in bytes.
pub const MAX_REASON_LENGTH: usize = 200;

/// Whether a text is a [`FailureReason`].
pub fn is_failure_reason(text: &str) -> bool {
    (1..=MAX_REASON_LENGTH).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Maximum number of entries of a page of coflows or routes, and the number without a `limit`.
pub const COFLOW_PAGE: PageLimits = PageLimits { default: 100, max: 1000 };

/// Maximum number of entries of a page of the allocation, and the number without a `limit`.
pub const ALLOCATION_PAGE: PageLimits = PageLimits { default: 1000, max: 10_000 };

/// Maximum number of entries of a page of connections, and the number without a `limit`.
pub const CONNECTION_PAGE: PageLimits = PageLimits { default: 1000, max: 10_000 };

/// Numbers of entries of a page.
pub struct PageLimits {
    pub default: usize,
    pub max: usize,
}

impl PageLimits {
    fn schema(&self) -> ObjectBuilder {
        integer(1, self.max as u64).default(Some(self.default.into()))
    }
}

/// The expected value of a weight.
pub fn expected_weight() -> String {
    format!("a number from {:e} to {:e}", WEIGHT_RANGE.start(), WEIGHT_RANGE.end())
}

/// Reads a number of bytes, also with a fraction of zero: to JSON Schema, `5.0` is an integer.
pub fn read_flow_bytes<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
    input.deserialize_option(WholeNumber)
}

struct WholeNumber;

impl<'de> Visitor<'de> for WholeNumber {
    type Value = Option<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_none<E: Error>(self) -> Result<Option<u64>, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Option<u64>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, input: D) -> Result<Option<u64>, D::Error> {
        input.deserialize_u64(self)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Option<u64>, E> {
        Ok(Some(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Option<u64>, E> {
        u64::try_from(value).map(Some).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Option<u64>, E> {
        if value.fract() == 0.0 && (0.0..=MAX_FLOW_BYTES as f64).contains(&value) {
            return Ok(Some(value as u64));
        }
        Err(E::invalid_type(Unexpected::Float(value), &self))
    }
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn integer(min: u64, max: u64) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(min as usize)).maximum(Some(max as usize))
}

/// Declares types that stand for the schemas of values.
macro_rules! schemas {
    ($($(#[$doc:meta])* $name:ident: $schema:expr;)*) => {
        $(
            $(#[$doc])*
            pub enum $name {}

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    $schema.into()
                }
            }

            impl ToSchema for $name {}
        )*
    };
}

/// A path of 1 to 16 components of printable ASCII characters.
const CGROUP_PATH_PATTERN: &str = "^[!-.0-~]{1,255}(/[!-.0-~]{1,255}){0,15}$";

/// Parts with `-` between two, without `/` and `*`.
const SLICE_NAME_PATTERN: &str = r"^[!-)+,.0-~]+(-[!-)+,.0-~]+){0,15}\.slice$";

/// Fractions of a link to which a host can be limited.
pub const BANDWIDTH_FRACTION: RangeInclusive<f64> = 0.001..=1.0;

/// Leases of such a limit, in seconds.
pub const BANDWIDTH_LEASE_SECONDS: RangeInclusive<f64> = 1.0..=60.0;

schemas! {
    /// The id of a coflow, application or connection ([`weir_proto::is_id`]).
    Id: text().min_length(Some(1)).max_length(Some(MAX_ID_LENGTH)).pattern(Some("^[!-~]+$"));

    /// Why a coflow failed ([`is_failure_reason`]).
    FailureReason: text().min_length(Some(1)).max_length(Some(MAX_REASON_LENGTH)).pattern(Some("^[ -~]+$"));

    /// A name in a path.
    Name: text().min_length(Some(1));

    /// A weight in [`WEIGHT_RANGE`].
    Weight: ObjectBuilder::new()
        .schema_type(Type::Number)
        .minimum(Some(*WEIGHT_RANGE.start()))
        .maximum(Some(*WEIGHT_RANGE.end()));

    /// A weight in [`CONNECTION_WEIGHTS`].
    ConnectionWeight: ObjectBuilder::new()
        .schema_type(Type::Number)
        .minimum(Some(*CONNECTION_WEIGHTS.start()))
        .maximum(Some(*CONNECTION_WEIGHTS.end()));

    /// A fraction in [`BANDWIDTH_FRACTION`].
    BandwidthFraction: ObjectBuilder::new()
        .schema_type(Type::Number)
        .minimum(Some(*BANDWIDTH_FRACTION.start()))
        .maximum(Some(*BANDWIDTH_FRACTION.end()));

    /// The size of a flow.
    FlowBytes: integer(0, MAX_FLOW_BYTES);

    /// The number of a flow between regions.
    FlowNumber: integer(0, u64::from(u32::MAX));

    /// A [`weir_core::units::Time`]. An exponent and more digits are also valid.
    Duration: text().pattern(Some(r"^[0-9]{1,15}(\.[0-9]{1,15})?(h|min|s|ms|us|ns)$"));

    /// A [`weir_core::units::Rate`]. An exponent, more digits and other units are also valid.
    Bandwidth: text().pattern(Some(r"^[0-9]{1,15}(\.[0-9]{1,15})?(Tbit|Gbit|Mbit|kbit|bit)$"));

    /// A limit of [`COFLOW_PAGE`].
    CoflowPageLimit: COFLOW_PAGE.schema();

    /// A limit of [`ALLOCATION_PAGE`].
    AllocationPageLimit: ALLOCATION_PAGE.schema();

    /// A limit of [`CONNECTION_PAGE`].
    ConnectionPageLimit: CONNECTION_PAGE.schema();

    /// The path of a cgroup ([`weir_proto::CgroupPattern::parse`]), which also limits the number of `*`, and refuses `.` and `..`.
    CgroupPath: text().pattern(Some(CGROUP_PATH_PATTERN));

    /// The name of a slice ([`weir_proto::CgroupPattern::from_slice`]).
    SliceName: text().max_length(Some(255)).pattern(Some(SLICE_NAME_PATTERN));

    /// The UID of a pod ([`weir_proto::pod_rule`]).
    PodUid: text().max_length(Some(64)).pattern(Some(r"^[a-z0-9-]+$"));

    /// A TCP or UDP port.
    PortNumber: integer(1, u64::from(u16::MAX));

    /// The index of a flow.
    FlowIndex: integer(0, u64::from(u32::MAX));
}
