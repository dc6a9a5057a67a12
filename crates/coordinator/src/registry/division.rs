//! Division of links: by Saba's applications or by NetShare's services.
//!
//! [`super::routing`] numbers the ports.

use std::collections::BTreeMap;

use weir_core::saba::controller::{AppId, ConnectionId, Controller, ControllerError, Port, Settings};
use weir_trace::sensitivity::SensitivityTable;

/// The queues of a port.
pub(super) struct Plan<'a> {
    /// Weight of each queue as a fraction of the link; the sum is 1.
    pub weights: &'a [f64],
    /// The queue of each class, from 0.
    pub queue_of: &'a [u16],
}

/// The configured division, with its state.
pub(super) enum Division {
    /// Applications by sensitivity (Saba, section 5).
    Applications {
        controller: Box<Controller>,
        /// The controller's settings and the number of queues of each port, for a new controller.
        settings: (Settings, Vec<u16>),
    },
    /// Each service has a queue with its weight at every port (NetShare, section 4.1). Other services use its unused
    /// bandwidth, so the queues do not depend on connections.
    Services {
        /// Weights by service number: as they were set, and as fractions of a link.
        weights: Vec<f64>,
        parts: Vec<f64>,
        /// Each service has its own queue.
        queue_of: Vec<u16>,
        /// The service of each application.
        of: BTreeMap<AppId, u16>,
    },
}

impl Division {
    /// A division by applications.
    pub fn applications(
        table: &SensitivityTable,
        settings: (Settings, Vec<u16>),
    ) -> Result<Division, ControllerError> {
        let controller = Box::new(Controller::central(table.models(), settings.0, &settings.1)?);
        Ok(Division::Applications { controller, settings })
    }

    /// A division by services with these weights.
    pub fn services(weights: Vec<f64>) -> Division {
        let queue_of = (0..weights.len() as u16).collect();
        Division::Services { parts: parts(&weights), weights, queue_of, of: BTreeMap::new() }
    }

    /// The same kind of division for another table, without applications.
    pub fn anew(&self, table: &SensitivityTable) -> Result<Division, ControllerError> {
        match self {
            Division::Applications { settings, .. } => Division::applications(table, settings.clone()),
            Division::Services { weights, .. } => Ok(Division::services(weights.clone())),
        }
    }

    /// Sets the weights of services. Returns whether the division uses them.
    pub fn set_weights(&mut self, new: Vec<f64>) -> bool {
        let Division::Services { weights, parts, .. } = self else { return false };
        (*parts, *weights) = (self::parts(&new), new);
        true
    }

    /// Removes an application. Returns the applications whose class changed.
    pub fn deregister(&mut self, app: AppId) -> Result<Vec<AppId>, ControllerError> {
        match self {
            Division::Applications { controller, .. } => {
                let left = controller.deregister(app)?;
                Ok(left.moved.into_iter().map(|(app, _)| app).collect())
            }
            Division::Services { of, .. } => {
                of.remove(&app);
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
            Division::Applications { controller, .. } => controller.open(connection, app, path).map(drop),
            Division::Services { .. } => Ok(()),
        }
    }

    /// Removes a connection.
    pub fn close(&mut self, connection: ConnectionId) -> Result<(), ControllerError> {
        match self {
            Division::Applications { controller, .. } => controller.close(connection),
            Division::Services { .. } => Ok(()),
        }
    }

    /// Computes queues for all changes. Returns the ports whose queues changed.
    pub fn update(&mut self) -> Vec<Port> {
        match self {
            Division::Applications { controller, .. } => controller.update().changed,
            Division::Services { .. } => Vec::new(),
        }
    }

    /// Queues of a port; `None` if no connection is known there.
    pub fn plan(&self, port: Port) -> Option<Plan<'_>> {
        match self {
            Division::Applications { controller, .. } => {
                let plan = controller.plan(port)?;
                Some(Plan { weights: &plan.weights, queue_of: &plan.queue_of })
            }
            Division::Services { parts, queue_of, .. } => Some(Plan { weights: parts, queue_of }),
        }
    }

    /// The class of an application, from 0.
    pub fn level(&self, app: AppId) -> Option<u16> {
        match self {
            Division::Applications { controller, .. } => controller.level(app),
            Division::Services { of, .. } => of.get(&app).copied(),
        }
    }
}

fn parts(weights: &[f64]) -> Vec<f64> {
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}
