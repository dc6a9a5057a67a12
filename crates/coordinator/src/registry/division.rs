//! Divides links among queues: by application (Saba) or by service (NetShare). [`super::routing`] numbers the ports.

use std::collections::BTreeMap;

use weir_core::saba::Fraction;
use weir_core::saba::controller::{
    AppId, ConnectionId, Controller, ControllerError, ControllerSettings, Port, PortLimits,
};
use weir_proto::{RateBounds, UnclassifiedShare};
use weir_trace::sensitivity::SensitivityTable;

use crate::service_bandwidth::ServiceBandwidth;
use crate::service_queues::ServiceQueues;

/// The least part of a link that packets without a class can be guaranteed.
const MIN_UNCLASSIFIED_FRACTION: f64 = 0.001;

/// The queues of a port for packets with a class.
pub(super) struct PortPlan<'a> {
    /// Weight of each queue; the sum is at most 1.
    pub weights: &'a [f64],
    /// The queue of each priority level, from 0.
    pub queue_of: &'a [u16],
}

/// The configured division, with its state.
pub(super) enum LinkDivision {
    /// Applications by sensitivity (Saba, section 5).
    Applications {
        controller: Box<Controller>,
        /// The controller's settings and the limits of each port, for a new controller.
        settings: (ControllerSettings, Vec<PortLimits>),
    },
    /// Each service has a queue with its weight at every port (NetShare, section 4.1), as far as queues suffice. Other services use its
    /// unused bandwidth, so the queues do not depend on connections.
    Services(Box<ServiceDivision>),
}

/// The division by services.
pub(super) struct ServiceDivision {
    /// The queue of each service.
    pub queues: ServiceQueues,
    /// Weights by service number.
    pub weights: Vec<f64>,
    /// Minimum and maximum bandwidths by service number.
    pub bandwidths: Vec<ServiceBandwidth>,
    /// Weights of queues as fractions of a link.
    fractions: Vec<f64>,
    /// The queue of each class: its number.
    queue_of: Vec<u16>,
    /// The number of the service of each application.
    pub service_of: BTreeMap<AppId, u32>,
}

impl ServiceDivision {
    fn new(
        queues: ServiceQueues,
        weights: Vec<f64>,
        bandwidths: Vec<ServiceBandwidth>,
    ) -> Box<ServiceDivision> {
        let fractions = queue_fractions(&queues, &weights);
        let queue_of = (0..queues.queue_count()).collect();
        Box::new(ServiceDivision {
            queues,
            weights,
            bandwidths,
            fractions,
            queue_of,
            service_of: BTreeMap::new(),
        })
    }

    /// The rates that each queue of a link may not fall below or exceed; empty without any. `links` is the number of links that divide
    /// the traffic evenly. A queue that services share is not bounded:
    /// none of its services has a minimum or maximum.
    pub fn rate_bounds(&self, is_host_link: bool, links: usize) -> Vec<RateBounds> {
        if self.bandwidths.iter().all(ServiceBandwidth::is_unset) {
            return Vec::new();
        }
        let bounds = |owner: Option<u32>| {
            let Some(service) = owner else { return RateBounds::default() };
            let bandwidth = &self.bandwidths[service as usize];
            let max = match is_host_link {
                true => bandwidth.host_link_max(),
                false => bandwidth.max.map_or(f64::INFINITY, |max| max.get()),
            };
            let min = (bandwidth.link_min() / links.max(1) as f64).ceil();
            RateBounds { min: min as u64, max: max.is_finite().then_some((max as u64).max(1)) }
        };
        self.queues.owners().into_iter().map(bounds).collect()
    }
}

/// The part of the highest weight that lower ones count as: agents refuse higher ratios than a million.
const MIN_WEIGHT_RATIO: f64 = 1.000_001e-6;

/// The weights of queues as fractions of a link.
fn queue_fractions(queues: &ServiceQueues, weights: &[f64]) -> Vec<f64> {
    let sums = queues.sum_by_queue(weights);
    let min = sums.iter().copied().fold(0.0, f64::max) * MIN_WEIGHT_RATIO;
    normalized_weights(&sums.iter().map(|sum| sum.max(min)).collect::<Vec<_>>())
}

impl LinkDivision {
    /// A division by applications.
    pub fn applications(
        table: &SensitivityTable,
        settings: (ControllerSettings, Vec<PortLimits>),
    ) -> Result<LinkDivision, ControllerError> {
        let controller = Box::new(Controller::new_central(table.models(), settings.0, &settings.1)?);
        Ok(LinkDivision::Applications { controller, settings })
    }

    /// A division by services with these queues, weights and bandwidths.
    pub fn services(
        queues: ServiceQueues,
        weights: Vec<f64>,
        bandwidths: Vec<ServiceBandwidth>,
    ) -> LinkDivision {
        LinkDivision::Services(ServiceDivision::new(queues, weights, bandwidths))
    }

    /// The same kind of division for another table, without applications.
    pub fn with_table(&self, table: &SensitivityTable) -> Result<LinkDivision, ControllerError> {
        match self {
            LinkDivision::Applications { settings, .. } => {
                LinkDivision::applications(table, settings.clone())
            }
            LinkDivision::Services(services) => Ok(LinkDivision::services(
                services.queues.clone(),
                services.weights.clone(),
                services.bandwidths.clone(),
            )),
        }
    }

    /// The same kind of division for other ports with these limits, without applications. `table` is that of the applications.
    pub fn with_ports(
        &self,
        table: &SensitivityTable,
        limits: Vec<PortLimits>,
    ) -> Result<LinkDivision, ControllerError> {
        match self {
            LinkDivision::Applications { settings: (settings, _), .. } => {
                LinkDivision::applications(table, (*settings, limits))
            }
            LinkDivision::Services(_) => self.with_table(table),
        }
    }

    /// Sets the weights and bandwidths of services. Returns whether the division uses them.
    pub fn set_services(&mut self, weights: Vec<f64>, bandwidths: Vec<ServiceBandwidth>) -> bool {
        let LinkDivision::Services(services) = self else { return false };
        services.fractions = queue_fractions(&services.queues, &weights);
        (services.weights, services.bandwidths) = (weights, bandwidths);
        true
    }

    /// Removes an application. Returns the applications whose priority level changed.
    pub fn deregister(&mut self, app: AppId) -> Result<Vec<AppId>, ControllerError> {
        match self {
            LinkDivision::Applications { controller, .. } => {
                let changes = controller.deregister(app)?;
                Ok(changes.changed_levels.into_iter().map(|(app, _)| app).collect())
            }
            LinkDivision::Services(services) => {
                services.service_of.remove(&app);
                Ok(Vec::new())
            }
        }
    }

    /// Adds a connection of an application over these ports.
    pub fn open(
        &mut self,
        connection: ConnectionId,
        app: AppId,
        path: &[Port],
    ) -> Result<(), ControllerError> {
        match self {
            LinkDivision::Applications { controller, .. } => {
                controller.open_connection(connection, app, path).map(drop)
            }
            LinkDivision::Services(_) => Ok(()),
        }
    }

    /// Removes a connection.
    pub fn close(&mut self, connection: ConnectionId) -> Result<(), ControllerError> {
        match self {
            LinkDivision::Applications { controller, .. } => controller.close_connection(connection),
            LinkDivision::Services(_) => Ok(()),
        }
    }

    /// Computes queues for all changes. Returns the ports whose queues changed.
    pub fn update(&mut self) -> Vec<Port> {
        match self {
            LinkDivision::Applications { controller, .. } => controller.update_plans().changed_ports,
            LinkDivision::Services(_) => Vec::new(),
        }
    }

    /// What packets without a class get at a port, where services leave them the fraction `default`.
    pub fn unclassified(&self, port: Port, default: f64) -> UnclassifiedShare {
        match self {
            LinkDivision::Applications { settings: (settings, limits), .. } => {
                let rest = 1.0 - settings.c_saba.get();
                if settings.c_saba < Fraction::ALL {
                    return UnclassifiedShare { fraction: rest.max(MIN_UNCLASSIFIED_FRACTION), weight: rest };
                }
                // They borrow as one queue of many does.
                let queue_count = limits.get(port as usize).map_or(1, |limits| limits.queues.max(1));
                UnclassifiedShare { fraction: default, weight: 1.0 / f64::from(queue_count) }
            }
            // A service of weight 1, next to weights that are fractions of a link.
            LinkDivision::Services(services) => {
                UnclassifiedShare { fraction: default, weight: 1.0 / services.weights.iter().sum::<f64>() }
            }
        }
    }

    /// Queues of a port; `None` if no connection is known there.
    pub fn plan(&self, port: Port) -> Option<PortPlan<'_>> {
        match self {
            LinkDivision::Applications { controller, settings } => {
                let plan = controller.queue_plan(port)?;
                // The last queue is not in use if Saba leaves a part of the link to others: they have no class.
                let reserved_queues = usize::from(settings.0.c_saba < Fraction::ALL);
                let weights = &plan.weights[..plan.weights.len() - reserved_queues];
                Some(PortPlan { weights, queue_of: &plan.queue_by_level })
            }
            LinkDivision::Services(services) => {
                Some(PortPlan { weights: &services.fractions, queue_of: &services.queue_of })
            }
        }
    }

    /// The priority level of an application, from 0; the queue of its service if queues belong to services.
    pub fn level(&self, app: AppId) -> Option<u16> {
        match self {
            LinkDivision::Applications { controller, .. } => controller.app_level(app),
            LinkDivision::Services(services) => {
                services.service_of.get(&app).map(|&service| services.queues.queue(service))
            }
        }
    }
}

fn normalized_weights(weights: &[f64]) -> Vec<f64> {
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}
