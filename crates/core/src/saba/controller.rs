//! Saba's controller (sections 5.4 and 6) as a state machine: applications register, connections open and close along
//! paths of ports, and each port gets a map from priority levels to queues, and their weights.
//!
//! One type is both kinds of controller of section 5.4. The central one has all ports, and maps the applications that are registered.
//! An instance of the distributed one has some ports, and its mapping is made ahead from the whole sensitivity table; an
//! event that concerns ports of others is handed on. What is done at a port is the same.
//!
//! Shares depend on the set of applications at a port and nothing else (Eq. 2). So a port is solved again only if its
//! set changes, and ports with equal sets are solved once.
//!
//! What the paper leaves open:
//!
//! - *Whose model counts* at a port: each application's own, as Eq. 2 has it. The centroid of its priority level only decides who
//!   shares a queue.
//! - *Applications whose level changes* because another one comes or goes: the answer lists them, and whoever marks their packets
//!   does so anew. All connections of an application have its level.
//! - *An application that leaves* has to close its connections first.
//! - *Paths*: all ports that a connection may pass, each once; with several paths, all of them (footnote 2).
//! - *Weights of queues* are parts of the port's capacity: Saba's sum to C_saba, and the reserved queue has the rest.

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

/// What the operator decides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// The part of each port that is Saba's (C_saba). What is left is for the last queue of the port.
    pub c_saba: Fraction,
    /// The least weight of an application at a port, as a part of an even share of what is Saba's; [`super::share::FLOOR`] is usual.
    pub floor: Fraction,
    /// How many priority levels the network has (S).
    pub levels: NonZeroU16,
}

/// An answer to an application that registers or leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// Its priority level; none if it leaves.
    pub level: Option<u16>,
    /// Other applications whose priority level is another one now, by name.
    pub moved: Vec<(AppId, u16)>,
}

/// What [`Controller::update`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Update {
    /// The ports whose plan is another one, in rising order.
    pub changed: Vec<Port>,
    /// How often Eq. 2 was solved.
    pub solved: usize,
}

/// Why an event was refused. Nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControllerError {
    /// A port that has too few queues.
    #[error("port {port}: `{queues}` queues: expected at least {least}")]
    Queues {
        /// The port.
        port: usize,
        /// How many it has.
        queues: u16,
        /// How many it takes.
        least: u16,
    },
    /// A model that is not in the sensitivity table.
    #[error("model: `{model}`: expected 0 to {}, a row of the sensitivity table", .rows.saturating_sub(1))]
    Model {
        /// What was given.
        model: usize,
        /// How many rows the table has.
        rows: usize,
    },
    /// A port that the network does not have.
    #[error("port: `{port}`: expected 0 to {}", .ports.saturating_sub(1))]
    Port {
        /// What was given.
        port: Port,
        /// How many ports there are.
        ports: usize,
    },
    /// A port that a path has twice.
    #[error("path: port `{port}` comes twice: expected each once")]
    Twice {
        /// The port.
        port: Port,
    },
    /// An application that is registered already.
    #[error("application: `{}` is registered: expected a new one", .app.0)]
    Known {
        /// The application.
        app: AppId,
    },
    /// An application that is not registered.
    #[error("application: `{}` is not registered: expected one that is", .app.0)]
    Unknown {
        /// The application.
        app: AppId,
    },
    /// An application that leaves while it has connections.
    #[error("application: `{}` has {connections} open connections: expected none", .app.0)]
    Busy {
        /// The application.
        app: AppId,
        /// How many it has here.
        connections: usize,
    },
    /// A connection that is open already.
    #[error("connection: `{}` is open: expected a new one", .connection.0)]
    Open {
        /// The connection.
        connection: ConnectionId,
    },
    /// A connection that is not open.
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

/// The applications of a port that is solved, in memory that is used again.
#[derive(Debug, Clone, Default)]
struct Present {
    apps: Vec<AppId>,
    models: Vec<Polynomial>,
    levels: Vec<u16>,
}

/// The controller, central or an instance of the distributed one.
#[derive(Debug, Clone)]
pub struct Controller {
    models: Vec<Sensitivity>,
    settings: Settings,
    mapping: Mapping,
    /// The ports of an instance; the central one has all.
    owned: Option<Mask>,
    /// How many registered applications each model has.
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
    /// The central controller of a network whose ports have these numbers of queues.
    ///
    /// # Errors
    /// A port without a queue for Saba.
    pub fn central(
        models: Vec<Sensitivity>,
        settings: Settings,
        queues: &[u16],
    ) -> Result<Controller, ControllerError> {
        let mapping = Mapping::new(&models, &vec![0; models.len()], settings.levels);
        Controller::new(models, settings, queues, None, mapping)
    }

    /// An instance of the distributed controller, which has the ports `owned` of the network. Its mapping is what the
    /// profiler makes of the whole sensitivity table, so all instances have the same one.
    ///
    /// # Errors
    /// A port without a queue for Saba, or one that the network does not have.
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

    /// What the operator decided.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How models map to priority levels and those to each other.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The priority level of a registered application.
    pub fn level(&self, app: AppId) -> Option<u16> {
        let slot = *self.by_id.get(&app)?;
        self.mapping.level(self.slots[slot].as_ref()?.model)
    }

    /// The plan of a port as of the last update; none where no application is.
    pub fn plan(&self, port: Port) -> Option<&Plan> {
        self.ports.get(port as usize)?.plan.as_deref()
    }

    /// An application registers, with the row of the sensitivity table that is its model. Every instance of a distributed
    /// controller is told, and all answer the same.
    ///
    /// # Errors
    /// A name that is taken, or no such row.
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

    /// An application leaves.
    ///
    /// # Errors
    /// One that is not registered, or has connections.
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
        // The slot will be someone else's.
        self.solved.clear();
        let moved = self.count(model, |count| count.saturating_sub(1));
        Ok(Registered { level: None, moved })
    }

    /// A connection of an application opens over `path`. Answers the ports of it that are others', in order: the
    /// controller of the first of them is the next to be told, with these ports as the path.
    ///
    /// # Errors
    /// A name that is taken, an application that is not registered, ports that are not there or come twice.
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

    /// A connection closes. Every instance that was told of it is told again.
    ///
    /// # Errors
    /// One that is not open.
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

    /// Brings all plans up to date. Linear in the ports that are not; and in the applications of each different set of those.
    pub fn update(&mut self) -> Update {
        let mut update = Update::default();
        let mut stale = std::mem::take(&mut self.stale);
        let mut before: Option<Port> = None;
        for port in stale.iter().map(|port| port as Port) {
            // Links side by side often carry the same applications.
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
        // What is in force is held by its ports; this only forgets what is not.
        if self.solved.len() > 2 * self.ports.len() {
            self.solved.clear();
        }
        update
    }

    fn slot(&self, app: AppId) -> Result<usize, ControllerError> {
        self.by_id.get(&app).copied().ok_or(ControllerError::Unknown { app })
    }

    /// Changes how many applications the model has, and answers whose level is another one then.
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

    /// The plan that a port should have.
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
