//! Searches for the traffic of applications that orders name, and applies the results.
//!
//! A search reads folders and loads programs, so it runs without the [`Traffic`], in a separate thread. Its programs do nothing until
//! [`Traffic::apply_targets`] adds their applications to the maps.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_proto::{ApplicationTraffic, MAX_CONFLICTS};

use super::attachment::Programs;
use super::cgroup::{Cgroup, Rule, TrafficClass, find_cgroup_root, find_own_cgroup};
use super::ordered::{CgroupTree, OptionTarget, Target};
use super::program::{self, ApplicationLoader, LoadContext};
use super::removal::RemovalState;
use super::{Application, Traffic, TrafficError, cgroup_depth, has_ports};

/// The maximum number of cgroups and ports that a search adds: loading programs takes some milliseconds each.
const MAX_ADDED_TARGETS: usize = 4;

/// How long the agent waits before it tries again to add a cgroup or port that the kernel has refused.
const REFUSAL_PAUSE: Duration = Duration::from_secs(10);

/// A cgroup or port of an order that the kernel has refused.
pub(super) struct RefusedTarget {
    retry_at: Instant,
    /// The reason, for a conflict.
    conflict: String,
}

/// A search for the cgroups and ports that orders name.
pub struct TargetSearch {
    ordered: Arc<[ApplicationTraffic]>,
    options: Vec<OptionTarget>,
    /// The ordered applications that exist, by the numbers of their cgroups and ports.
    known: BTreeMap<u64, String>,
    /// The numbers of those that the kernel has refused, until the next attempt.
    refused: BTreeSet<u64>,
    /// Whether the program of ports is attached.
    has_ports: bool,
    folder: PathBuf,
}

/// The cgroups and ports that a search has found.
pub struct FoundTargets {
    targets: Vec<Target>,
    conflicts: Vec<String>,
    added: Vec<AddedTarget>,
    /// Whether all of them have programs, or were refused.
    pub is_complete: bool,
    /// How long the search took, without the programs.
    pub duration: Duration,
}

/// A cgroup or port with programs, which are not in use yet.
struct AddedTarget {
    target: Target,
    programs: Result<Programs, TrafficError>,
}

impl TargetSearch {
    /// Finds the cgroups, and attaches programs to at most four new ones.
    ///
    /// # Errors
    /// If the root of the cgroups cannot be found. A refusal by the kernel is a conflict.
    pub fn run(self) -> Result<FoundTargets, TrafficError> {
        let began = Instant::now();
        let (targets, conflicts) = if self.ordered.is_empty() {
            Default::default()
        } else {
            let root = find_cgroup_root()?;
            let root = root.canonicalize().map_err(|error| TrafficError::file(&root, error))?;
            CgroupTree { own: find_own_cgroup(&root), root }.find_targets(&self.ordered, &self.options)
        };
        let duration = began.elapsed();
        let is_due = |target: &&Target| {
            let is_known = self.known.get(&target.id).is_some_and(|name| **name == *target.application);
            !is_known && !self.refused.contains(&target.id)
        };
        let due: Vec<&Target> = targets.iter().filter(is_due).collect();
        let added = self.attach(&due[..due.len().min(MAX_ADDED_TARGETS)])?;
        let is_complete = due.len() <= MAX_ADDED_TARGETS;
        Ok(FoundTargets { targets, conflicts, added, is_complete, duration })
    }

    /// Attaches programs to the cgroups of targets.
    fn attach(&self, targets: &[&Target]) -> Result<Vec<AddedTarget>, TrafficError> {
        if targets.is_empty() {
            return Ok(Vec::new());
        }
        let (mut opened, mut added) = (Vec::new(), Vec::new());
        for &target in targets {
            match open_cgroup(target) {
                Ok(Some(cgroup)) => opened.push((target, cgroup)),
                Ok(None) => {}
                Err(error) => added.push(AddedTarget { target: target.clone(), programs: Err(error) }),
            }
        }
        let context = LoadContext::read()?;
        let mut loader = ApplicationLoader::new(&self.folder, &context);
        let mut has_ports = self.has_ports;
        for (target, cgroup) in &opened {
            // All ports share one program.
            let programs = match target.port {
                Some(_) if has_ports => Ok(Programs::new()),
                _ => loader.attach(cgroup),
            };
            has_ports |= target.port.is_some() && programs.is_ok();
            added.push(AddedTarget { target: Target::clone(target), programs });
        }
        Ok(added)
    }
}

/// Opens the cgroup of a target; none if it was deleted meanwhile.
fn open_cgroup(target: &Target) -> Result<Option<Cgroup>, TrafficError> {
    match Cgroup::open_for(&target.rule()) {
        Err(TrafficError::File { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        cgroup => Ok(Some(cgroup?).filter(|cgroup| cgroup.id == target.id)),
    }
}

impl Traffic {
    /// A search for the traffic that orders name, to mark and follow it in addition to that of options, and no longer that of earlier
    /// orders. None without ordered traffic, now and before. Call it periodically: it also finds cgroups that were created since.
    pub fn target_search(&self, ordered: &Arc<[ApplicationTraffic]>, now: Instant) -> Option<TargetSearch> {
        let known: BTreeMap<u64, String> = self
            .applications
            .iter()
            .filter(|known| known.is_ordered)
            .map(|known| (known.id, known.rule.name.clone()))
            .collect();
        if ordered.is_empty() && known.is_empty() && self.refused_targets.is_empty() {
            return None;
        }
        let option = |known: &Application| OptionTarget {
            name: known.rule.name.clone(),
            path: known.path.clone(),
            port: known.rule.port,
        };
        let refused = self.refused_targets.iter().filter(|(_, refused)| refused.retry_at > now);
        Some(TargetSearch {
            ordered: Arc::clone(ordered),
            options: self.applications.iter().filter(|known| !known.is_ordered).map(option).collect(),
            known,
            refused: refused.map(|(&id, _)| id).collect(),
            has_ports: has_ports(self.rules()),
            folder: self.folder.path().to_owned(),
        })
    }

    /// Marks and follows the traffic that a search has found, and no other ordered traffic. Returns the conflicts: why some of it is not
    /// marked, at most [`MAX_CONFLICTS`]. `class_of` gives the class of an application, which is none if its packets have no mark; an
    /// application of which it knows nothing keeps the class of an earlier agent.
    pub fn apply_targets(
        &mut self,
        found: FoundTargets,
        class_of: impl Fn(&str) -> Option<Option<TrafficClass>>,
        now: Instant,
    ) -> Vec<String> {
        let names: BTreeMap<u64, &str> =
            found.targets.iter().map(|target| (target.id, &*target.application)).collect();
        let count = self.applications.len();
        self.applications
            .retain(|known| !known.is_ordered || names.get(&known.id) == Some(&known.rule.name.as_str()));
        if self.applications.len() < count {
            self.removal = RemovalState::Found;
        }
        self.refused_targets.retain(|id, _| names.contains_key(id));
        for AddedTarget { target, programs } in found.added {
            let class = class_of(&target.application);
            match programs.and_then(|programs| self.add_target(&target, programs, class)) {
                Ok(()) => drop(self.refused_targets.remove(&target.id)),
                Err(error) => {
                    // Some of its programs and entries may exist.
                    self.removal = RemovalState::Found;
                    let conflict = format!("application {}: {error}", target.application);
                    let retry_at = now + REFUSAL_PAUSE;
                    self.refused_targets.insert(target.id, RefusedTarget { retry_at, conflict });
                }
            }
        }
        let refusals = self.refused_targets.values().map(|refused| refused.conflict.clone());
        found.conflicts.into_iter().chain(refusals).take(MAX_CONFLICTS).collect()
    }

    /// Lets the programs of a target mark and follow its traffic.
    fn add_target(
        &mut self,
        target: &Target,
        programs: Programs,
        class: Option<Option<TrafficClass>>,
    ) -> Result<(), TrafficError> {
        self.programs.extend(programs);
        let class = class.map_or_else(|| self.maps.class(target.id), Ok)?;
        self.maps.enable_application(target.id, cgroup_depth(target.port, &target.path))?;
        self.maps.set_class(target.id, class)?;
        let is_first_port = target.port.is_some() && !has_ports(self.rules());
        if is_first_port {
            for (interface, index) in self.present_interfaces() {
                let attached = program::attach_interface_program(&self.folder, &interface, index, true)?;
                self.programs.insert(program::interface_pin_name(index), attached);
            }
        }
        self.applications.push(Application {
            rule: Rule { class, ..target.rule() },
            id: target.id,
            path: target.path.clone(),
            is_ordered: true,
        });
        self.restore_used_marks()?;
        if is_first_port {
            self.reload_tunnel_programs();
        }
        Ok(())
    }
}
