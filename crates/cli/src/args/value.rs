//! Parses the values of options.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use weir_console::policy_spec;
use weir_experiment::comparison::first_repeated;
use weir_experiment::options::{NetworkParameter, parse_interval, parse_port_rate};

/// Returns a parser of the whole numbers in `range`.
pub fn integer_in<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("expected a whole number from {} to {}", range.start(), range.end()))
    }
}

/// Parses a finite number above 0.
#[cfg(feature = "live")]
pub fn parse_weight(text: &str) -> Result<f64, String> {
    let weight = text.parse().ok().filter(|weight: &f64| weight.is_finite() && *weight > 0.0);
    weight.ok_or_else(|| "expected a number above 0, such as 2 or 0.5".to_owned())
}

/// Parses a whole number from 1 to 1000.
#[cfg(any(feature = "live", feature = "papers"))]
pub fn parse_up_to_1000(text: &str) -> Result<u64, String> {
    integer_in(1..=1000)(text)
}

/// Parses the number of a coflow in its trace.
pub fn parse_coflow_id(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected the coflow's number in the trace, such as 7".to_owned())
}

/// Parses a policy with its parameters, and checks that both exist.
pub fn parse_policy_spec(text: &str) -> Result<String, String> {
    let spec = text.trim();
    policy_spec::build_policy(spec, None, &[]).map(|_| spec.to_owned()).map_err(|failure| {
        match policy_spec::missing_separator(spec) {
            Some(fixed) => format!("{}; help: write `{fixed}`", failure.message),
            None => failure.message,
        }
    })
}

/// The items of a list separated by commas. As in CSV, quotes enclose an item with commas.
fn split_list(text: &str) -> Result<Vec<String>, String> {
    let mut line = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    let mut records = line.records();
    let items = records.next().transpose().map_err(|error| error.to_string())?;
    if records.next().is_some() {
        return Err("expected a list in one line".to_owned());
    }
    Ok(items.iter().flatten().map(str::to_owned).collect())
}

/// Policies in a list separated by commas. As in CSV, quotes enclose an item with commas, such as the name of a tree's file.
#[derive(Debug, Clone)]
pub struct PolicyList(Vec<String>);

impl FromStr for PolicyList {
    type Err = String;

    fn from_str(text: &str) -> Result<PolicyList, String> {
        let items = split_list(text)?;
        if items.is_empty() {
            return Err("expected at least one policy".to_owned());
        }
        let policies = items.iter().map(|item| parse_policy_spec(item)).collect::<Result<_, _>>();
        let policies = policies.map_err(|message| {
            // A comma in place of a colon: `saath,d=4`.
            let pairs = items.iter().zip(items.iter().skip(1));
            let mut with_colons = pairs.map(|(item, next)| format!("{}:{}", item.trim(), next.trim()));
            let has_param = |item: &String| item.contains('=') && !item.contains(':');
            if items.iter().any(has_param)
                && let Some(fixed) = with_colons.find(|text| parse_policy_spec(text).is_ok())
            {
                return format!("{message}; help: write `{fixed}`");
            }
            let has_tree = items.iter().any(|item| policy_spec::tree_file(item.trim()).is_some());
            let help = "; help: quote a tree whose file has a comma in its name: '\"tree:a,b.toml\"'";
            message + if has_tree && items.len() > 1 && !text.contains('"') { help } else { "" }
        });
        Ok(PolicyList(policies?))
    }
}

/// The policies of all lists.
pub fn listed_policies(lists: &[PolicyList]) -> Vec<String> {
    lists.iter().flat_map(|list| list.0.iter().cloned()).collect()
}

/// A parameter of a sweep and its values: `start=1MB,10MB`.
#[derive(Debug, Clone)]
pub struct VariedParameter {
    /// `interval`, `arrival`, `port-rate`, `buffer`, `path-seed`, `bandwidth-seed`, or a parameter of policies; `NAME:KEY` for one policy.
    pub key: String,
    /// The distinct values, at least one: the text as given, and its setting.
    pub values: Vec<(String, VariedSetting)>,
}

/// The setting that a value of a varied parameter changes.
#[derive(Debug, Clone, Copy)]
pub enum VariedSetting {
    /// A parameter of the network.
    Network(NetworkParameter),
    /// The factor by which coflows arrive faster than in the trace.
    Arrival(f64),
    /// A parameter of the policies, which parse the value themselves.
    Policy,
}

fn parse_setting(key: &str, value: &str) -> Result<VariedSetting, String> {
    let parse_factor = |value: &str| value.parse().ok().filter(|speed| (1e-6..=1e6).contains(speed));
    Ok(VariedSetting::Network(match key {
        "interval" => NetworkParameter::Interval(parse_interval(value)?),
        "port-rate" => NetworkParameter::PortRate(parse_port_rate(value)?),
        "buffer" => NetworkParameter::Buffer(value.parse().map_err(|_| "expected a number of packets")?),
        "bandwidth-seed" => {
            NetworkParameter::BandwidthSeed(value.parse().map_err(|_| "expected a whole number")?)
        }
        "path-seed" => NetworkParameter::PathSeed(value.parse().map_err(|_| "expected a whole number")?),
        "arrival" => {
            let factor = parse_factor(value).ok_or("expected a factor from 1e-6 to 1e6")?;
            return Ok(VariedSetting::Arrival(factor));
        }
        _ => return Ok(VariedSetting::Policy),
    }))
}

/// The maximum number of values of a range.
const MAX_RANGE: u64 = 1000;

/// The whole numbers of a range such as `1..20`, which contains both ends; or else the value itself.
fn expand_range(value: &str) -> Result<Vec<String>, String> {
    let ends =
        value.split_once("..").and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    let Some((first, last)): Option<(u64, u64)> = ends else { return Ok(vec![value.to_owned()]) };
    if last < first || last - first >= MAX_RANGE {
        return Err(format!(
            "`{value}`: expected a range from low to high of at most {MAX_RANGE} numbers, such as 1..20"
        ));
    }
    Ok((first..=last).map(|number| number.to_string()).collect())
}

/// Parses a range of seeds, such as `1..20`, or a list of seeds.
pub fn parse_seeds(text: &str) -> Result<Seeds, String> {
    // Both keys of seeds have the same values.
    format!("path-seed={text}")
        .parse()
        .map(|parameter: VariedParameter| Seeds(parameter.values.into_iter().map(|(seed, _)| seed).collect()))
}

/// The seeds of `--seeds`.
#[derive(Debug, Clone)]
pub struct Seeds(Vec<String>);

impl Seeds {
    /// The seeds as values of the parameter `key`: `path-seed` or `bandwidth-seed`.
    pub fn vary(&self, key: &str) -> VariedParameter {
        let setting = |seed: &String| parse_setting(key, seed).ok().map(|setting| (seed.clone(), setting));
        VariedParameter { key: key.to_owned(), values: self.0.iter().filter_map(setting).collect() }
    }
}

/// Keys that no policy parameter can have, since they name other columns of a sweep's result.
const RESERVED_KEYS: [&str; 5] = ["policy", "baseline", "trace", "coflows", "flows"];

impl FromStr for VariedParameter {
    type Err = String;

    fn from_str(text: &str) -> Result<VariedParameter, String> {
        let (key, values) = text.split_once('=').ok_or("expected KEY=V1,V2,...")?;
        let values: Result<Vec<_>, _> =
            split_list(values)?.iter().map(|value| expand_range(value.trim())).collect();
        let values: Vec<String> = values?.concat();
        let key = key.trim().to_owned();
        if key.is_empty() || values.is_empty() || values.iter().any(String::is_empty) {
            return Err("expected KEY=V1,V2,... without empty parts".to_owned());
        }
        if let Some(value) = first_repeated(&values) {
            return Err(format!("`{value}` is given twice; expected each value once"));
        }
        if RESERVED_KEYS.contains(&key.as_str()) {
            return Err(format!("`{key}` is not a parameter"));
        }
        let to_setting = |value: String| match parse_setting(&key, &value) {
            Ok(setting) => Ok((value, setting)),
            Err(reason) => Err(format!("`{value}`: {reason}")),
        };
        let values = values.into_iter().map(to_setting).collect::<Result<_, _>>()?;
        Ok(VariedParameter { key, values })
    }
}
