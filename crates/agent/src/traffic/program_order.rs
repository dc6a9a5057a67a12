//! Keeps the agent's programs at interfaces before those of other owners, which can end the chain of programs: the agent's then do not
//! run, and packets lose their class. The agent's let the next program run.

use std::collections::BTreeSet;
use std::path::PathBuf;

use aya::programs::links::LinkOrder;
use aya::programs::{SchedClassifier, TcAttachType};

use super::attachment::Attachment;
use super::program::{self, attach_in_order, load_classifier, load_interface_programs};
use super::{Traffic, TrafficError, has_ports};
use crate::queues::Interface;

/// A program that has to be the first one of its interface.
struct FirstProgram {
    pin_name: String,
    program: &'static str,
    interface: u32,
    attach_type: TcAttachType,
    program_id: u32,
}

impl FirstProgram {
    /// The interface, if other programs run before this one.
    fn overtaken_interface(&self) -> Option<Interface> {
        let interface = Interface::from_index(self.interface)?;
        let (_, chain) = SchedClassifier::query_tcx(&interface.to_string(), self.attach_type).ok()?;
        // A chain without this program: another process has detached it, which other inspections find.
        let position = chain.iter().position(|program| program.id() == self.program_id)?;
        (position > 0).then_some(interface)
    }
}

/// An inspection of the programs that have to be the first ones of their interfaces. A separate thread runs it: it waits for the kernel's
/// lock of interfaces, which other processes can hold for seconds.
pub struct OrderCheck {
    folder: PathBuf,
    has_ports: bool,
    programs: Vec<FirstProgram>,
}

/// The programs that an [`OrderCheck`] has attached again, by the names of their files.
#[derive(Debug)]
pub struct OrderChanges(Vec<(String, Attachment)>);

impl OrderCheck {
    /// Attaches programs again before those of others.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn run(self) -> Result<OrderChanges, TrafficError> {
        let overtaken = |first: FirstProgram| Some((first.overtaken_interface()?, first));
        let overtaken: Vec<(Interface, FirstProgram)> =
            self.programs.into_iter().filter_map(overtaken).collect();
        if overtaken.is_empty() {
            return Ok(OrderChanges(Vec::new()));
        }
        let mut bpf = load_interface_programs(&self.folder, self.has_ports)?;
        let names: BTreeSet<&str> = overtaken.iter().map(|(_, first)| first.program).collect();
        names.into_iter().try_for_each(|name| load_classifier(&mut bpf, name))?;
        let mut attach = |(interface, first): (Interface, FirstProgram)| {
            let order = LinkOrder::first();
            let (program, link) =
                attach_in_order(&mut bpf, first.program, &interface, first.attach_type, order)?;
            let link = program.take_link(link);
            let link = link.map_err(|error| TrafficError::kernel(&interface.to_string(), &error))?;
            let attached = Attachment::pin(&self.folder, &first.pin_name, link)?;
            Ok((first.pin_name, attached))
        };
        overtaken.into_iter().map(&mut attach).collect::<Result<_, _>>().map(OrderChanges)
    }
}

impl Traffic {
    /// An inspection of the order of programs at interfaces, for [`Traffic::apply_order`].
    pub fn order_check(&self) -> OrderCheck {
        let own = self.interfaces.iter().map(|&(_, interface)| {
            (program::interface_pin_name(interface), "mark", interface, TcAttachType::Egress)
        });
        let first = |(pin_name, program, interface, attach_type): (String, _, _, _)| {
            let program_id = self.programs.get(&pin_name)?.program_id()?;
            Some(FirstProgram { pin_name, program, interface, attach_type, program_id })
        };
        OrderCheck {
            folder: self.folder.path().to_owned(),
            has_ports: has_ports(self.rules()),
            programs: own.chain(self.paths.attached()).filter_map(first).collect(),
        }
    }

    /// Applies the result of an inspection, and returns the number of programs that were attached again.
    ///
    /// # Errors
    /// If a file of a program cannot be removed.
    pub fn apply_order(&mut self, changes: OrderChanges) -> Result<u64, TrafficError> {
        let mut count = 0;
        for (name, attached) in changes.0 {
            // The interface was deleted, or another search has removed its program.
            if !self.programs.contains_key(&name) {
                self.folder.retain(|file| file != name)?;
                continue;
            }
            let former = self.programs.insert(name, attached);
            self.paths.drop_later(former);
            count += 1;
        }
        Ok(count)
    }
}
