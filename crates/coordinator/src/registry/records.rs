//! Validates records of the store.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use weir_trace::sensitivity;

use super::links::{LINKS_KEY, StoredLinks};
use super::overlay;
use super::pauses::{PAUSES_KEY, StoredPauses};
use super::stored_bandwidths::BANDWIDTHS_KEY;
use super::stored_coflow::StoredCoflow;
use super::{
    ApplicationBody, ConnectionBody, FlowBody, JoinedHost, Override, POLICY_KEY, SENSITIVITY_KEY,
    WEIGHT_RANGE, expected_weight,
};
use crate::policy::PolicySpec;
use crate::service_bandwidth::BandwidthBody;
use crate::store::Table;

/// Checks that a record has a valid key, decodes to the type of its table, and refers to existing records. `applications`
/// are the ids of all registered applications.
///
/// # Errors
/// The key is invalid, the value does not decode or is out of range, or a referenced record does not exist.
pub fn check_record(
    table: Table,
    key: &str,
    value: &[u8],
    applications: &BTreeSet<String>,
) -> Result<(), String> {
    let has_id_key =
        !matches!(table, Table::Weights | Table::Settings | Table::LinkSamples | Table::RelayAddresses);
    if has_id_key && !weir_proto::is_id(key) {
        return Err("the key is not a valid id".to_owned());
    }
    match (table, key) {
        (Table::Coflows, _) => decode::<StoredCoflow>(value).map(drop),
        (Table::FirstFlows, _) => decode::<Vec<FlowBody>>(value).map(drop),
        (Table::OverlayCoflows, _) => decode::<overlay::StoredCoflow>(value).map(drop),
        // A coordinator skips those that it cannot decode, such as those of another version.
        (Table::LinkSamples | Table::RelayAddresses, _) => Ok(()),
        (Table::Hosts, _) => decode::<JoinedHost>(value).map(drop),
        (Table::Applications, _) => decode::<ApplicationBody>(value).map(drop),
        (Table::Connections, _) => {
            let ConnectionBody { application, .. } = decode(value)?;
            if applications.contains(&application) {
                return Ok(());
            }
            Err(format!("application `{application}` is not in the store"))
        }
        (Table::Weights, _) => match decode::<Override<Option<f64>>>(value)?.set {
            Some(weight) if !WEIGHT_RANGE.contains(&weight) => {
                Err(format!("weight {weight}; expected {}", expected_weight()))
            }
            _ => Ok(()),
        },
        (Table::Settings, POLICY_KEY) => decode::<Override<PolicySpec>>(value).map(drop),
        (Table::Settings, SENSITIVITY_KEY) => {
            let text: String = decode(value)?;
            sensitivity::parse(&text, "table").map(drop).map_err(|error| error.to_string())
        }
        (Table::Settings, BANDWIDTHS_KEY) => {
            decode::<BTreeMap<String, Override<BandwidthBody>>>(value).map(drop)
        }
        (Table::Settings, PAUSES_KEY) => decode::<StoredPauses>(value).map(drop),
        (Table::Settings, LINKS_KEY) => decode::<StoredLinks>(value).map(drop),
        (Table::Settings, _) => Err("unknown setting".to_owned()),
    }
}

fn decode<T: DeserializeOwned>(value: &[u8]) -> Result<T, String> {
    serde_json::from_slice(value).map_err(|error| error.to_string())
}
