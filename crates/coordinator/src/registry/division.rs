//! What links are divided by: Saba's applications, or NetShare's services.
//!
//! Ports are numbered as [`super::routing`] says.

use std::collections::BTreeMap;

use weir_core::saba::controller::{AppId, ConnectionId, Controller, ControllerError, Port, Settings};
use weir_trace::sensitivity::SensitivityTable;

/// The queues of a port.
pub(super) struct Plan<'a> {
    /// The weight of each, as a part of the link; they sum to 1.
    pub weights: &'a [f64],
    /// The queue of each class, from 0.
    pub queue_of: &'a [u16],
}

/// How queues are found.
pub(super) enum Division {
    /// Applications by sensitivity (Saba, section 5).
    Applications {
        controller: Box<Controller>,
        /// What it was made from, with the number of queues of each port.
        settings: (Settings, Vec<u16>),
    },
    /// Each service has a queue with its weight at every port (NetShare, section 4.1). What it does not use others have, so ports need not
    /// know who comes.
    Services {
        /// By number, as they were given and as parts of a link.
        weights: Vec<f64>,
        parts: Vec<f64>,
        /// Each has its own.
        queue_of: Vec<u16>,
        /// The service of each application.
        of: BTreeMap<AppId, u16>,
    },
}

impl Division {
    /// By applications.
    pub fn applications(
        table: &SensitivityTable,
        settings: (Settings, Vec<u16>),
    ) -> Result<Division, ControllerError> {
        let controller = Box::new(Controller::central(table.models(), settings.0, &settings.1)?);
        Ok(Division::Applications { controller, settings })
    }

    /// By services with these weights.
    pub fn services(weights: Vec<f64>) -> Division {
        let queue_of = (0..weights.len() as u16).collect();
        Division::Services { parts: parts(&weights), weights, queue_of, of: BTreeMap::new() }
    }

    /// The same without any application, for another table.
    pub fn anew(&self, table: &SensitivityTable) -> Result<Division, ControllerError> {
        match self {
            Division::Applications { settings, .. } => Division::applications(table, settings.clone()),
            Division::Services { weights, .. } => Ok(Division::services(weights.clone())),
        }
    }

    /// Gives services other weights; the answer is whether that changes queues.
    pub fn set_weights(&mut self, new: Vec<f64>) -> bool {
        let Division::Services { weights, parts, .. } = self else { return false };
        (*parts, *weights) = (self::parts(&new), new);
        true
    }

    /// Forgets an application; the answer is which others have another class now.
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

    /// An application has a connection over these ports.
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

    /// A connection is over.
    pub fn close(&mut self, connection: ConnectionId) -> Result<(), ControllerError> {
        match self {
            Division::Applications { controller, .. } => controller.close(connection),
            Division::Services { .. } => Ok(()),
        }
    }

    /// Finds queues for what changed; the answer is at which ports they are others.
    pub fn update(&mut self) -> Vec<Port> {
        match self {
            Division::Applications { controller, .. } => controller.update().changed,
            Division::Services { .. } => Vec::new(),
        }
    }

    /// The queues of a port; none where nobody is known.
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
