//! Validation of the store's records.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use weir_trace::sensitivity;

use super::{
    ApplicationBody, CoflowBody, ConnectionBody, FlowBody, POLICY, SENSITIVITY, Set, WEIGHTS, expected_weight,
};
use crate::policy::Asked;
use crate::store::Room;

/// Checks that a record has a valid key, decodes into the type of its room, and refers to records that exist; `applications` are the ids of
/// all registered applications.
///
/// # Errors
/// The key is not valid, the value does not decode or is out of range, or the record refers to one that does not exist.
pub fn check(room: Room, key: &str, value: &[u8], applications: &BTreeSet<String>) -> Result<(), String> {
    let is_by_id = matches!(room, Room::Coflows | Room::First | Room::Applications | Room::Connections);
    if is_by_id && !weir_proto::is_id(key) {
        return Err("the key is not a valid id".to_owned());
    }
    match (room, key) {
        (Room::Coflows, _) => decode::<CoflowBody>(value).map(drop),
        (Room::First, _) => decode::<Vec<FlowBody>>(value).map(drop),
        (Room::Applications, _) => decode::<ApplicationBody>(value).map(drop),
        (Room::Connections, _) => {
            let ConnectionBody { application, .. } = decode(value)?;
            if applications.contains(&application) {
                return Ok(());
            }
            Err(format!("application `{application}` is not in the store"))
        }
        (Room::Weights, _) => match decode::<Set<Option<f64>>>(value)?.set {
            Some(weight) if !WEIGHTS.contains(&weight) => {
                Err(format!("weight {weight}; expected {}", expected_weight()))
            }
            _ => Ok(()),
        },
        (Room::Settings, POLICY) => decode::<Set<Asked>>(value).map(drop),
        (Room::Settings, SENSITIVITY) => {
            let text: String = decode(value)?;
            sensitivity::parse(&text, "table").map(drop).map_err(|error| error.to_string())
        }
        (Room::Settings, _) => Err("unknown setting".to_owned()),
    }
}

fn decode<T: DeserializeOwned>(value: &[u8]) -> Result<T, String> {
    serde_json::from_slice(value).map_err(|error| error.to_string())
}
