//! Reads an overlay from a TOML file, for relays without a coordinator. `docs/relay.md` describes the file.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use weir_fields::{FileError, FileKind, SourceText, TableFields, Value};
use weir_proto::relay::{
    MAX_RELAY_COFLOWS, MAX_RELAY_NETWORKS, MAX_RELAY_RULES, MAX_RELAYS, MAX_RULE_PATHS, RegionPair,
    RelayCoflow, RelayMatch, RelayOrder, RelayPath, RelayPeer, RelayRule, RuleScope,
};
use weir_proto::{Network, is_id};

use crate::message::RelayId;
use crate::overlay::Overlay;

/// The maximum length of the file, in bytes.
pub const MAX_FILE_BYTES: usize = 8 << 20;

/// The tolerated difference of a sum of fractions from 1.
const SUM_TOLERANCE: f64 = 1e-6;

const EXPECTED_RELAYS: &str = "a table `[[relays]]` for each relay";
const EXPECTED_ID: &str = "1 to 128 printable ASCII characters without spaces";
const EXPECTED_ADDRESS: &str = "an IP address and a port above 0, such as \"10.1.0.2:7710\"";
const EXPECTED_NETWORK: &str = "a network without host bits, such as \"10.1.0.0/16\"";
const EXPECTED_FLOW: &str =
    "the number of a flow, from 0 to 4294967295, or a list of the first and the last number, such as [0, 99]";
const EXPECTED_PRIORITY: &str = "a whole number from 0 (served first) to 65535";
const EXPECTED_PATHS: &str = "a table of fractions by the name of the next region, such as { east = 1.0 }";

/// Reads the overlay at `path`. Relays and coflows have numbers by their position, and regions by their first relay, from 1.
///
/// # Errors
/// The first error in the file, with its line, or the file cannot be read.
pub fn read(path: &Path) -> Result<Overlay, FileError> {
    weir_fields::read_file(path, |input, file| {
        parse(&weir_fields::read_text(input, file, MAX_FILE_BYTES)?, file)
    })
}

/// Parses an overlay. `file` is its name in errors.
///
/// # Errors
/// The first error in `text`, with its line.
pub fn parse(text: &str, file: &str) -> Result<Overlay, FileError> {
    FileKind::check(text.as_bytes(), file, &[], "an overlay")?;
    let source = SourceText { file, text };
    let table = weir_fields::parse_toml(source)?;
    let mut fields = TableFields::new(source, String::new(), 0, table.get_ref());
    let relays = fields.required("relays", EXPECTED_RELAYS)?;
    let (coflows, rules) = (fields.optional("coflows"), fields.optional("rules"));
    fields.finish()?;
    let (peers, regions) = read_relays(tables(&fields, &relays, "relay", MAX_RELAYS)?)?;
    let coflows = coflows.map(|value| tables(&fields, &value, "coflow", MAX_RELAY_COFLOWS)).transpose()?;
    let coflows = read_coflows(coflows.unwrap_or_default())?;
    let coflow_numbers: BTreeMap<&str, u32> =
        coflows.iter().map(|coflow| (&*coflow.name, coflow.number)).collect();
    let rules = rules.map(|value| tables(&fields, &value, "rule", MAX_RELAY_RULES)).transpose()?;
    let rules = read_rules(rules.unwrap_or_default(), &regions, &coflow_numbers)?;
    let mut overlay = Overlay::default();
    overlay.apply(&RelayOrder { is_full: true, peers, coflows, rules, ..RelayOrder::default() });
    Ok(overlay)
}

/// The tables of a list. Errors call them `kind` and their number, from 1.
fn tables<'a>(
    fields: &TableFields<'a>,
    value: &Value<'a>,
    kind: &str,
    max: usize,
) -> Result<Vec<TableFields<'a>>, FileError> {
    let list = fields.read_list(value, &format!("a table `[[{kind}s]]` for each {kind}"))?;
    if list.len() > max {
        let key = format!("{kind}s");
        return Err(fields.key_error(&key, &list.len().to_string(), &format!("at most {max} {kind}s")));
    }
    list.iter().zip(1..).map(|(item, number)| fields.read_table(item, format!("{kind} {number} "))).collect()
}

/// Reads a key whose value is an id.
fn read_id<'a>(table: &TableFields<'a>, value: &Value<'a>) -> Result<&'a str, FileError> {
    let id = table.read_string(value, EXPECTED_ID)?;
    if is_id(id) { Ok(id) } else { Err(table.value_error(value, EXPECTED_ID)) }
}

/// The number of each region by its name.
type RegionNumbers<'a> = BTreeMap<&'a str, u16>;

fn read_relays(tables: Vec<TableFields<'_>>) -> Result<(Vec<RelayPeer>, RegionNumbers<'_>), FileError> {
    let (mut peers, mut regions): (Vec<RelayPeer>, RegionNumbers<'_>) = Default::default();
    for (mut table, id) in tables.into_iter().zip(1..) {
        let name_value = table.required("name", EXPECTED_ID)?;
        let name = read_id(&table, &name_value)?;
        let address_value = table.required("address", EXPECTED_ADDRESS)?;
        let address = table.read_string(&address_value, EXPECTED_ADDRESS)?.parse();
        let address = address.ok().filter(|address: &SocketAddr| address.port() != 0);
        let address = address.ok_or_else(|| table.value_error(&address_value, EXPECTED_ADDRESS))?;
        let region = table.optional("region").map(|value| read_id(&table, &value)).transpose()?;
        let next_region = regions.len() as u16 + 1;
        let region = *regions.entry(region.unwrap_or(name)).or_insert(next_region);
        let networks = read_networks(&mut table, region, &peers)?;
        table.finish()?;
        if peers.iter().any(|peer| *peer.name == *name) {
            return Err(table.value_error(&name_value, "a name that no other relay has"));
        }
        if let Some(peer) = peers.iter().find(|peer| peer.address == address) {
            let expected = format!("an address that no other relay has; `{}` has this address", peer.name);
            return Err(table.value_error(&address_value, &expected));
        }
        peers.push(RelayPeer { id, name: name.into(), address, networks, region });
    }
    Ok((peers, regions))
}

fn read_networks(
    table: &mut TableFields<'_>,
    region: u16,
    peers: &[RelayPeer],
) -> Result<Vec<Network>, FileError> {
    let value = table.required("networks", EXPECTED_NETWORK)?;
    let list = table.read_list(&value, "a list of networks, such as [\"10.1.0.0/16\"]")?;
    if !(1..=MAX_RELAY_NETWORKS).contains(&list.len()) {
        let expected = format!("1 to {MAX_RELAY_NETWORKS} networks");
        return Err(table.key_error("networks", &list.len().to_string(), &expected));
    }
    let mut networks: Vec<Network> = Vec::new();
    for value in &list {
        let network = table.read_string(value, EXPECTED_NETWORK)?.parse();
        let network = network.map_err(|_| table.value_error(value, EXPECTED_NETWORK))?;
        let mut others = peers.iter().filter(|peer| peer.region != region);
        if let Some(peer) = others.find(|peer| peer.networks.contains(&network)) {
            let expected = format!(
                "a network that no relay of another region serves; `{}` serves this network",
                peer.name
            );
            return Err(table.value_error(value, &expected));
        }
        if networks.contains(&network) {
            return Err(table.value_error(value, "a network that is listed once"));
        }
        networks.push(network);
    }
    Ok(networks)
}

fn read_coflows(tables: Vec<TableFields<'_>>) -> Result<Vec<RelayCoflow>, FileError> {
    let mut coflows: Vec<RelayCoflow> = Vec::new();
    let mut names = BTreeMap::new();
    for (mut table, number) in tables.into_iter().zip(1..) {
        let name_value = table.required("name", EXPECTED_ID)?;
        let name = read_id(&table, &name_value)?;
        let service = table.optional("service").map(|value| read_id(&table, &value)).transpose()?;
        table.finish()?;
        if names.insert(name, number).is_some() {
            return Err(table.value_error(&name_value, "a name that no other coflow has"));
        }
        coflows.push(RelayCoflow { number, name: name.into(), service: service.unwrap_or("default").into() });
    }
    Ok(coflows)
}

/// Reads rules, and sorts them by their flows.
fn read_rules(
    tables: Vec<TableFields<'_>>,
    regions: &RegionNumbers<'_>,
    coflows: &BTreeMap<&str, u32>,
) -> Result<Vec<RelayRule>, FileError> {
    let mut rules: BTreeMap<RelayMatch, (usize, RelayRule)> = BTreeMap::new();
    for (table, number) in tables.into_iter().zip(1..) {
        let mut reader = RuleReader { table, regions };
        let rule = reader.read(coflows)?;
        // Earlier rules do not conflict with each other, so only the next ones in their order can conflict.
        let neighbors =
            rules.range(..rule.flows).next_back().into_iter().chain(rules.range(rule.flows..).next());
        if let Some((_, (first, _))) = { neighbors }.find(|(flows, _)| flows.conflicts_with(&rule.flows)) {
            let expected = format!("other flows than rule {first}");
            return Err(reader.table.key_error("coflow", "the same flows", &expected));
        }
        rules.insert(rule.flows, (number, rule));
    }
    Ok(rules.into_values().map(|(_, rule)| rule).collect())
}

/// Reads a rule.
struct RuleReader<'a, 'r> {
    table: TableFields<'a>,
    regions: &'r RegionNumbers<'r>,
}

impl<'a> RuleReader<'a, '_> {
    fn read(&mut self, coflows: &BTreeMap<&str, u32>) -> Result<RelayRule, FileError> {
        const EXPECTED_COFLOW: &str = "the name of a coflow of this file";
        let coflow_value = self.table.required("coflow", EXPECTED_COFLOW)?;
        let name = self.table.read_string(&coflow_value, EXPECTED_COFLOW)?;
        let &coflow =
            coflows.get(name).ok_or_else(|| self.table.value_error(&coflow_value, EXPECTED_COFLOW))?;
        let scope = self.read_scope()?;
        let priority_value = self.table.required("priority", EXPECTED_PRIORITY)?;
        let priority = self.table.read_u32(&priority_value, EXPECTED_PRIORITY)?.try_into();
        let priority = priority.map_err(|_| self.table.value_error(&priority_value, EXPECTED_PRIORITY))?;
        let weight = match self.table.optional("weight") {
            None => 1.0,
            Some(value) => {
                let weight = self.table.read_number(&value)?;
                if !(weight.is_finite() && weight > 0.0) {
                    return Err(self.table.value_error(&value, "a finite number above 0"));
                }
                weight
            }
        };
        let paths = self.table.optional("paths");
        self.table.finish()?;
        let paths = paths.map(|value| self.read_paths(&value, scope)).transpose()?.unwrap_or_default();
        Ok(RelayRule { flows: RelayMatch { coflow, scope }, priority, weight, paths })
    }

    fn read_scope(&mut self) -> Result<RuleScope, FileError> {
        let (flow, from, to) =
            (self.table.optional("flow"), self.table.optional("from"), self.table.optional("to"));
        let numbers = flow.map(|value| self.read_numbers(&value)).transpose()?;
        let pair = match (from, to) {
            (None, None) => None,
            (Some(from), Some(to)) => {
                let (source, destination) = (self.read_region(&from)?, self.read_region(&to)?);
                if source == destination {
                    return Err(self.table.value_error(&to, "another region than that of `from`"));
                }
                Some(RegionPair { source, destination })
            }
            (Some(_), None) => {
                let expected = "the name of a region, since the rule has `from`";
                return Err(self.table.key_error("to", "nothing", expected));
            }
            (None, Some(_)) => {
                let expected = "the name of a region, since the rule has `to`";
                return Err(self.table.key_error("from", "nothing", expected));
            }
        };
        Ok(match (numbers, pair) {
            (Some((first, last)), pair) => RuleScope::Flows { pair, first, last },
            (None, Some(pair)) => RuleScope::Pair(pair),
            (None, None) => RuleScope::Coflow,
        })
    }

    /// Reads the number of a flow, or a first and a last number.
    fn read_numbers(&self, value: &Value<'a>) -> Result<(u32, u32), FileError> {
        if !TableFields::is_list(value) {
            let number = self.table.read_u32(value, EXPECTED_FLOW)?;
            return Ok((number, number));
        }
        let list = self.table.read_list(value, EXPECTED_FLOW)?;
        let numbers: Vec<u32> =
            list.iter().map(|value| self.table.read_u32(value, EXPECTED_FLOW)).collect::<Result<_, _>>()?;
        match numbers[..] {
            [first, last] if first <= last => Ok((first, last)),
            _ => Err(self.table.value_error(value, EXPECTED_FLOW)),
        }
    }

    fn read_region(&self, value: &Value<'a>) -> Result<u16, FileError> {
        let expected = self.expected_region();
        let region = self.regions.get(self.table.read_string(value, &expected)?);
        region.copied().ok_or_else(|| self.table.value_error(value, &expected))
    }

    fn expected_region(&self) -> String {
        let names: Vec<&str> = self.regions.keys().take(20).copied().collect();
        let more = if names.len() < self.regions.len() { ", ..." } else { "" };
        format!("the name of a region of this file: {}{more}", names.join(", "))
    }

    fn read_paths(&self, value: &Value<'a>, scope: RuleScope) -> Result<Vec<RelayPath>, FileError> {
        const EXPECTED_FRACTION: &str = "a fraction of the bytes, above 0 and at most 1";
        if !TableFields::is_table(value) {
            return Err(self.table.value_error(value, EXPECTED_PATHS));
        }
        let table = self.table.read_nested_table(value, "path ")?;
        let mut paths = Vec::new();
        for (name, value) in table.entries() {
            let region = self.regions.get(name);
            let &next_region = region.ok_or_else(|| table.key_error(name, name, &self.expected_region()))?;
            let pair = match scope {
                RuleScope::Coflow => None,
                RuleScope::Pair(pair) => Some(pair),
                RuleScope::Flows { pair, .. } => pair,
            };
            if pair.is_some_and(|pair| pair.source == next_region) {
                return Err(table.key_error(name, name, "a next region other than that of `from`"));
            }
            let fraction = table.read_number(&value)?;
            if !(fraction > 0.0 && fraction <= 1.0) {
                return Err(table.value_error(&value, EXPECTED_FRACTION));
            }
            paths.push(RelayPath { next_region, fraction });
        }
        let sum: f64 = paths.iter().map(|path| path.fraction).sum();
        if !paths.is_empty() && (sum - 1.0).abs() > SUM_TOLERANCE {
            let found = format!("a sum of {sum}");
            return Err(self.table.key_error("paths", &found, "fractions with a sum of 1"));
        }
        if paths.len() > MAX_RULE_PATHS {
            let (found, expected) =
                (paths.len().to_string(), format!("at most {MAX_RULE_PATHS} next regions"));
            return Err(self.table.key_error("paths", &found, &expected));
        }
        paths.sort_by_key(|path| path.next_region);
        Ok(paths)
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
            [[rules]]
            coflow = \"shuffle\"
            flow = [9, 4294967295]
            from = \"east\"
            to = \"west\"
            priority = 4
            [[rules]]
            coflow = \"shuffle\"
            flow = [9, 20]
            priority = 5
        ";
        let overlay = parse(&format!("{RELAYS}{rules}"), "overlay.toml").unwrap();
        assert_eq!((overlay.relays.len(), overlay.coflows.len(), overlay.rules.len()), (2, 1, 5));
        let priority = |flow, source, destination| {
            let flow = FlowId { coflow: 1, flow };
            overlay.rule_for(flow, RelayId(source), RelayId(destination)).unwrap().class.priority
        };
        assert_eq!([priority(3, 1, 2), priority(4, 1, 2), priority(4, 2, 1)], [1, 2, 3]);
        assert_eq!([priority(9, 2, 1), priority(10, 2, 1), priority(10, 1, 2)], [4, 4, 5]);
        assert_eq!(relay_by_name(&overlay, "east").unwrap().0, RelayId(2));
    }

    #[test]
    fn relays_of_one_region_share_networks_and_rules() {
        let north = "
            [[relays]]
            name = \"west-2\"
            region = \"west\"
            address = \"10.1.0.3:7710\"
            networks = [\"10.1.0.0/16\"]
            [[rules]]
            coflow = \"shuffle\"
            from = \"west\"
            to = \"east\"
            priority = 2
        ";
        let overlay = parse(&format!("{RELAYS}{north}"), "overlay.toml").unwrap();
        assert_eq!(overlay.relays_of("10.1.2.3".parse().unwrap()), [RelayId(1), RelayId(3)]);
        assert_eq!(overlay.region_of(RelayId(3)), overlay.region_of(RelayId(1)));
        let flow = FlowId { coflow: 1, flow: 0 };
        assert!([1, 3].map(RelayId).iter().all(|&west| overlay.rule_for(flow, west, RelayId(2)).is_some()));
        let error = parse(&format!("{RELAYS}{north}").replace("region = \"west\"", ""), "overlay.toml");
        let expected = "a network that no relay of another region serves; `west` serves this network";
        assert!(error.unwrap_err().to_string().contains(expected));
    }

    /// The error of a file, without its name.
    fn error(text: &str) -> String {
        let error = parse(text, "overlay.toml").unwrap_err().to_string();
        error.strip_prefix("overlay.toml:").unwrap().to_owned()
    }

    #[test]
    fn invalid_relays_and_coflows_are_refused_with_line_value_and_expectation() {
        for (text, reason) in [
            (String::new(), "1: field `relays`: `nothing`: expected a table `[[relays]]` for each relay"),
            ("relays = []\nx".to_owned(), "2: field `TOML`: ``: expected `=`"),
            (
                format!("{RELAYS}[[relay]]\n"),
                "12: field `key`: `relay`: expected one of relays, coflows, rules",
            ),
            (
                RELAYS.replace("\"east", "\"west"),
                "7: field `relay 2 name`: `\"west\"`: expected a name that no other relay has",
            ),
            (
                format!("{RELAYS}[[coflows]]\nname = \"shuffle\""),
                "13: field `coflow 2 name`: `\"shuffle\"`: expected a name that no other coflow has",
            ),
            (
                RELAYS.replace("10.1.0.0/16", "10.1.0.1/16"),
                "5: field `relay 1 networks`: `\"10.1.0.1/16\"`: expected a network without host bits",
            ),
            (
                RELAYS.replace("[\"10.1.0.0/16\"]", "[]"),
                "5: field `relay 1 networks`: `0`: expected 1 to 64 networks",
            ),
            (
                RELAYS.replace("10.2.0.0/16", "10.1.0.0/16"),
                "9: field `relay 2 networks`: `\"10.1.0.0/16\"`: expected a network that no relay of another region serves; `west`",
            ),
            (
                RELAYS.replace("10.2.0.2", "10.1.0.2"),
                "8: field `relay 2 address`: `\"10.1.0.2:7710\"`: expected an address that no other relay has; `west`",
            ),
            (
                RELAYS.replace("10.1.0.2:7710", "west:7710"),
                "4: field `relay 1 address`: `\"west:7710\"`: expected an IP address and a port above 0",
            ),
            (
                RELAYS.replace("10.1.0.2:7710", "10.1.0.2:0"),
                "4: field `relay 1 address`: `\"10.1.0.2:0\"`: expected an IP address and a port above 0",
            ),
            (
                RELAYS.replace("\"shuffle\"", "\"my shuffle\""),
                "11: field `coflow 1 name`: `\"my shuffle\"`: expected 1 to 128 printable ASCII characters",
            ),
        ] {
            let found = error(&text);
            assert!(found.starts_with(reason), "{found}\n{reason}");
        }
    }

    #[test]
    fn invalid_rules_are_refused_with_their_number_value_and_expectation() {
        let pair = "from = \"west\"\nto = \"east\"\n";
        for (text, reason) in [
            (
                String::new(),
                "12: field `rule 1 coflow`: `nothing`: expected the name of a coflow of this file",
            ),
            (
                "coflow = \"other\"".to_owned(),
                "14: field `rule 1 coflow`: `\"other\"`: expected the name of a coflow",
            ),
            (
                "coflow = \"shuffle\"\nflow = -1".to_owned(),
                "15: field `rule 1 flow`: `-1`: expected the number of a flow",
            ),
            (
                "coflow = \"shuffle\"\nfrom = \"north\"\nto = \"east\"".to_owned(),
                "15: field `rule 1 from`: `\"north\"`: expected the name of a region of this file: east, west",
            ),
            (
                "coflow = \"shuffle\"\npaths = { north = 1.0 }".to_owned(),
                "15: field `rule 1 path north`: `north`: expected the name of a region of this file: east, west",
            ),
            (
                "coflow = \"shuffle\"\nfrom = \"west\"".to_owned(),
                "12: field `rule 1 to`: `nothing`: expected the name",
            ),
            (
                "coflow = \"shuffle\"\nfrom = \"west\"\nto = \"west\"".to_owned(),
                "16: field `rule 1 to`: `\"west\"`: expected another region than that of `from`",
            ),
            (
                "coflow = \"shuffle\"\nflow = [2, 1]".to_owned(),
                "15: field `rule 1 flow`: `[2, 1]`: expected the number of a flow",
            ),
            (
                "coflow = \"shuffle\"\nflow = [1, 2, 3]".to_owned(),
                "15: field `rule 1 flow`: `[1, 2, 3]`: expected the number of a flow",
            ),
            (
                format!("coflow = \"shuffle\"\nflow = 1\n{pair}paths = {{ west = 1.0 }}"),
                "18: field `rule 1 path west`: `west`: expected a next region other than that of `from`",
            ),
            (
                format!(
                    "coflow = \"shuffle\"\nflow = [3, 5]\n{pair}[[rules]]\npriority = 1\ncoflow = \"shuffle\"\nflow = [5, 9]\n{pair}"
                ),
                "20: field `rule 2 coflow`: `the same flows`: expected other flows than rule 1",
            ),
            (
                format!("coflow = \"shuffle\"\n{pair}paths = {{ west = 1.0 }}"),
                "17: field `rule 1 path west`: `west`: expected a next region other than that of `from`",
            ),
            (
                "coflow = \"shuffle\"\npaths = { east = 0.5 }".to_owned(),
                "15: field `rule 1 paths`: `a sum of 0.5`: expected fractions with a sum of 1",
            ),
            (
                "coflow = \"shuffle\"\npaths = 1".to_owned(),
                "15: field `rule 1 paths`: `1`: expected a table of fractions",
            ),
            (
                "coflow = \"shuffle\"\npaths = { east = 2.0, west = -1.0 }".to_owned(),
                "15: field `rule 1 path east`: `2.0`: expected a fraction of the bytes, above 0 and at most 1",
            ),
            (
                "coflow = \"shuffle\"\npaths = { east = nan }".to_owned(),
                "15: field `rule 1 path east`: `nan`: expected a fraction",
            ),
            (
                "coflow = \"shuffle\"\nweight = 0".to_owned(),
                "15: field `rule 1 weight`: `0`: expected a finite number above 0",
            ),
            (
                "coflow = \"shuffle\"\nweight = inf".to_owned(),
                "15: field `rule 1 weight`: `inf`: expected a finite number",
            ),
            (
                "coflow = \"shuffle\"\n[[rules]]\npriority = 1\ncoflow = \"shuffle\"".to_owned(),
                "17: field `rule 2 coflow`: `the same flows`: expected other flows than rule 1",
            ),
        ] {
            let found = error(&format!("{RELAYS}[[rules]]\npriority = 0\n{text}"));
            assert!(found.starts_with(reason), "{found}\n{reason}");
        }
        let found = error(&format!("{RELAYS}[[rules]]\ncoflow = \"shuffle\"\npriority = 65536"));
        assert!(
            found.starts_with("14: field `rule 1 priority`: `65536`: expected a whole number from 0"),
            "{found}"
        );
    }
}
