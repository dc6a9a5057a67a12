//! Saba's controller (sections 5.4 and 6): a state machine that computes the queues of each port.
//!
//! Applications register, and connections open and close along paths of ports. For each port, the controller computes
//! a map from priority levels to queues, and the weights of the queues.
//!
//! One type implements both kinds of controller of section 5.4. The central controller owns all ports, and maps the
//! registered applications. An instance of the distributed controller owns some ports. Its mapping is computed in
//! advance from the whole sensitivity table, and it forwards events about ports of other instances. The computation
//! for a port is the same.
//!
//! Shares depend only on the set of applications at a port (Eq. 2). So a port is solved again only if its set
//! changes, and ports with equal sets are solved once.
//!
//! Choices that the paper leaves open:
//!
//! - *Models* at a port: each application uses its own model, as in Eq. 2. The centroid of a priority level only
//!   decides which levels share a queue.
//! - *Applications whose level changes* because another one registers or leaves are in the result. The process that
//!   marks their packets has to change the mark. All connections of an application have its level.
//! - *An application that leaves* has to close its connections first.
//! - *Paths* contain all ports that a connection may pass, each once. With several paths, they contain the ports of
//!   all paths (footnote 2).
//! - *Weights of queues* are parts of the port's capacity. The weights of Saba's queues add up to C_saba, and the
//!   reserved queue has the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;
use std::sync::Arc;

use smallvec::SmallVec;

use super::mapping::Mapping;
use super::port::{Plan, PortState, Stale};
use super::sensitivity::{Fraction, Sensitivity};
use super::share::Shares;
use super::solved::{Sets, Solved};
use crate::model::Mask;
use crate::solve::{Polynomial, Solver};

pub use super::ids::{AppId, ConnectionId, Port};

/// Settings of the operator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// The part of each port that is reserved for Saba (C_saba). The last queue of the port gets the rest.
    pub c_saba: Fraction,
    /// The minimum weight of an application at a port, as a part of an even share of C_saba. [`super::share::FLOOR`]
    /// is the default.
    pub floor: Fraction,
    /// Maximum number of priority levels of the network (S).
    pub levels: NonZeroU16,
}

/// The result of a registration or deregistration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// Priority level of the application; `None` after a deregistration.
    pub level: Option<u16>,
    /// Other applications whose priority level changed, and their new levels.
    pub moved: Vec<(AppId, u16)>,
}

/// The result of [`Controller::update`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Update {
    /// Ports with a new plan, in rising order.
    pub changed: Vec<Port>,
    /// Number of solutions of Eq. 2.
    pub solved: usize,
}

/// Why an event was rejected. A rejected event changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControllerError {
    /// A port has too few queues.
    #[error("port {port}: `{queues}` queues: expected at least {least}")]
    Queues {
        /// Number of the port.
        port: usize,
        /// Number of its queues.
        queues: u16,
        /// Minimum number of queues.
        least: u16,
    },
    /// A model is not in the sensitivity table.
    #[error("model: `{model}`: expected 0 to {}, a row of the sensitivity table", .rows.saturating_sub(1))]
    Model {
        /// The given row.
        model: usize,
        /// Number of rows of the table.
        rows: usize,
    },
    /// A port does not exist.
    #[error("port: `{port}`: expected 0 to {}", .ports.saturating_sub(1))]
    Port {
        /// The given port.
        port: Port,
        /// Number of ports.
        ports: usize,
    },
    /// A path contains a port twice.
    #[error("path: port `{port}` comes twice: expected each once")]
    Twice {
        /// Number of the port.
        port: Port,
    },
    /// An application is registered already.
    #[error("application: `{}` is registered: expected a new one", .app.0)]
    Known {
        /// The application.
        app: AppId,
    },
    /// An application is not registered.
    #[error("application: `{}` is not registered: expected one that is", .app.0)]
    Unknown {
        /// The application.
        app: AppId,
    },
    /// An application with open connections deregisters.
    #[error("application: `{}` has {connections} open connections: expected none", .app.0)]
    Busy {
        /// The application.
        app: AppId,
        /// Number of its connections at this controller.
        connections: usize,
    },
    /// A connection is open already.
    #[error("connection: `{}` is open: expected a new one", .connection.0)]
    Open {
        /// The connection.
        connection: ConnectionId,
    },
    /// A connection is not open.
    #[error("connection: `{}` is not open: expected one that is", .connection.0)]
    Closed {
        /// The connection.
        connection: ConnectionId,
    },
}

#[derive(Debug, Clone)]
struct AppState {
    id: AppId,
    model: usize,
    connections: usize,
}

/// Buffers for the applications of the port that is solved.
#[derive(Debug, Clone, Default)]
struct Present {
    apps: Vec<AppId>,
    models: Vec<Polynomial>,
    levels: Vec<u16>,
}

/// The central controller, or an instance of the distributed one.
#[derive(Debug, Clone)]
pub struct Controller {
    models: Vec<Sensitivity>,
    settings: Settings,
    mapping: Mapping,
    /// The ports of an instance; `None` for the central controller, which owns all ports.
    owned: Option<Mask>,
    /// Number of registered applications by model.
    counts: Vec<u32>,
    slots: Vec<Option<AppState>>,
    free: BTreeSet<usize>,
    by_id: BTreeMap<AppId, usize>,
    connections: BTreeMap<ConnectionId, (usize, Box<[Port]>)>,
    ports: Vec<PortState>,
    stale: Mask,
    solved: Sets,
    solver: Solver,
    present: Present,
}

impl Controller {
    /// Creates the central controller of a network. `queues` is the number of queues by port.
    ///
    /// # Errors
    /// [`ControllerError::Queues`] if a port has no queue for Saba.
    pub fn central(
        models: Vec<Sensitivity>,
        settings: Settings,
        queues: &[u16],
    ) -> Result<Controller, ControllerError> {
        let mapping = Mapping::new(&models, &vec![0; models.len()], settings.levels);
        Controller::new(models, settings, queues, None, mapping)
    }

    /// Creates an instance of the distributed controller, which owns the ports `owned`.
    ///
    /// Its mapping is computed from the whole sensitivity table, so all instances have the same mapping.
    ///
    /// # Errors
    /// [`ControllerError::Queues`] if a port has no queue for Saba, or [`ControllerError::Port`] if an owned port
    /// does not exist.
    pub fn instance(
        models: Vec<Sensitivity>,
        settings: Settings,
        queues: &[u16],
        owned: &[Port],
    ) -> Result<Controller, ControllerError> {
        let mapping = Mapping::new(&models, &vec![1; models.len()], settings.levels);
        let mut mask = Mask::empty(queues.len());
        for &port in owned {
            if port as usize >= queues.len() {
                return Err(ControllerError::Port { port, ports: queues.len() });
            }
            mask.insert(port as usize);
        }
        Controller::new(models, settings, queues, Some(mask), mapping)
    }

    fn new(
        models: Vec<Sensitivity>,
        settings: Settings,
        queues: &[u16],
        owned: Option<Mask>,
        mapping: Mapping,
    ) -> Result<Controller, ControllerError> {
        let least = if settings.c_saba < Fraction::ALL { 2 } else { 1 };
        if let Some((port, &queues)) = queues.iter().enumerate().find(|(_, queues)| **queues < least) {
            return Err(ControllerError::Queues { port, queues, least });
        }
        Ok(Controller {
            counts: vec![0; models.len()],
            ports: queues.iter().map(|&queues| PortState::new(queues)).collect(),
            models,
            settings,
            mapping,
            owned,
            slots: Vec::new(),
            free: BTreeSet::new(),
            by_id: BTreeMap::new(),
            connections: BTreeMap::new(),
            stale: Mask::empty(queues.len()),
            solved: Sets::default(),
            solver: Solver::default(),
            present: Present::default(),
        })
    }

    /// Settings of the operator.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The mapping of models to priority levels, and of priority levels to each other.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The priority level of a registered application.
    pub fn level(&self, app: AppId) -> Option<u16> {
        let slot = *self.by_id.get(&app)?;
        self.mapping.level(self.slots[slot].as_ref()?.model)
    }

    /// The plan of a port at the last update; `None` if no application passes the port.
    pub fn plan(&self, port: Port) -> Option<&Plan> {
        self.ports.get(port as usize)?.plan.as_deref()
    }

    /// Registers an application with a row of the sensitivity table as its model.
    ///
    /// In the distributed controller, every instance has to receive this call. All instances return the same result.
    ///
    /// # Errors
    /// [`ControllerError::Known`] if the application is registered, or [`ControllerError::Model`] if the row does not
    /// exist.
    pub fn register(&mut self, app: AppId, model: usize) -> Result<Registered, ControllerError> {
        if self.by_id.contains_key(&app) {
            return Err(ControllerError::Known { app });
        }
        if model >= self.models.len() {
            return Err(ControllerError::Model { model, rows: self.models.len() });
        }
        let moved = self.count(model, |count| count.saturating_add(1));
        let slot = self.free.pop_first().unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(AppState { id: app, model, connections: 0 });
        self.by_id.insert(app, slot);
        Ok(Registered { level: self.mapping.level(model), moved })
    }

    /// Removes an application.
    ///
    /// # Errors
    /// [`ControllerError::Unknown`] if the application is not registered, or [`ControllerError::Busy`] if it has open
    /// connections.
    pub fn deregister(&mut self, app: AppId) -> Result<Registered, ControllerError> {
        let slot = self.slot(app)?;
        let (model, connections) =
            self.slots[slot].as_ref().map_or((0, 0), |app| (app.model, app.connections));
        if connections > 0 {
            return Err(ControllerError::Busy { app, connections });
        }
        self.by_id.remove(&app);
        self.slots[slot] = None;
        self.free.insert(slot);
        // Another application may reuse the slot, so cached results by slot are invalid.
        self.solved.clear();
        let moved = self.count(model, |count| count.saturating_sub(1));
        Ok(Registered { level: None, moved })
    }

    /// Opens a connection of an application over `path`. Returns the ports of `path` that other instances own, in
    /// order.
    ///
    /// The caller passes the returned ports as the path to the instance that owns the first of them.
    ///
    /// # Errors
    /// [`ControllerError`] if the connection is open, the application is not registered, a port does not exist, or a
    /// port occurs twice.
    pub fn open(
        &mut self,
        connection: ConnectionId,
        app: AppId,
        path: &[Port],
    ) -> Result<Vec<Port>, ControllerError> {
        if self.connections.contains_key(&connection) {
            return Err(ControllerError::Open { connection });
        }
        let slot = self.slot(app)?;
        let mut sorted = path.to_vec();
        sorted.sort_unstable();
        if let Some(&port) = sorted.last().filter(|port| **port as usize >= self.ports.len()) {
            return Err(ControllerError::Port { port, ports: self.ports.len() });
        }
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ControllerError::Twice { port: pair[0] });
        }
        let is_own = |port: &Port| self.owned.as_ref().is_none_or(|owned| owned.contains(*port as usize));
        let (own, others): (Vec<Port>, Vec<Port>) = path.iter().partition(|port| is_own(port));
        for &port in &own {
            if self.ports[port as usize].enter(slot as u32) {
                self.mark(port, Stale::Apps);
            }
        }
        if let Some(app) = &mut self.slots[slot] {
            app.connections += 1;
        }
        self.connections.insert(connection, (slot, own.into_boxed_slice()));
        Ok(others)
    }

    /// Closes a connection. Every instance that opened the connection has to receive this call.
    ///
    /// # Errors
    /// [`ControllerError::Closed`] if the connection is not open.
    pub fn close(&mut self, connection: ConnectionId) -> Result<(), ControllerError> {
        let (slot, ports) =
            self.connections.remove(&connection).ok_or(ControllerError::Closed { connection })?;
        for &port in &ports {
            if self.ports[port as usize].leave(slot as u32) {
                self.mark(port, Stale::Apps);
            }
        }
        if let Some(app) = &mut self.slots[slot] {
            app.connections -= 1;
        }
        Ok(())
    }

    /// Updates all plans. Linear in the stale ports, and in the applications of each different set of these ports.
    pub fn update(&mut self) -> Update {
        let mut update = Update::default();
        let mut stale = std::mem::take(&mut self.stale);
        let mut before: Option<Port> = None;
        for port in stale.iter().map(|port| port as Port) {
            // Adjacent links often carry the same applications.
            let twin = before.map(|before| &self.ports[before as usize]).filter(|twin| {
                let state = &self.ports[port as usize];
                twin.queues == state.queues && twin.set == state.set
            });
            let plan = match twin {
                Some(twin) => twin.plan.clone(),
                None => self.planned(port as usize, &mut update.solved),
            };
            before = Some(port);
            let state = &mut self.ports[port as usize];
            state.stale = Stale::No;
            if !Plan::same(state.plan.as_deref(), plan.as_deref()) {
                state.plan = plan;
                update.changed.push(port);
            }
        }
        stale.clear();
        self.stale = stale;
        // Ports hold the plans in use. This removes only unused ones from the cache.
        if self.solved.len() > 2 * self.ports.len() {
            self.solved.clear();
        }
        update
    }

    fn slot(&self, app: AppId) -> Result<usize, ControllerError> {
        self.by_id.get(&app).copied().ok_or(ControllerError::Unknown { app })
    }

    /// Changes the number of applications of a model. Returns the applications whose level changes, with their new
    /// levels.
    fn count(&mut self, model: usize, change: impl FnOnce(u32) -> u32) -> Vec<(AppId, u16)> {
        if self.owned.is_some() {
            return Vec::new();
        }
        self.counts[model] = change(self.counts[model]);
        let mapping = Mapping::new(&self.models, &self.counts, self.settings.levels);
        if mapping == self.mapping {
            return Vec::new();
        }
        let before = std::mem::replace(&mut self.mapping, mapping);
        self.solved.clear();
        for port in 0..self.ports.len() {
            if !self.ports[port].members.is_empty() {
                self.mark(port as Port, Stale::Queues);
            }
        }
        let moved = |app: &AppState| {
            let level = self.mapping.level(app.model)?;
            (before.level(app.model) != Some(level)).then_some((app.id, level))
        };
        let registered = self.by_id.values().filter_map(|&slot| self.slots[slot].as_ref());
        registered.filter_map(moved).collect()
    }

    /// Marks a port for the next update.
    fn mark(&mut self, port: Port, stale: Stale) {
        self.stale.insert(port as usize);
        let state = &mut self.ports[port as usize];
        state.stale = state.stale.max(stale);
    }

    /// Computes or looks up the current plan of a port.
    fn planned(&mut self, port: usize, solved: &mut usize) -> Option<Arc<Plan>> {
        let state = &self.ports[port];
        if state.members.is_empty() {
            return None;
        }
        let known = self.solved.get(&state.set);
        let plans = known.map_or(&[][..], |known| &known.plans);
        if let Some((_, plan)) = plans.iter().find(|(queues, _)| *queues == state.queues) {
            return Some(Arc::clone(plan));
        }
        let Present { apps, models, levels } = &mut self.present;
        apps.clear();
        models.clear();
        levels.clear();
        for app in state.members.iter().filter_map(|&(slot, _)| self.slots[slot as usize].as_ref()) {
            apps.push(app.id);
            models.push(*self.models[app.model].model());
            levels.push(self.mapping.level(app.model).unwrap_or(0));
        }
        let unchanged = state.plan.as_ref().filter(|_| state.stale < Stale::Apps);
        let shares = known.map(|known| &known.shares).or_else(|| unchanged.map(|plan| &plan.shares));
        let shares = shares.map(Arc::clone).unwrap_or_else(|| {
            *solved += 1;
            Arc::new(Shares::of(&mut self.solver, apps, models, self.settings.c_saba, self.settings.floor))
        });
        let plan = Plan::new(Arc::clone(&shares), levels, &self.mapping, self.settings.c_saba, state.queues);
        let plan = Arc::new(plan);
        let entry = self.solved.entry(state.set);
        let solved = entry.or_insert_with(|| Solved { shares, plans: SmallVec::new() });
        solved.plans.push((state.queues, Arc::clone(&plan)));
        Some(plan)
    }
}
