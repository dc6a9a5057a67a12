//! Limits of hosts' bandwidth, which profilers request. They are not stored: after a restart of the coordinator, hosts are unlimited until
//! the owners of the limits renew them.

use serde_json::json;
use weir_core::units::Time;
use weir_proto::BandwidthLimit;

use super::Registry;
use super::bodies::check_id;
use crate::audit::Actor;
use crate::control_plane::LimitTaken;
use crate::problem::{Location, Problem};
use crate::values::{BANDWIDTH_FRACTION, BANDWIDTH_LEASE_SECONDS};

impl Registry {
    /// Limits what a host sends, or renews the limit. Returns whether a limit of the same owner was in force.
    ///
    /// # Errors
    /// [`Problem`]: 404 if the host is unknown, 409 if another owner limits it or it is paused, 422 for an invalid value.
    pub async fn limit_bandwidth(
        &self,
        actor: &Actor,
        host: &str,
        owner: &str,
        fraction: f64,
        lease: &str,
    ) -> Result<bool, Problem> {
        let number = self.host_of_path(host)?;
        check_id(owner, || Location::field("owner"))?;
        let limit = BandwidthLimit::new(fraction).filter(|_| BANDWIDTH_FRACTION.contains(&fraction));
        let limit = limit.ok_or_else(|| {
            Problem::invalid(Location::field("fraction"), &fraction.to_string(), "a number from 0.001 to 1")
        })?;
        let seconds = lease.parse::<Time>().map(Time::get).ok();
        let seconds = seconds.filter(|seconds| BANDWIDTH_LEASE_SECONDS.contains(seconds));
        let seconds = seconds
            .ok_or_else(|| Problem::invalid(Location::field("lease"), lease, "a time from 1s to 60s"))?;
        let owner = owner.to_owned();
        let limited = self.handle.call(move |plane, now| match plane.host_pause(number) {
            Some(_) => None,
            None => Some(plane.limit_bandwidth(number, &owner, limit, seconds, now)),
        });
        let Some(limited) = limited.await? else {
            let detail = format!(
                "host `{host}` is paused; expected a host whose orders are enforced; help: resume it"
            );
            return Err(Problem::conflict(&detail));
        };
        let previous = limited.map_err(|taken| taken_problem(host, &taken))?;
        // Renewals come every few seconds.
        if previous != Some(limit) {
            let value = |limit: Option<BandwidthLimit>| json!(limit.map(BandwidthLimit::fraction));
            self.audit.note_accepted(actor, value(previous), value(Some(limit)));
        }
        Ok(previous.is_some())
    }

    /// Ends the limit of a host. A host without one is no error.
    ///
    /// # Errors
    /// [`Problem`]: 404 if the host is unknown, 409 if another owner limits it.
    pub async fn end_bandwidth_limit(&self, actor: &Actor, host: &str, owner: &str) -> Result<(), Problem> {
        let number = self.host_of_path(host)?;
        let owner = owner.to_owned();
        let ended = self.handle.call(move |plane, now| plane.end_bandwidth_limit(number, &owner, now));
        if let Some(previous) = ended.await?.map_err(|taken| taken_problem(host, &taken))? {
            self.audit.note_accepted(actor, json!(previous.fraction()), json!(null));
        }
        Ok(())
    }

    /// The number of a host that a path names.
    fn host_of_path(&self, name: &str) -> Result<u32, Problem> {
        self.hosts().number(name).ok_or_else(|| Problem::not_found("host", name, super::EXPECTED_HOST))
    }
}

fn taken_problem(host: &str, taken: &LimitTaken) -> Problem {
    Problem::conflict(&format!("host `{host}`: {taken}"))
}
