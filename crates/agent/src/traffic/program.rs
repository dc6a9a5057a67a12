//! Loads the BPF programs, and attaches them to cgroups and interfaces.

use aya::programs::links::LinkOrder;
use aya::programs::tc::{SchedClassifierLinkId, TcAttachOptions};
use aya::programs::{
    CgroupAttachMode, CgroupSkb, CgroupSkbAttachType, Program, ProgramError, SchedClassifier, SockOps,
    TcAttachType,
};
use aya::{Btf, Ebpf, EbpfLoader, include_bytes_aligned};
use rustix::thread::{CapabilitySet, capabilities};

use super::attachment::{Attachment, Programs};
use super::cgroup::{Cgroup, FIRST_PRIORITY};
use super::folder::PinFolder;
use super::sweep::Sweep;
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

/// Creates the maps that do not exist yet.
pub(super) fn create_maps(folder: &PinFolder) -> Result<(), TrafficError> {
    load_application_object(folder, 0, None).map(drop)
}

fn load_application_object(folder: &PinFolder, id: u64, port: Option<u16>) -> Result<Ebpf, TrafficError> {
    let to_error = |error| TrafficError::kernel("the network namespace", &error);
    let (port, namespace) = match port {
        None => (0, 0),
        Some(port) => (u32::from(port), namespace::cookie().map_err(to_error)?),
    };
    let kernel_types = read_kernel_types();
    let has_types = u32::from(kernel_types.is_some());
    let mut loader = EbpfLoader::new();
    loader.btf(kernel_types.as_ref()).default_map_pin_directory(folder.path());
    loader.override_global("HAS_TYPES", &has_types, true);
    loader.override_global("APPLICATION", &id, true).override_global("MIN_PACE", &MIN_PACING_RATE, true);
    loader.override_global("PORT", &port, true).override_global("NAMESPACE", &namespace, true);
    loader.load(APPLICATION).map_err(|error| TrafficError::kernel("the programs at cgroups", &error))
}

/// Ends the rates of connections whose entry was removed or has expired, also of idle ones.
///
/// # Errors
/// If the kernel refuses the program, which needs its types, CAP_PERFMON and Linux 5.16.
pub(super) fn release_connections(folder: &PinFolder) -> Result<(), TrafficError> {
    Sweep::load(load_application_object(folder, 0, None)?, "release")?.run()
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

/// The file names of an application's programs in the folder.
pub(super) fn application_pin_names(id: u64) -> [String; 2] {
    ["steer", "follow"].map(|program| format!("{id:x}-{program}"))
}

/// The file name of an interface's program in the folder.
pub(super) fn interface_pin_name(index: u32) -> String {
    format!("{index}-mark")
}

/// The file names of the programs that an application needs. Packets of a port get their class at the interface.
pub(super) fn needed_pin_names(id: u64, is_port: bool) -> impl Iterator<Item = String> {
    application_pin_names(id).into_iter().skip(usize::from(is_port))
}

/// Attaches programs to an application's cgroup, in place of earlier ones.
pub(super) fn attach_application_programs(
    folder: &PinFolder,
    cgroup: &Cgroup,
) -> Result<Programs, TrafficError> {
    let mut bpf = load_application_object(folder, cgroup.id, cgroup.port)?;
    let to_error = |error: ProgramError| TrafficError::kernel(&cgroup.path.display().to_string(), &error);
    let [steer_name, follow_name] = application_pin_names(cgroup.id);
    // The kernel accepts no flags for links, and always allows several at a cgroup.
    let attach_mode = CgroupAttachMode::Single;

    let mut programs = Programs::new();
    if cgroup.port.is_none() {
        let steer: &mut CgroupSkb = find_program(&mut bpf, "steer");
        steer.load().map_err(to_error)?;
        let link =
            steer.attach(&cgroup.folder, CgroupSkbAttachType::Egress, attach_mode).map_err(to_error)?;
        let attached = Attachment::pin(folder, &steer_name, steer.take_link(link).map_err(to_error)?)?;
        programs.insert(steer_name, attached);
    }

    let follow: &mut SockOps = find_program(&mut bpf, "follow");
    follow.load().map_err(to_error)?;
    let link = follow.attach(&cgroup.folder, attach_mode).map_err(to_error)?;
    let attached = Attachment::pin(folder, &follow_name, follow.take_link(link).map_err(to_error)?)?;
    programs.insert(follow_name, attached);
    Ok(programs)
}

/// Attaches the program to an interface, in place of an earlier one. With `has_ports`, the program looks up the ports of packets without
/// a class.
pub(super) fn attach_interface_program(
    folder: &PinFolder,
    interface: &Interface,
    index: u32,
    has_ports: bool,
) -> Result<Attachment, TrafficError> {
    let interface_name = interface.to_string();
    let (classes, ports) = (MAX_SERVICES as u32, u32::from(has_ports));
    let mut loader = EbpfLoader::new();
    loader.btf(None).default_map_pin_directory(folder.path());
    loader.override_global("FIRST", &FIRST_PRIORITY, true).override_global("CLASSES", &classes, true);
    loader.override_global("PORTS", &ports, true);
    let mut bpf = loader.load(INTERFACE).map_err(|error| TrafficError::kernel(&interface_name, &error))?;

    let (mark, link) = attach_egress(&mut bpf, "mark", interface)?;
    let link = mark.take_link(link).map_err(|error| TrafficError::kernel(&interface_name, &error))?;
    Attachment::pin(folder, &interface_pin_name(index), link)
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

/// Attaches a loaded program to the egress or ingress of an interface.
pub(super) fn attach_classifier<'a>(
    bpf: &'a mut Ebpf,
    name: &str,
    interface: &Interface,
    attach_type: TcAttachType,
) -> Result<(&'a mut SchedClassifier, SchedClassifierLinkId), TrafficError> {
    let interface_name = interface.to_string();
    let program: &mut SchedClassifier = find_program(bpf, name);
    // TCX instead of a `tc` filter, which would outlive its link.
    let options = TcAttachOptions::TcxOrder(LinkOrder::default());
    let link = program.attach_with_options(&interface_name, attach_type, options);
    let link = link.map_err(|error| TrafficError::kernel(&interface_name, &error))?;
    Ok((program, link))
}
