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
//! - *Weights of queues* are fractions of the port's capacity. The weights of Saba's queues add up to C_saba, and the
//!   reserved queue gets the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;

use super::app_weights::AppWeights;
use super::mapping::LevelMapping;
use super::port::{PortApps, PortState, QueuePlan, StaleReason};
use super::sensitivity::{Fraction, Sensitivity};
use super::solution_cache::{CachedSolution, SolutionCache};
use crate::model::BitSet;
use crate::solve::{Polynomial, SeparableSolver};

pub use super::ids::{AppId, ConnectionId, Port};
pub use super::port::PortLimits;
pub use super::settings::ControllerSettings;

/// The result of a registration or deregistration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrationResult {
    /// Priority level of the application; `None` after a deregistration.
    pub level: Option<u16>,
    /// Other applications whose priority level changed, and their new levels.
    pub changed_levels: Vec<(AppId, u16)>,
}

/// The result of [`Controller::update_plans`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpdateResult {
    /// Ports with a new plan, in rising order.
    pub changed_ports: Vec<Port>,
    /// Number of solutions of Eq. 2.
    pub solution_count: usize,
}

/// Why an event was rejected. A rejected event changes nothing.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ControllerError {
    /// A port has too few queues.
    #[error("port {port}: too few queues ({queues}); expected at least {min}")]
    TooFewQueues {
        /// Number of the port.
        port: usize,
        /// Number of its queues.
        queues: u16,
        /// Minimum number of queues.
        min: u16,
    },
    /// The minimum weight of a port's queues is not a number from 0 to the largest feasible one.
    #[error(
        "port {port}: minimum weight {min_weight} of {queues} queues is out of range; expected 0 to {max}"
    )]
    InvalidMinWeight {
        /// Number of the port.
        port: usize,
        /// Number of its queues.
        queues: u16,
        /// The minimum weight.
        min_weight: f64,
        /// The largest feasible minimum weight.
        max: f64,
    },
    /// A model is not in the sensitivity table.
    #[error("model {model} is not a row of the sensitivity table; expected 0 to {}", .rows.saturating_sub(1))]
    UnknownModel {
        /// The given row.
        model: usize,
        /// Number of rows of the table.
        rows: usize,
    },
    /// A port does not exist.
    #[error("port {port} does not exist; expected 0 to {}", .ports.saturating_sub(1))]
    UnknownPort {
        /// The given port.
        port: Port,
        /// Number of ports.
        ports: usize,
    },
    /// A path contains a port twice.
    #[error("path: port {port} occurs twice; expected each port once")]
    RepeatedPort {
        /// Number of the port.
        port: Port,
    },
    /// An application is registered already.
    #[error("application {} is already registered; expected a new id", .app.0)]
    AlreadyRegistered {
        /// The application.
        app: AppId,
    },
    /// An application is not registered.
    #[error("application {} is not registered; expected a registered one", .app.0)]
    NotRegistered {
        /// The application.
        app: AppId,
    },
    /// An application with open connections deregisters.
    #[error("application {} has {connections} open connections; help: close them first", .app.0)]
    HasOpenConnections {
        /// The application.
        app: AppId,
        /// Number of its connections at this controller.
        connections: usize,
    },
    /// A connection is open already.
    #[error("connection {} is already open; expected a new id", .connection.0)]
    ConnectionOpen {
        /// The connection.
        connection: ConnectionId,
    },
    /// A connection is not open.
    #[error("connection {} is not open; expected an open one", .connection.0)]
    ConnectionNotOpen {
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
struct PortBuffers {
    apps: Vec<AppId>,
    models: Vec<Polynomial>,
    levels: Vec<u16>,
}

/// The central controller, or an instance of the distributed one.
#[derive(Debug, Clone)]
pub struct Controller {
    models: Vec<Sensitivity>,
    settings: ControllerSettings,
    mapping: LevelMapping,
    /// The ports of an instance; `None` for the central controller, which owns all ports.
    owned_ports: Option<BitSet>,
    /// Number of registered applications by model.
    app_counts: Vec<u32>,
    app_slots: Vec<Option<AppState>>,
    free_slots: BTreeSet<usize>,
    slot_by_id: BTreeMap<AppId, usize>,
    connections: BTreeMap<ConnectionId, (usize, Box<[Port]>)>,
    ports: Vec<PortState>,
    stale_ports: BitSet,
    solution_cache: SolutionCache,
    solver: SeparableSolver,
    buffers: PortBuffers,
}

impl Controller {
    /// Creates the central controller of a network. `ports` has the limits of each port; a number is its number of queues.
    ///
    /// # Errors
    /// [`ControllerError::TooFewQueues`] if a port has no queue for Saba, or [`ControllerError::InvalidMinWeight`] if the
    /// minimum weight is not feasible with its number of queues.
    pub fn new_central<L: Copy + Into<PortLimits>>(
        models: Vec<Sensitivity>,
        settings: ControllerSettings,
        ports: &[L],
    ) -> Result<Controller, ControllerError> {
        let mapping = LevelMapping::new(&models, &vec![0; models.len()], settings.max_levels);
        Controller::new(models, settings, ports, None, mapping)
    }

    /// Creates an instance of the distributed controller, which owns the ports `owned_ports`.
    ///
    /// Its mapping is computed from the whole sensitivity table, so all instances have the same mapping.
    ///
    /// # Errors
    /// As for [`Controller::new_central`], or [`ControllerError::UnknownPort`] if an owned port does not exist.
    pub fn new_instance<L: Copy + Into<PortLimits>>(
        models: Vec<Sensitivity>,
        settings: ControllerSettings,
        ports: &[L],
        owned: &[Port],
    ) -> Result<Controller, ControllerError> {
        let mapping = LevelMapping::new(&models, &vec![1; models.len()], settings.max_levels);
        let mut owned_ports = BitSet::empty(ports.len());
        for &port in owned {
            if port as usize >= ports.len() {
                return Err(ControllerError::UnknownPort { port, ports: ports.len() });
            }
            owned_ports.insert(port as usize);
        }
        Controller::new(models, settings, ports, Some(owned_ports), mapping)
    }

    fn new<L: Copy + Into<PortLimits>>(
        models: Vec<Sensitivity>,
        settings: ControllerSettings,
        ports: &[L],
        owned: Option<BitSet>,
        mapping: LevelMapping,
    ) -> Result<Controller, ControllerError> {
        let mut limits: Vec<PortLimits> = ports.iter().map(|&limits| limits.into()).collect();
        for (port, limits) in limits.iter_mut().enumerate() {
            let PortLimits { queues, min_weight } = *limits;
            let min = if settings.c_saba < Fraction::ALL { 2 } else { 1 };
            if queues < min {
                return Err(ControllerError::TooFewQueues { port, queues, min });
            }
            let max = PortLimits::max_min_weight(queues, settings.c_saba);
            if !limits.is_feasible(settings.c_saba) {
                return Err(ControllerError::InvalidMinWeight { port, queues, min_weight, max });
            }
            limits.min_weight = min_weight.min(max);
        }
        Ok(Controller {
            app_counts: vec![0; models.len()],
            stale_ports: BitSet::empty(limits.len()),
            ports: limits.into_iter().map(PortState::new).collect(),
            models,
            settings,
            mapping,
            owned_ports: owned,
            app_slots: Vec::new(),
            free_slots: BTreeSet::new(),
            slot_by_id: BTreeMap::new(),
            connections: BTreeMap::new(),
            solution_cache: SolutionCache::default(),
            solver: SeparableSolver::default(),
            buffers: PortBuffers::default(),
        })
    }

    /// Settings of the operator.
    pub fn settings(&self) -> &ControllerSettings {
        &self.settings
    }

    /// The mapping of models to priority levels, and of priority levels to each other.
    pub fn mapping(&self) -> &LevelMapping {
        &self.mapping
    }

    /// The priority level of a registered application.
    pub fn app_level(&self, app: AppId) -> Option<u16> {
        let slot = *self.slot_by_id.get(&app)?;
        self.mapping.level_of_model(self.app_slots[slot].as_ref()?.model)
    }

    /// The plan of a port at the last update; `None` if no application passes the port.
    pub fn queue_plan(&self, port: Port) -> Option<&QueuePlan> {
        self.ports.get(port as usize)?.plan.as_deref()
    }

    /// Registers an application with a row of the sensitivity table as its model.
    ///
    /// In the distributed controller, every instance has to receive this call. All instances return the same result.
    ///
    /// # Errors
    /// [`ControllerError::AlreadyRegistered`] if the application is registered, or [`ControllerError::UnknownModel`] if the
    /// row does not exist.
    pub fn register(&mut self, app: AppId, model: usize) -> Result<RegistrationResult, ControllerError> {
        if self.slot_by_id.contains_key(&app) {
            return Err(ControllerError::AlreadyRegistered { app });
        }
        if model >= self.models.len() {
            return Err(ControllerError::UnknownModel { model, rows: self.models.len() });
        }
        let changed_levels = self.change_app_count(model, |count| count.saturating_add(1));
        let slot = self.free_slots.pop_first().unwrap_or(self.app_slots.len());
        if slot == self.app_slots.len() {
            self.app_slots.push(None);
        }
        self.app_slots[slot] = Some(AppState { id: app, model, connections: 0 });
        self.slot_by_id.insert(app, slot);
        Ok(RegistrationResult { level: self.mapping.level_of_model(model), changed_levels })
    }

    /// Removes an application.
    ///
    /// # Errors
    /// [`ControllerError::NotRegistered`] if the application is not registered, or [`ControllerError::HasOpenConnections`]
    /// if it has open connections.
    pub fn deregister(&mut self, app: AppId) -> Result<RegistrationResult, ControllerError> {
        let slot = self.find_slot(app)?;
        let (model, connections) =
            self.app_slots[slot].as_ref().map_or((0, 0), |app| (app.model, app.connections));
        if connections > 0 {
            return Err(ControllerError::HasOpenConnections { app, connections });
        }
        self.slot_by_id.remove(&app);
        self.app_slots[slot] = None;
        self.free_slots.insert(slot);
        // Another application may reuse the slot, so cached results by slot are invalid.
        self.solution_cache.clear();
        let changed_levels = self.change_app_count(model, |count| count.saturating_sub(1));
        Ok(RegistrationResult { level: None, changed_levels })
    }

    /// Opens a connection of an application over `path`. Returns the ports of `path` that other instances own, in
    /// order.
    ///
    /// The caller passes the returned ports as the path to the instance that owns the first of them.
    ///
    /// # Errors
    /// [`ControllerError`] if the connection is open, the application is not registered, a port does not exist, or a
    /// port occurs twice.
    pub fn open_connection(
        &mut self,
        connection: ConnectionId,
        app: AppId,
        path: &[Port],
    ) -> Result<Vec<Port>, ControllerError> {
        if self.connections.contains_key(&connection) {
            return Err(ControllerError::ConnectionOpen { connection });
        }
        let slot = self.find_slot(app)?;
        let mut sorted = path.to_vec();
        sorted.sort_unstable();
        if let Some(&port) = sorted.last().filter(|port| **port as usize >= self.ports.len()) {
            return Err(ControllerError::UnknownPort { port, ports: self.ports.len() });
        }
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ControllerError::RepeatedPort { port: pair[0] });
        }
        let is_own =
            |port: &Port| self.owned_ports.as_ref().is_none_or(|owned| owned.contains(*port as usize));
        let (own_ports, other_ports): (Vec<Port>, Vec<Port>) = path.iter().partition(|port| is_own(port));
        for &port in &own_ports {
            if self.ports[port as usize].add_connection(slot as u32) {
                self.mark_stale(port, StaleReason::AppsChanged);
            }
        }
        if let Some(app) = &mut self.app_slots[slot] {
            app.connections += 1;
        }
        self.connections.insert(connection, (slot, own_ports.into_boxed_slice()));
        Ok(other_ports)
    }

    /// Closes a connection. Every instance that opened the connection has to receive this call.
    ///
    /// # Errors
    /// [`ControllerError::ConnectionNotOpen`] if the connection is not open.
    pub fn close_connection(&mut self, connection: ConnectionId) -> Result<(), ControllerError> {
        let (slot, ports) =
            self.connections.remove(&connection).ok_or(ControllerError::ConnectionNotOpen { connection })?;
        for &port in &ports {
            if self.ports[port as usize].remove_connection(slot as u32) {
                self.mark_stale(port, StaleReason::AppsChanged);
            }
        }
        if let Some(app) = &mut self.app_slots[slot] {
            app.connections -= 1;
        }
        Ok(())
    }

    /// Updates all plans. Linear in the stale ports, and in the applications of each different set of these ports.
    pub fn update_plans(&mut self) -> UpdateResult {
        let mut update = UpdateResult::default();
        let mut stale = std::mem::take(&mut self.stale_ports);
        let mut before: Option<Port> = None;
        for port in stale.iter().map(|port| port as Port) {
            // Adjacent links often carry the same applications.
            let equal_port = before.map(|before| &self.ports[before as usize]).filter(|other_port| {
                let state = &self.ports[port as usize];
                other_port.limits == state.limits && other_port.app_set_hash == state.app_set_hash
            });
            let plan = match equal_port {
                Some(twin) => twin.plan.clone(),
                None => self.compute_plan(port as usize, &mut update.solution_count),
            };
            before = Some(port);
            let state = &mut self.ports[port as usize];
            state.stale_reason = StaleReason::UpToDate;
            if !QueuePlan::are_equal(state.plan.as_deref(), plan.as_deref()) {
                state.plan = plan;
                update.changed_ports.push(port);
            }
        }
        stale.clear();
        self.stale_ports = stale;
        // Ports hold the plans in use. This removes only unused ones from the cache.
        if self.solution_cache.len() > 2 * self.ports.len() {
            self.solution_cache.clear();
        }
        update
    }

    fn find_slot(&self, app: AppId) -> Result<usize, ControllerError> {
        self.slot_by_id.get(&app).copied().ok_or(ControllerError::NotRegistered { app })
    }

    /// Changes the number of applications of a model. Returns the applications whose level changes, with their new
    /// levels.
    fn change_app_count(&mut self, model: usize, change: impl FnOnce(u32) -> u32) -> Vec<(AppId, u16)> {
        if self.owned_ports.is_some() {
            return Vec::new();
        }
        self.app_counts[model] = change(self.app_counts[model]);
        let mapping = LevelMapping::new(&self.models, &self.app_counts, self.settings.max_levels);
        if mapping == self.mapping {
            return Vec::new();
        }
        let before = std::mem::replace(&mut self.mapping, mapping);
        self.solution_cache.clear();
        for port in 0..self.ports.len() {
            if !self.ports[port].app_connections.is_empty() {
                self.mark_stale(port as Port, StaleReason::MappingChanged);
            }
        }
        let moved = |app: &AppState| {
            let level = self.mapping.level_of_model(app.model)?;
            (before.level_of_model(app.model) != Some(level)).then_some((app.id, level))
        };
        let registered = self.slot_by_id.values().filter_map(|&slot| self.app_slots[slot].as_ref());
        registered.filter_map(moved).collect()
    }

    /// Marks a port for the next update.
    fn mark_stale(&mut self, port: Port, stale: StaleReason) {
        self.stale_ports.insert(port as usize);
        let state = &mut self.ports[port as usize];
        state.stale_reason = state.stale_reason.max(stale);
    }

    /// Computes or looks up the current plan of a port.
    fn compute_plan(&mut self, port: usize, solved: &mut usize) -> Option<Arc<QueuePlan>> {
        let state = &self.ports[port];
        if state.app_connections.is_empty() {
            return None;
        }
        let known = self.solution_cache.get(&state.app_set_hash);
        let plans = known.map_or(&[][..], |known| &known.plan_by_limits);
        if let Some((_, plan)) = plans.iter().find(|(limits, _)| *limits == state.limits) {
            return Some(Arc::clone(plan));
        }
        let PortBuffers { apps, models, levels } = &mut self.buffers;
        apps.clear();
        models.clear();
        levels.clear();
        for app in
            state.app_connections.iter().filter_map(|&(slot, _)| self.app_slots[slot as usize].as_ref())
        {
            apps.push(app.id);
            models.push(*self.models[app.model].model());
            levels.push(self.mapping.level_of_model(app.model).unwrap_or(0));
        }
        // With a minimum weight, the weights in a plan can differ from the solution of Eq. 2 alone.
        let is_reusable = state.stale_reason < StaleReason::AppsChanged && state.limits.min_weight == 0.0;
        let unchanged = state.plan.as_ref().filter(|_| is_reusable);
        let app_weights =
            known.map(|known| &known.app_weights).or_else(|| unchanged.map(|plan| &plan.app_weights));
        let app_weights = app_weights.map(Arc::clone).unwrap_or_else(|| {
            *solved += 1;
            Arc::new(AppWeights::solve(
                &mut self.solver,
                apps,
                models,
                self.settings.c_saba,
                self.settings.min_share,
            ))
        });
        let plan = QueuePlan::new(
            Arc::clone(&app_weights),
            PortApps { models, levels },
            &self.mapping,
            &self.settings,
            state.limits,
            &mut self.solver,
        );
        let plan = Arc::new(plan);
        let entry = self.solution_cache.entry(state.app_set_hash);
        let solved = entry.or_insert_with(|| CachedSolution { app_weights, plan_by_limits: SmallVec::new() });
        solved.plan_by_limits.push((state.limits, Arc::clone(&plan)));
        Some(plan)
    }
}
