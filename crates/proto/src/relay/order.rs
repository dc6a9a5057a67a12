//! Defines orders to relays: the other relays, the coflows to forward, and the rules for their flows.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{
    MAX_RELAY_COFLOWS, MAX_RELAY_NETWORKS, MAX_RELAY_RULES, MAX_RELAYS, RelayMatch, RelayRule,
    check_strictly_sorted, parse_number, rule::check_matches, wire,
};
use crate::encoding::{check_increasing, check_max_length, to_micros_rounding_up};
use crate::{MAX_LEASE, MessageError, Network, is_id};

/// An order to one relay: its changed coflows and rules.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RelayOrder {
    /// The epoch of the coordinator: relays refuse orders of a lower one.
    pub epoch: u64,
    /// The sequence number, which rises by 1 with each order of the epoch to the relay.
    pub seq: u64,
    /// How long the rules hold without another order, above 0 and at most [`MAX_LEASE`]. Then flows take the direct path.
    pub lease: Duration,
    /// Whether this is a full order: other coflows and rules are removed. Otherwise they stay unchanged.
    pub is_full: bool,
    /// All relays, sorted by number. Empty if they are unchanged.
    pub peers: Vec<RelayPeer>,
    /// The added coflows, sorted by number.
    pub coflows: Vec<RelayCoflow>,
    /// The numbers of the removed coflows, sorted. Their rules are removed with them, before any addition.
    pub removed_coflows: Vec<u32>,
    /// The added and changed rules, sorted by match.
    pub rules: Vec<RelayRule>,
    /// The removed rules, sorted.
    pub removed_rules: Vec<RelayMatch>,
}

/// A relay of the overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayPeer {
    /// Its number.
    pub id: u16,
    /// Its name; an id ([`is_id`]).
    pub name: Arc<str>,
    /// Where it accepts other relays.
    pub address: SocketAddr,
    /// The networks whose receivers it serves, at most [`MAX_RELAY_NETWORKS`]. The longest match of all relays applies. Relays of one
    /// region can serve the same network.
    pub networks: Vec<Network>,
    /// The number of its region.
    pub region: u16,
}

/// A coflow whose flows the relay forwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayCoflow {
    /// Its number, unique in the epoch. A later epoch may give the number to a coflow of another name.
    pub number: u32,
    /// Its name; an id ([`is_id`]).
    pub name: Arc<str>,
    /// The service that owns it: only programs with this identity may send its flows. An id.
    pub service: Arc<str>,
}

fn parse_id(text: &str) -> Result<Arc<str>, MessageError> {
    if is_id(text) { Ok(text.into()) } else { Err(MessageError::Id) }
}

impl From<&RelayOrder> for wire::ControllerMessage {
    fn from(order: &RelayOrder) -> wire::ControllerMessage {
        let coflow = |coflow: &RelayCoflow| wire::RelayCoflow {
            number: coflow.number,
            name: coflow.name.to_string(),
            service: coflow.service.to_string(),
        };
        let order = wire::RelayOrder {
            epoch: order.epoch,
            seq: order.seq,
            lease_us: to_micros_rounding_up(order.lease),
            is_full: order.is_full,
            peers: order.peers.iter().map(wire::RelayPeer::from).collect(),
            coflows: order.coflows.iter().map(coflow).collect(),
            removed_coflows: order.removed_coflows.clone(),
            rules: order.rules.iter().map(wire::RelayRule::from).collect(),
            removed_rules: order.removed_rules.iter().map(|&flows| flows.into()).collect(),
        };
        wire::ControllerMessage { body: Some(wire::controller_message::Body::Order(order)) }
    }
}

impl TryFrom<wire::RelayOrder> for RelayOrder {
    type Error = MessageError;

    fn try_from(order: wire::RelayOrder) -> Result<RelayOrder, MessageError> {
        let lease = Duration::from_micros(order.lease_us.into());
        if lease.is_zero() || lease > MAX_LEASE {
            return Err(MessageError::Invalid {
                field: "lease",
                expected: "a time above 0 and at most 60 s",
            });
        }
        check_max_length("relays", order.peers.len(), MAX_RELAYS)?;
        check_max_length("coflows", order.coflows.len(), MAX_RELAY_COFLOWS)?;
        check_max_length("removed coflows", order.removed_coflows.len(), MAX_RELAY_COFLOWS)?;
        check_max_length("rules", order.rules.len(), MAX_RELAY_RULES)?;
        check_max_length("removed rules", order.removed_rules.len(), MAX_RELAY_RULES)?;
        let peers: Vec<RelayPeer> =
            order.peers.into_iter().map(RelayPeer::try_from).collect::<Result<_, _>>()?;
        let coflows: Vec<RelayCoflow> =
            order.coflows.into_iter().map(RelayCoflow::try_from).collect::<Result<_, _>>()?;
        let rules: Vec<RelayRule> =
            order.rules.into_iter().map(RelayRule::try_from).collect::<Result<_, _>>()?;
        let removed_rules: Vec<RelayMatch> =
            order.removed_rules.into_iter().map(RelayMatch::try_from).collect::<Result<_, _>>()?;
        check_strictly_sorted("relays", &peers, |peer| peer.id)?;
        check_strictly_sorted("coflows", &coflows, |coflow| coflow.number)?;
        check_increasing("removed coflows", &order.removed_coflows)?;
        check_matches("rules", rules.iter().map(|rule| &rule.flows))?;
        check_matches("removed rules", removed_rules.iter())?;
        Ok(RelayOrder {
            epoch: order.epoch,
            seq: order.seq,
            lease,
            is_full: order.is_full,
            peers,
            coflows,
            removed_coflows: order.removed_coflows,
            rules,
            removed_rules,
        })
    }
}

impl From<&RelayPeer> for wire::RelayPeer {
    fn from(peer: &RelayPeer) -> wire::RelayPeer {
        wire::RelayPeer {
            id: peer.id.into(),
            name: peer.name.to_string(),
            address: peer.address.to_string(),
            networks: peer.networks.iter().map(Network::to_string).collect(),
            region: peer.region.into(),
        }
    }
}

impl TryFrom<wire::RelayPeer> for RelayPeer {
    type Error = MessageError;

    fn try_from(peer: wire::RelayPeer) -> Result<RelayPeer, MessageError> {
        let invalid = |field, expected| MessageError::Invalid { field, expected };
        check_max_length("networks of a relay", peer.networks.len(), MAX_RELAY_NETWORKS)?;
        let networks = peer.networks.iter().map(|network| network.parse()).collect::<Result<_, _>>();
        Ok(RelayPeer {
            id: parse_number("relay", peer.id)?,
            name: parse_id(&peer.name)?,
            address: peer
                .address
                .parse()
                .map_err(|_| invalid("address of a relay", "an IP address and a port"))?,
            networks: networks.map_err(|_| invalid("network of a relay", "a network such as 10.1.0.0/16"))?,
            region: parse_number("region", peer.region)?,
        })
    }
}

impl TryFrom<wire::RelayCoflow> for RelayCoflow {
    type Error = MessageError;

    fn try_from(coflow: wire::RelayCoflow) -> Result<RelayCoflow, MessageError> {
        Ok(RelayCoflow {
            number: coflow.number,
            name: parse_id(&coflow.name)?,
            service: parse_id(&coflow.service)?,
        })
    }
}
