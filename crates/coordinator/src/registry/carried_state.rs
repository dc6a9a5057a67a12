//! Takes over what the store does not have from the registry of the former configuration.

use super::Registry;
use crate::config::CableEnd;
use crate::control_plane::CarriedLimit;
use crate::control_thread::Stopped;

impl Registry {
    /// Takes over the limits of hosts' bandwidth and the links that agents have reported as down. Agents whose links lead elsewhere now
    /// report again.
    pub(crate) async fn carry_over(&self, former: &Registry) -> Result<(), Stopped> {
        let (limits, links) =
            former.handle.call(|plane, now| (plane.bandwidth_limits(now), plane.links_down())).await?;
        let renumbered = limits.into_iter().filter_map(|limit| {
            let host = self.hosts().number(former.hosts().name(limit.host))?;
            Some(CarriedLimit { host, ..limit })
        });
        let limits: Vec<CarriedLimit> = renumbered.collect();
        let links = links.into_iter().filter_map(|(agent, links)| {
            let number = self.agent_number(&former.agent_name(agent))?;
            (self.port_names(number) == former.port_names(agent)).then_some((number, links))
        });
        let links: Vec<(u32, Vec<u32>)> = links.collect();
        self.handle
            .call(move |plane, now| {
                for CarriedLimit { host, owner, limit, lease } in limits {
                    // The plane is new, so no other owner has a limit.
                    let _ = plane.limit_bandwidth(host, &owner, limit, lease, now);
                }
                links.into_iter().for_each(|(agent, links)| plane.set_links_down(agent, links));
            })
            .await?;
        self.apply_link_reports().await
    }

    /// The names of the other ends of a switch's ports; none for a host.
    fn port_names(&self, agent: u32) -> Vec<String> {
        let hosts = self.hosts();
        let switch = (agent as usize).checked_sub(hosts.slot_count());
        let switch = switch.and_then(|switch| self.switches.get(switch));
        let ports = switch.map_or(&[][..], |switch| &switch.ports);
        let name = |end: &CableEnd| match *end {
            CableEnd::Host(host) => hosts.name(host).to_owned(),
            CableEnd::Switch(switch) => self.switches[switch as usize].name.clone(),
        };
        ports.iter().map(name).collect()
    }
}
