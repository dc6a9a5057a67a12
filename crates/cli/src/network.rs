//! Replays a trace over a network: the ports of one switch, or links between regions.

use std::sync::Arc;

use serde_json::Value;
use weir_console::failure::Failure;
use weir_console::policy_spec;
use weir_console::progress::Progress;
use weir_console::run::{self, ReplayTask};
use weir_core::model::{WideArea, Workload};
use weir_core::policy::{self, ParamsError};
use weir_core::units::Time;
use weir_core::wide_area;
use weir_sim::lower_bound::LowerBounds;
use weir_sim::wide_area::{GroupOrder, replay};
use weir_sim::{Outcome, ReplayOptions};

use crate::args::{self, VariedSetting};
use crate::links::Links;

/// A network with the options of replays over it.
#[derive(Clone)]
pub enum Network {
    /// Ports, on one switch or with links between switches.
    Switch(ReplayOptions, Arc<Links>),
    /// Links between regions, by the name of their file.
    WideArea(String, Arc<WideArea>, weir_sim::wide_area::WideAreaOptions),
}

impl Network {
    /// Reads the requested network. With `keep_flows`, outcomes contain the end of every flow.
    ///
    /// # Errors
    /// If a file of the network cannot be read or is invalid, or the buffer is outside the measurements.
    pub fn read(
        replay: &args::ReplayOptions,
        args: &args::NetworkOptions,
        keep_flows: bool,
    ) -> Result<Network, Failure> {
        if let Some(path) = &args.wide_area {
            let area = Arc::new(weir_trace::wide_area::read(path)?);
            let options = weir_sim::wide_area::WideAreaOptions {
                seed: args.bandwidth_seed,
                group_order: GroupOrder::Concurrent,
                keep_flow_ends: keep_flows,
            };
            return Ok(Network::WideArea(path.display().to_string(), area, options));
        }
        let mut options = switch_options(replay, keep_flows);
        let links = Links::read(args)?;
        links.apply(&mut options);
        Ok(Network::Switch(options, Arc::new(links)))
    }

    /// The policies that `weir compare` replays by default.
    pub fn default_policies(&self, workload: &Workload) -> Vec<String> {
        match self {
            Network::Switch(..) => policy_spec::default_policies(&workload.names),
            Network::WideArea(..) => wide_area::POLICIES.iter().map(|entry| entry.name.to_owned()).collect(),
        }
    }

    /// Checks a policy and its parameters, as `NAME[:KEY=VALUE...]`.
    ///
    /// # Errors
    /// If this kind of network has no policy of this name, or the policy refuses a parameter.
    pub fn check_policy(&self, policy: &str) -> Result<(), ParamsError> {
        match self {
            Network::Switch(..) => policy::build(policy).map(drop),
            Network::WideArea(..) => wide_area::build(policy).map(drop),
        }
    }

    /// The lower bounds of completion times; `None` on networks without known bounds.
    pub fn bounds(&self, workload: &Workload) -> Option<LowerBounds> {
        match self {
            Network::Switch(options, _) => {
                LowerBounds::new(workload, options.port_rate, options.network.trunks.as_deref())
            }
            Network::WideArea(..) => None,
        }
    }

    /// The parameters of this network that a sweep can vary, for error messages.
    pub fn sweep_parameters(&self) -> &'static str {
        match self {
            Network::Switch(_, links) if links.has_fabric() => "interval, arrival",
            Network::Switch(..) => "interval, arrival, port-rate",
            Network::WideArea(..) => "arrival, bandwidth-seed",
        }
    }

    /// Sets a parameter. Returns `false` if this network does not have the parameter.
    pub fn set_parameter(&mut self, setting: VariedSetting) -> bool {
        match (&mut *self, setting) {
            (Network::Switch(options, _), VariedSetting::Interval(interval)) => options.interval = interval,
            (Network::Switch(_, links), VariedSetting::PortRate(_)) if links.has_fabric() => {
                return false;
            }
            (Network::Switch(options, links), VariedSetting::PortRate(rate)) => {
                options.port_rate = rate;
                links.apply(options);
            }
            (Network::WideArea(_, _, options), VariedSetting::BandwidthSeed(seed)) => options.seed = seed,
            _ => return false,
        }
        true
    }

    /// Whether the parameters of both networks are equal. The networks must be equal in all other respects.
    pub fn has_equal_parameters(&self, other: &Network) -> bool {
        match (self, other) {
            (Network::Switch(a, _), Network::Switch(b, _)) => {
                (a.port_rate, a.interval) == (b.port_rate, b.interval)
            }
            (Network::WideArea(_, _, a), Network::WideArea(_, _, b)) => a == b,
            _ => false,
        }
    }

    /// The fields that describe the network in a record.
    pub fn record_fields(&self) -> Vec<(&'static str, Value)> {
        match self {
            Network::Switch(options, links) => {
                let rate = ("port_rate", options.port_rate.to_string().into());
                let interval = ("interval_s", options.interval.get().into());
                [rate, interval].into_iter().chain(links.record_fields()).collect()
            }
            Network::WideArea(name, _, options) => {
                vec![("wide_area", name.as_str().into()), ("bandwidth_seed", options.seed.into())]
            }
        }
    }

    /// A description of the network as lines of text. `is_varied` returns whether a sweep varies a parameter.
    pub fn caption(&self, is_varied: impl Fn(&str) -> bool) -> String {
        match self {
            Network::Switch(options, links) => {
                let schedules = match options.interval {
                    _ if is_varied("interval") => "a schedule every `interval`".to_owned(),
                    Time::ZERO => "a schedule whenever something happens".to_owned(),
                    interval => format!("a schedule every {interval}"),
                };
                let rate = options.port_rate;
                let (rate, links) = if is_varied("port-rate") {
                    ("`port-rate`".to_owned(), links.names())
                } else {
                    (rate.to_string(), links.caption(rate))
                };
                format!("Ports of {rate}, {schedules}.\n{links}")
            }
            Network::WideArea(name, area, options) => {
                let correlated = match area.correlation() {
                    0.0 => String::new(),
                    correlation => format!(" at a correlation of {correlation}"),
                };
                let bandwidth = if area.is_variable() {
                    format!(
                        "another bandwidth every {}{correlated}, seed {}",
                        area.change_interval(),
                        options.seed
                    )
                } else {
                    "constant bandwidth".to_owned()
                };
                format!("{name}: links between {}; {bandwidth}.\n", area.regions().join(", "))
            }
        }
    }
}

/// The options of a replay over the ports of one switch, without a limit.
pub fn switch_options(replay: &args::ReplayOptions, keep_flows: bool) -> ReplayOptions {
    ReplayOptions {
        port_rate: replay.port_rate,
        interval: replay.interval,
        keep_flow_ends: keep_flows,
        network: weir_sim::NetworkModel::default(),
    }
}

/// A replay to run.
pub struct Replay<'a> {
    /// The policy and its parameters.
    pub policy: String,
    /// The workload.
    pub workload: &'a Workload,
    /// The network.
    pub network: &'a Network,
}

impl Replay<'_> {
    /// Checks that the policy exists on the network, and supports the services of the workload.
    fn check(&self) -> Result<(), Failure> {
        let names = &self.workload.names;
        match self.network {
            Network::Switch(..) => policy_spec::build_policy(&self.policy, Some(names)).map(drop),
            Network::WideArea(..) => policy_spec::build_wide_area_policy(&self.policy, names).map(drop),
        }
    }

    fn run(&self, progress: &Progress) -> Result<Outcome, Failure> {
        let Replay { policy, workload, network } = self;
        match network {
            Network::Switch(options, _) => {
                ReplayTask { policy: policy.clone(), workload, options: options.clone() }.run(progress)
            }
            Network::WideArea(_, area, options) => {
                let watch = progress.add_replay_bar(policy, workload.coflows.len());
                let scheme = policy_spec::build_wide_area_policy(policy, &workload.names)?;
                let outcome = replay(workload, area, scheme, options, |done| watch.set_completed(done));
                outcome.map_err(|error| Failure::from_wide_area_error(policy, &error))
            }
        }
    }
}

/// Runs all replays, at most `run_options.jobs` concurrently. Outcomes are in the order of `replays`.
///
/// # Errors
/// If a check of a policy or a replay fails, or a signal arrives. All policies are checked before the first replay.
pub fn run_replays(replays: &[Replay<'_>], run_options: &args::RunOptions) -> Result<Vec<Outcome>, Failure> {
    replays.iter().try_for_each(Replay::check)?;
    let progress = Progress::new(run_options.quiet);
    run::run_concurrently(replays.len(), run_options.jobs, |index| replays[index].run(&progress))
}
