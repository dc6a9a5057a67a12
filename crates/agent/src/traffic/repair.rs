//! Finds and restores programs, files and entries of maps that other processes removed.

use std::io;
use std::path::PathBuf;

use weir_proto::RestoredObjects;

use super::attachment::{Attachment, AttachmentCheck};
use super::cgroup::{Cgroup, Rule};
use super::maps::Maps;
use super::paths::Paths;
use super::program::{self, ApplicationLoader, LoadContext};
use super::removal::RemovalState;
use super::{Traffic, TrafficError, cgroup_depth, has_ports, read_index, throttle};
use crate::queues::Interface;

/// The programs, files and interfaces that have to exist, to be inspected without the [`Traffic`].
#[derive(Debug)]
pub struct Inspection {
    programs: Vec<AttachmentCheck>,
    files: Vec<PathBuf>,
    interfaces: Vec<u32>,
}

impl Inspection {
    /// Whether no program or file was removed. Makes a few system calls for each program, which can wait for kernel locks.
    pub fn is_intact(&self) -> bool {
        self.programs.iter().all(AttachmentCheck::is_intact)
            && self.files.iter().all(|file| std::fs::symlink_metadata(file).is_ok())
            && self.interfaces.iter().all(|&index| Interface::from_index(index).is_some())
    }
}

impl Traffic {
    /// Returns the objects that [`Traffic::repair`] checks, to be inspected without a lock on this value. A [`super::PathSearch`] inspects
    /// the programs of pods and tunnels.
    pub fn inspection(&self) -> Inspection {
        let own = self.programs.iter().filter(|(name, _)| !Paths::is_pin_name(name));
        let programs = own.map(|(name, attached)| attached.attachment_check(&self.folder, name));
        let maps = Maps::names().map(|name| self.folder.path().join(name));
        let interfaces = self.interfaces.iter().map(|&(_, index)| index).collect();
        Inspection { programs: programs.collect(), files: maps.collect(), interfaces }
    }

    /// Restores objects that other processes removed: detached programs, and files in the BPF file system. Programs follow an interface
    /// that was deleted and created again, which is not counted. Loads programs, which takes some milliseconds each.
    ///
    /// # Errors
    /// The first error of all steps. The other steps are done, and the next call tries again.
    pub fn repair(&mut self) -> (RestoredObjects, Result<(), TrafficError>) {
        let mut restored = RestoredObjects::default();
        let folder = self.folder.recreate().map(drop);
        let maps = self.maps.repin(&self.folder).map(|count| restored.maps += count);
        let pins = self.repin_programs().map(|count| restored.programs += count);
        let interface_programs = self.restore_interface_programs().map(|count| restored.programs += count);
        let cgroup_programs = self.restore_cgroup_programs().map(|count| restored.programs += count);
        (restored, folder.and(maps).and(pins).and(interface_programs).and(cgroup_programs))
    }

    /// Restores entries of the maps of applications and classes that other processes removed or changed, and returns how many. A system
    /// call for each.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn restore_entries(&mut self) -> Result<u64, TrafficError> {
        let mut count = 0;
        for application in &self.applications {
            let Rule { port, class, .. } = application.rule;
            let depth = cgroup_depth(port, &application.path);
            count += u64::from(self.maps.enable_application(application.id, depth)?);
            count += u64::from(self.maps.restore_class(application.id, class)?);
        }
        Ok(count + self.restore_used_marks()?)
    }

    /// Pins programs again whose files were deleted, and returns how many.
    fn repin_programs(&mut self) -> Result<u64, TrafficError> {
        let mut result = Ok(0);
        for (name, attached) in std::mem::take(&mut self.programs) {
            match attached.repin(&self.folder, &name) {
                Ok((attached, was_deleted)) => {
                    self.programs.insert(name, attached);
                    result = result.map(|count| count + u64::from(was_deleted));
                }
                // The link is lost. The next step loads the program again.
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    fn is_attached(&self, name: &str) -> bool {
        self.programs.get(name).is_some_and(Attachment::is_attached)
    }

    /// Attaches the missing programs of interfaces, and returns how many. Programs of an interface that was created again do not count.
    fn restore_interface_programs(&mut self) -> Result<u64, TrafficError> {
        let (mut count, mut has_changed, mut result) = (0, false, Ok(()));
        for position in 0..self.interfaces.len() {
            let (name, index) = self.interfaces[position].clone();
            let present_name = Interface::from_index(index);
            let throttle_names =
                throttle::throttle_program_names(index).into_iter().filter(|_| self.throttling.is_some());
            let mut needed_names = throttle_names.chain([program::interface_pin_name(index)]);
            if present_name.is_some() && needed_names.all(|program| self.is_attached(&program)) {
                continue;
            }
            // Another interface that was renamed to this name keeps its own programs.
            let is_free = |index: &u32| self.interfaces.iter().all(|(_, known_index)| known_index != index);
            let Some(current_name) =
                present_name.or_else(|| name.index().filter(is_free).map(|_| name.clone()))
            else {
                continue;
            };
            let attach_result = read_index(&current_name).and_then(|new_index| {
                Ok((
                    new_index,
                    program::attach_interface_program(
                        &self.folder,
                        &current_name,
                        new_index,
                        has_ports(self.rules()),
                    )?,
                ))
            });
            match attach_result {
                Ok((new_index, attached)) => {
                    self.programs.insert(program::interface_pin_name(new_index), attached);
                    self.interfaces[position].1 = new_index;
                    has_changed = true;
                    count += u64::from(new_index == index);
                }
                Err(error) => result = result.and(Err(error)),
            }
        }
        if has_changed && let Some(control) = self.udp_control() {
            result = result.and(self.start_throttling(control));
        }
        if has_changed {
            self.removal = RemovalState::Found;
        }
        result.map(|()| count)
    }

    /// Attaches the missing programs of cgroups and ports, and returns of how many cgroups they are.
    fn restore_cgroup_programs(&mut self) -> Result<u64, TrafficError> {
        let mut incomplete = Vec::new();
        for application in &self.applications {
            let Rule { port, .. } = application.rule;
            if self.is_attached(&program::application_pin_name(application.id, port.is_some())) {
                continue;
            }
            match Cgroup::open_for(&application.rule) {
                // `refresh` follows the cgroup when it is created again.
                Err(TrafficError::File { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
                cgroup => incomplete.extend(Some(cgroup?).filter(|cgroup| cgroup.id == application.id)),
            }
        }
        // All ports share one program.
        let mut has_port = false;
        incomplete.retain(|cgroup| cgroup.port.is_none() || !std::mem::replace(&mut has_port, true));
        if incomplete.is_empty() {
            return Ok(0);
        }
        let context = LoadContext::read()?;
        let mut loader = ApplicationLoader::new(self.folder.path(), &context);
        for cgroup in &incomplete {
            self.programs.extend(loader.attach(cgroup)?);
        }
        Ok(incomplete.len() as u64)
    }
}
