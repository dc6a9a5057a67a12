//! Reads an overlay from a TOML file, for relays without a coordinator.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Deserialize;
use weir_proto::relay::{RelayOrder, wire};

use crate::forwarding::RelayId;
use crate::overlay::Overlay;

/// Why a text is not an overlay.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum OverlayError {
    /// The text is not TOML, or has other keys. The message names the line.
    #[error("{0}")]
    Toml(String),
    /// A value is invalid.
    #[error("{0}")]
    Value(String),
    /// Two relays or two coflows have the same name.
    #[error("{list}: `{name}` occurs twice; expected distinct names")]
    DuplicateName {
        /// `relays` or `coflows`.
        list: &'static str,
        /// The name.
        name: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    relays: Vec<Relay>,
    #[serde(default)]
    coflows: Vec<Coflow>,
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Relay {
    name: String,
    address: SocketAddr,
    networks: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Coflow {
    name: String,
    #[serde(default = "default_service")]
    service: String,
}

fn default_service() -> String {
    "default".to_owned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    coflow: String,
    flow: Option<u32>,
    from: Option<String>,
    to: Option<String>,
    priority: u32,
    #[serde(default = "default_weight")]
    weight: f64,
    /// The fraction by the name of the next relay.
    #[serde(default)]
    paths: BTreeMap<String, f64>,
}

fn default_weight() -> f64 {
    1.0
}

/// Parses an overlay. Relays and coflows have numbers by their position, from 1.
///
/// # Errors
/// [`OverlayError`].
pub fn parse(text: &str) -> Result<Overlay, OverlayError> {
    let file: File = toml::from_str(text).map_err(|error| OverlayError::Toml(error.to_string()))?;
    let mut ids = BTreeMap::new();
    for (relay, id) in file.relays.iter().zip(1..) {
        if ids.insert(relay.name.clone(), id).is_some() {
            return Err(OverlayError::DuplicateName { list: "relays", name: relay.name.clone() });
        }
    }
    let mut coflows = BTreeMap::new();
    for (coflow, number) in file.coflows.iter().zip(1..) {
        if coflows.insert(coflow.name.as_str(), number).is_some() {
            return Err(OverlayError::DuplicateName { list: "coflows", name: coflow.name.clone() });
        }
    }
    let order = wire::RelayOrder {
        lease_us: 1,
        is_full: true,
        peers: file.relays.iter().zip(1..).map(|(relay, id)| relay.to_wire(id)).collect(),
        coflows: file.coflows.iter().zip(1..).map(|(coflow, number)| coflow.to_wire(number)).collect(),
        rules: sorted_rules(&file.rules, &ids, &coflows)?,
        ..wire::RelayOrder::default()
    };
    let order = RelayOrder::try_from(order).map_err(|error| OverlayError::Value(error.to_string()))?;
    let mut overlay = Overlay::default();
    overlay.apply(&order);
    Ok(overlay)
}

fn sorted_rules(
    rules: &[Rule],
    ids: &BTreeMap<String, u32>,
    coflows: &BTreeMap<&str, u32>,
) -> Result<Vec<wire::RelayRule>, OverlayError> {
    let mut rules: Vec<wire::RelayRule> =
        rules.iter().map(|rule| rule.to_wire(ids, coflows)).collect::<Result<_, _>>()?;
    // Sorted by coflow, then from the least specific match.
    rules.sort_by_key(|rule| {
        let flows = rule.r#match.unwrap_or_default();
        (flows.coflow, flows.flow.is_some(), flows.source, flows.destination, flows.flow)
    });
    Ok(rules)
}

impl Relay {
    fn to_wire(&self, id: u32) -> wire::RelayPeer {
        wire::RelayPeer {
            id,
            name: self.name.clone(),
            address: self.address.to_string(),
            networks: self.networks.clone(),
            region: id,
        }
    }
}

impl Coflow {
    fn to_wire(&self, number: u32) -> wire::RelayCoflow {
        wire::RelayCoflow { number, name: self.name.clone(), service: self.service.clone() }
    }
}

impl Rule {
    fn to_wire(
        &self,
        ids: &BTreeMap<String, u32>,
        coflows: &BTreeMap<&str, u32>,
    ) -> Result<wire::RelayRule, OverlayError> {
        let unknown = |kind: &str, name: &str| {
            OverlayError::Value(format!("rules: {kind} `{name}` is unknown; expected a name of the file"))
        };
        let relay = |name: &String| ids.get(name).copied().ok_or_else(|| unknown("relay", name));
        let path = |(name, &fraction): (&String, &f64)| Ok(wire::RelayPath { next: relay(name)?, fraction });
        let mut paths: Vec<wire::RelayPath> =
            self.paths.iter().map(path).collect::<Result<_, OverlayError>>()?;
        paths.sort_by_key(|path| path.next);
        let coflow = coflows.get(self.coflow.as_str()).copied();
        let flows = wire::RelayMatch {
            coflow: coflow.ok_or_else(|| unknown("coflow", &self.coflow))?,
            flow: self.flow,
            source: self.from.as_ref().map(relay).transpose()?,
            destination: self.to.as_ref().map(relay).transpose()?,
        };
        Ok(wire::RelayRule { r#match: Some(flows), priority: self.priority, weight: self.weight, paths })
    }
}

/// The number and the address of a relay, by its name.
pub fn relay_by_name(overlay: &Overlay, name: &str) -> Option<(RelayId, SocketAddr)> {
    let mut relays = overlay.relays.iter().filter(|(_, relay)| &*relay.name == name);
    relays.next().map(|(&id, relay)| (id, relay.address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::FlowId;

    const RELAYS: &str = "
        [[relays]]
        name = \"west\"
        address = \"10.1.0.2:7710\"
        networks = [\"10.1.0.0/16\"]
        [[relays]]
        name = \"east\"
        address = \"10.2.0.2:7710\"
        networks = [\"10.2.0.0/16\"]
        [[coflows]]
        name = \"shuffle\"
    ";

    #[test]
    fn file_with_all_kinds_of_rules_is_parsed() {
        let rules = "
            [[rules]]
            coflow = \"shuffle\"
            flow = 3
            priority = 1
            [[rules]]
            coflow = \"shuffle\"
            from = \"west\"
            to = \"east\"
            priority = 2
            weight = 2.5
            paths = { east = 1.0 }
            [[rules]]
            coflow = \"shuffle\"
            priority = 3
        ";
        let overlay = parse(&format!("{RELAYS}{rules}")).unwrap();
        assert_eq!((overlay.relays.len(), overlay.coflows.len(), overlay.rules.len()), (2, 1, 3));
        let priority = |flow, source, destination| {
            let flow = FlowId { coflow: 1, flow };
            overlay.rules.lookup(flow, RelayId(source), RelayId(destination)).unwrap().class.priority
        };
        assert_eq!([priority(3, 1, 2), priority(4, 1, 2), priority(4, 2, 1)], [1, 2, 3]);
        assert_eq!(relay_by_name(&overlay, "east").unwrap().0, RelayId(2));
    }

    /// The error of a file, without the lines that show its place.
    fn error(text: &str) -> String {
        let error = parse(text).unwrap_err().to_string();
        error.lines().last().unwrap().to_owned()
    }

    #[test]
    fn invalid_files_are_refused_with_a_reason() {
        assert_eq!(error(""), "missing field `relays`");
        assert_eq!(
            error(&format!("{RELAYS}[[relay]]\n")),
            "unknown field `relay`, expected one of `relays`, `coflows`, `rules`"
        );
        let twice = "occurs twice; expected distinct names";
        assert_eq!(error(&RELAYS.replace("east", "west")), format!("relays: `west` {twice}"));
        assert_eq!(
            error(&format!("{RELAYS}[[coflows]]\nname = \"shuffle\"")),
            format!("coflows: `shuffle` {twice}")
        );
        assert_eq!(
            error(&RELAYS.replace("10.1.0.0/16", "10.1.0.1/16")),
            "network of a relay is invalid; expected a network such as 10.1.0.0/16"
        );
        assert_eq!(error(&RELAYS.replace("10.1.0.2:7710", "west:7710")), "invalid socket address syntax");
    }

    #[test]
    fn invalid_rules_are_refused_with_a_reason() {
        let fractions = "fractions of a rule is invalid; expected a sum of 1";
        let fraction = "fraction of a path is invalid; expected a number above 0 and at most 1";
        let weight = "weight is invalid; expected a finite number above 0";
        for (text, reason) in [
            ("", "missing field `coflow`"),
            ("coflow = \"other\"", "rules: coflow `other` is unknown; expected a name of the file"),
            (
                "coflow = \"shuffle\"\nfrom = \"north\"\nto = \"east\"",
                "rules: relay `north` is unknown; expected a name of the file",
            ),
            (
                "coflow = \"shuffle\"\npaths = { north = 1.0 }",
                "rules: relay `north` is unknown; expected a name of the file",
            ),
            (
                "coflow = \"shuffle\"\nfrom = \"west\"",
                "match is invalid; expected a flow, a source and a destination, or none of them",
            ),
            ("coflow = \"shuffle\"\npaths = { east = 0.5 }", fractions),
            ("coflow = \"shuffle\"\npaths = { east = 0.5, west = 0.6 }", fractions),
            ("coflow = \"shuffle\"\npaths = { east = 2.0, west = -1.0 }", fraction),
            ("coflow = \"shuffle\"\npaths = { east = nan }", fraction),
            ("coflow = \"shuffle\"\nweight = 0", weight),
            ("coflow = \"shuffle\"\nweight = inf", weight),
            (
                "coflow = \"shuffle\"\n[[rules]]\npriority = 1\ncoflow = \"shuffle\"",
                "rules: not sorted; expected increasing entries, each once",
            ),
        ] {
            assert_eq!(error(&format!("{RELAYS}[[rules]]\npriority = 0\n{text}")), reason, "{text}");
        }
    }
}
