//! Divides links among queues: by application (Saba) or by service (NetShare). [`super::routing`] numbers the ports.

use std::collections::BTreeMap;

use weir_core::saba::Fraction;
use weir_core::saba::controller::{
    AppId, ConnectionId, Controller, ControllerError, ControllerSettings, Port, PortLimits,
};
use weir_proto::UnclassifiedShare;
use weir_trace::sensitivity::SensitivityTable;

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
    /// Each service has a queue with its weight at every port (NetShare, section 4.1). Other services use its unused
    /// bandwidth, so the queues do not depend on connections.
    Services {
        /// Weights by service number.
        weights: Vec<f64>,
        /// Weights as fractions of a link, by service number.
        fractions: Vec<f64>,
        /// The queue of each service: its number.
        queue_of: Vec<u16>,
        /// The number of the service of each application.
        service_of: BTreeMap<AppId, u16>,
    },
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

    /// A division by services with these weights.
    pub fn services(weights: Vec<f64>) -> LinkDivision {
        let queue_of = (0..weights.len() as u16).collect();
        LinkDivision::Services {
            fractions: normalized_weights(&weights),
            weights,
            queue_of,
            service_of: BTreeMap::new(),
        }
    }

    /// The same kind of division for another table, without applications.
    pub fn with_table(&self, table: &SensitivityTable) -> Result<LinkDivision, ControllerError> {
        match self {
            LinkDivision::Applications { settings, .. } => {
                LinkDivision::applications(table, settings.clone())
            }
            LinkDivision::Services { weights, .. } => Ok(LinkDivision::services(weights.clone())),
        }
    }

    /// Sets the weights of services. Returns whether the division uses them.
    pub fn set_weights(&mut self, new_weights: Vec<f64>) -> bool {
        let LinkDivision::Services { weights, fractions, .. } = self else { return false };
        (*fractions, *weights) = (normalized_weights(&new_weights), new_weights);
        true
    }

    /// Removes an application. Returns the applications whose priority level changed.
    pub fn deregister(&mut self, app: AppId) -> Result<Vec<AppId>, ControllerError> {
        match self {
            LinkDivision::Applications { controller, .. } => {
                let changes = controller.deregister(app)?;
                Ok(changes.changed_levels.into_iter().map(|(app, _)| app).collect())
            }
            LinkDivision::Services { service_of, .. } => {
                service_of.remove(&app);
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
            LinkDivision::Services { .. } => Ok(()),
        }
    }

    /// Removes a connection.
    pub fn close(&mut self, connection: ConnectionId) -> Result<(), ControllerError> {
        match self {
            LinkDivision::Applications { controller, .. } => controller.close_connection(connection),
            LinkDivision::Services { .. } => Ok(()),
        }
    }

    /// Computes queues for all changes. Returns the ports whose queues changed.
    pub fn update(&mut self) -> Vec<Port> {
        match self {
            LinkDivision::Applications { controller, .. } => controller.update_plans().changed_ports,
            LinkDivision::Services { .. } => Vec::new(),
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
            LinkDivision::Services { weights, .. } => {
                UnclassifiedShare { fraction: default, weight: 1.0 / weights.iter().sum::<f64>() }
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
            LinkDivision::Services { fractions, queue_of, .. } => {
                Some(PortPlan { weights: fractions, queue_of })
            }
        }
    }

    /// The priority level of an application, from 0; the number of its service if queues belong to services.
    pub fn level(&self, app: AppId) -> Option<u16> {
        match self {
            LinkDivision::Applications { controller, .. } => controller.app_level(app),
            LinkDivision::Services { service_of, .. } => service_of.get(&app).copied(),
        }
    }
}

fn normalized_weights(weights: &[f64]) -> Vec<f64> {
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}
