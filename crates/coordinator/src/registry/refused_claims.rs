//! Remembers which hosts were refused because they claim an address of another host, to show them at that host.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::membership::JoinRefusal;

/// How long a refused claim is shown: some attempts of an agent, which connects again about once a second.
const LIFETIME: Duration = Duration::from_secs(5);

/// The maximum number of refused hosts that are shown.
const MAX_CLAIMS: usize = 64;

/// A claim of an address.
#[derive(Debug)]
struct Claim {
    owner: String,
    address: String,
    refused_at: Instant,
}

/// The last refused claims, by the name of the refused host.
#[derive(Debug, Default)]
pub struct RefusedClaims(BTreeMap<String, Claim>);

impl RefusedClaims {
    /// Records an attempt of a host to join.
    pub fn record(&mut self, name: &str, admitted: Result<(), &JoinRefusal>, now: Instant) {
        self.0.retain(|_, claim| now.saturating_duration_since(claim.refused_at) < LIFETIME);
        self.0.remove(name);
        if let Err(JoinRefusal::AddressTaken { address, owner, .. }) = admitted
            && self.0.len() < MAX_CLAIMS
        {
            let (owner, address) = (owner.clone(), address.clone());
            self.0.insert(name.to_owned(), Claim { owner, address, refused_at: now });
        }
    }

    /// The refused claims of addresses of a host, as conflicts.
    pub fn conflicts_of(&self, owner: &str, now: Instant) -> Vec<String> {
        let is_shown = |claim: &Claim| {
            claim.owner == owner && now.saturating_duration_since(claim.refused_at) < LIFETIME
        };
        let shown = self.0.iter().filter(|(_, claim)| is_shown(claim));
        shown
            .map(|(name, claim)| format!("{}: also claimed by host {name}, which was refused", claim.address))
            .collect()
    }
}
