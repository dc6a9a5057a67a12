//! Loads the BPF programs, and attaches them to cgroups and interfaces.

use std::path::Path;

use aya::programs::links::LinkOrder;
use aya::programs::tc::{SchedClassifierLinkId, TcAttachOptions};
use aya::programs::{CgroupAttachMode, Program, ProgramError, SchedClassifier, SockOps, TcAttachType};
use aya::{Btf, Ebpf, EbpfLoader, include_bytes_aligned};
use rustix::thread::{CapabilitySet, capabilities};

use super::attachment::{Attachment, Programs};
use super::cgroup::{Cgroup, FIRST_PRIORITY};
use super::folder::PinFolder;
use super::{MIN_PACING_RATE, TrafficError};
use crate::htb::MAX_SERVICES;
use crate::namespace;
use crate::queues::Interface;

static APPLICATION: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/application.o"));
static INTERFACE: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/interface.o"));

/// Whether the programs were built.
pub(super) fn is_built() -> bool {
    !APPLICATION.is_empty() && !INTERFACE.is_empty()
}

/// What the programs of cgroups and ports need of the kernel. Reading it parses the kernel's types, so read it once for several programs.
pub(super) struct LoadContext {
    /// The kernel's types (BTF), if programs may read its structures.
    pub types: Option<Btf>,
    /// The cookie of this network namespace.
    namespace: u64,
}

impl LoadContext {
    /// Reads the kernel's types.
    ///
    /// # Errors
    /// If the kernel has no cookies of network namespaces.
    pub fn read() -> Result<LoadContext, TrafficError> {
        let namespace = namespace::cookie();
        let namespace = namespace.map_err(|error| TrafficError::kernel("the network namespace", &error))?;
        Ok(LoadContext { types: read_kernel_types(), namespace })
    }
}

/// Loads the programs of cgroups and ports.
pub(super) struct ApplicationLoader<'a> {
    folder: &'a Path,
    loader: EbpfLoader<'a>,
}

impl<'a> ApplicationLoader<'a> {
    /// Loads programs with the maps of a folder.
    pub fn new(folder: &'a Path, context: &'a LoadContext) -> ApplicationLoader<'a> {
        let mut loader = EbpfLoader::new();
        loader.btf(context.types.as_ref()).default_map_pin_directory(folder);
        let has_types = if context.types.is_some() { &1u32 } else { &0 };
        loader.override_global("HAS_TYPES", has_types, true);
        loader.override_global("MIN_PACE", &MIN_PACING_RATE, true);
        loader.override_global("NAMESPACE", &context.namespace, true);
        ApplicationLoader { folder, loader }
    }

    /// Creates the maps that do not exist yet.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn create_maps(&mut self) -> Result<(), TrafficError> {
        self.load(&0, false)?;
        load_interface_programs(self.folder, false).map(drop)
    }

    /// Loads the programs of a cgroup by its number, or of all ports.
    pub fn load(&mut self, id: &'a u64, is_port: bool) -> Result<Ebpf, TrafficError> {
        let ports = if is_port { &1u32 } else { &0 };
        self.loader.override_global("APPLICATION", id, true).override_global("PORTS", ports, true);
        self.loader.load(APPLICATION).map_err(|error| TrafficError::kernel("the programs at cgroups", &error))
    }

    /// Attaches the program of an application to its cgroup, in place of an earlier one. That of a port is the program of all ports.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn attach(&mut self, cgroup: &'a Cgroup) -> Result<Programs, TrafficError> {
        let is_port = cgroup.port.is_some();
        let mut bpf = self.load(if is_port { &0 } else { &cgroup.id }, is_port)?;
        let to_error = |error: ProgramError| TrafficError::kernel(&cgroup.path.display().to_string(), &error);
        // The kernel accepts no flags for links, and always allows several at a cgroup.
        let attach_mode = CgroupAttachMode::Single;

        let follow: &mut SockOps = find_program(&mut bpf, "follow");
        follow.load().map_err(to_error)?;
        let link = follow.attach(&cgroup.folder, attach_mode).map_err(to_error)?;
        let name = application_pin_name(cgroup.id, is_port);
        let attached = Attachment::pin(self.folder, &name, follow.take_link(link).map_err(to_error)?)?;
        Ok(Programs::from([(name, attached)]))
    }
}

/// The kernel's types, if programs may read its structures.
fn read_kernel_types() -> Option<Btf> {
    let effective = capabilities(None).ok()?.effective;
    effective.intersects(CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN).then(Btf::from_sys_fs)?.ok()
}

pub(super) fn find_program<'a, P>(bpf: &'a mut Ebpf, name: &str) -> &'a mut P
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let program = bpf.program_mut(name).and_then(|program| program.try_into().ok());
    program.expect("the object that this crate embeds has a program of this name and type")
}

/// The file name of an application's program in the folder. All ports share one program.
pub(super) fn application_pin_name(id: u64, is_port: bool) -> String {
    if is_port { "ports-follow".to_owned() } else { format!("{id:x}-follow") }
}

/// The file name of an interface's program in the folder.
pub(super) fn interface_pin_name(index: u32) -> String {
    format!("{index}-mark")
}

/// Attaches the program to an interface, in place of an earlier one. With `has_ports`, the program looks up the ports of packets without
/// a class.
pub(super) fn attach_interface_program(
    folder: &PinFolder,
    interface: &Interface,
    index: u32,
    has_ports: bool,
) -> Result<Attachment, TrafficError> {
    let mut bpf = load_interface_programs(folder.path(), has_ports)?;
    load_classifier(&mut bpf, "mark")?;
    // Before programs that use the priority, as `limit` and those of container networks.
    let (mark, link) =
        attach_in_order(&mut bpf, "mark", interface, TcAttachType::Egress, LinkOrder::first())?;
    let link = mark.take_link(link).map_err(|error| TrafficError::kernel(&interface.to_string(), &error))?;
    Attachment::pin(folder.path(), &interface_pin_name(index), link)
}

/// Loads the programs of interfaces with the maps of a folder, without attaching them.
pub(super) fn load_interface_programs(folder: &Path, has_ports: bool) -> Result<Ebpf, TrafficError> {
    let (classes, ports) = (MAX_SERVICES as u32, u32::from(has_ports));
    let mut loader = EbpfLoader::new();
    loader.btf(None).default_map_pin_directory(folder);
    loader.override_global("FIRST", &FIRST_PRIORITY, true).override_global("CLASSES", &classes, true);
    loader.override_global("PORTS", &ports, true);
    loader.load(INTERFACE).map_err(|error| TrafficError::kernel("the programs at interfaces", &error))
}

/// Loads a program for interfaces, without attaching it.
pub(super) fn load_classifier(bpf: &mut Ebpf, name: &str) -> Result<(), TrafficError> {
    let program: &mut SchedClassifier = find_program(bpf, name);
    program.load().map_err(|error| TrafficError::kernel(name, &error))
}

/// Attaches a program to the egress of an interface of the calling thread's network namespace, until its link is dropped.
pub(crate) fn attach_egress<'a>(
    bpf: &'a mut Ebpf,
    name: &str,
    interface: &Interface,
) -> Result<(&'a mut SchedClassifier, SchedClassifierLinkId), TrafficError> {
    load_classifier(bpf, name)?;
    attach_classifier(bpf, name, interface, TcAttachType::Egress)
}

/// Attaches a loaded program to the egress or ingress of an interface, after other programs there.
pub(super) fn attach_classifier<'a>(
    bpf: &'a mut Ebpf,
    name: &str,
    interface: &Interface,
    attach_type: TcAttachType,
) -> Result<(&'a mut SchedClassifier, SchedClassifierLinkId), TrafficError> {
    attach_in_order(bpf, name, interface, attach_type, LinkOrder::last())
}

/// Attaches a loaded program to the egress or ingress of an interface, before or after other programs there.
pub(super) fn attach_in_order<'a>(
    bpf: &'a mut Ebpf,
    name: &str,
    interface: &Interface,
    attach_type: TcAttachType,
    order: LinkOrder,
) -> Result<(&'a mut SchedClassifier, SchedClassifierLinkId), TrafficError> {
    let interface_name = interface.to_string();
    let program: &mut SchedClassifier = find_program(bpf, name);
    // TCX instead of a `tc` filter, which would outlive its link.
    let link = program.attach_with_options(&interface_name, attach_type, TcAttachOptions::TcxOrder(order));
    let link = link.map_err(|error| TrafficError::kernel(&interface_name, &error))?;
    Ok((program, link))
}
