//! Links, services and the classes of flows on them.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::{ClassId, HierarchyError};

/// Flag of a member's `next`: the class crosses three links or more.
const LONG: u32 = 1 << 31;

/// A class at one of its links.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    /// The class's cell at its other link. With several other links, [`LONG`] and the class; without any, the number of
    /// cells, which indexes an entry of infinity.
    next: u32,
    pub flows: u32,
}

/// A link and a service.
#[derive(Debug, Clone, Default)]
pub(super) struct Cell {
    pub members: Vec<Member>,
    /// The demand of each flow of a member; empty if all demands are infinite.
    demands: Vec<f64>,
    /// The class of each member.
    pub classes: Vec<u32>,
    pub flows: u64,
}

impl Cell {
    pub fn demand(&self, place: usize) -> f64 {
        self.demands.get(place).copied().unwrap_or(f64::INFINITY)
    }

    /// Whether all demands are infinite.
    pub fn elastic(&self) -> bool {
        self.demands.is_empty()
    }

    pub fn set_demand(&mut self, place: usize, demand: f64) {
        if self.demands.is_empty() && demand.is_finite() {
            self.demands = vec![f64::INFINITY; self.members.len()];
        }
        if let Some(old) = self.demands.get_mut(place) {
            *old = demand;
        }
    }

    fn push(&mut self, class: u32, member: Member, demand: f64) {
        self.members.push(member);
        self.classes.push(class);
        self.flows += u64::from(member.flows);
        if !self.demands.is_empty() {
            self.demands.push(demand);
        }
        self.set_demand(self.members.len() - 1, demand);
    }

    /// Removes a member. Returns the class that moved to its place, if any.
    fn remove(&mut self, place: usize) -> Option<u32> {
        self.flows -= u64::from(self.members.swap_remove(place).flows);
        self.classes.swap_remove(place);
        if !self.demands.is_empty() {
            self.demands.swap_remove(place);
        }
        self.classes.get(place).copied()
    }
}

/// A service, the bits of a demand, and a path.
type Key = (usize, u64, SmallVec<[u32; 6]>);

/// Cells are numbered by link and then by service.
#[derive(Debug, Clone)]
pub(super) struct Network {
    pub links: usize,
    pub services: usize,
    pub cells: Vec<Cell>,
    /// By class: the start of its path in `path`, and the end of the last.
    starts: Vec<u32>,
    /// Cells, one for each link of a path, and the index of the class among the cell's members.
    path: Vec<(u32, u32)>,
    /// Union-find over links that classes connect, directly or not. By link, its parent; a root is its own parent.
    connected: Vec<u32>,
    /// Classes of single flows. Only looked up, never iterated: iteration order would not be deterministic.
    known: HashMap<Key, u32>,
    /// Classes of single flows that have ended, by length of path. Their numbers are available for new classes.
    idle: Vec<Vec<u32>>,
}

impl Network {
    pub fn new(links: usize, services: usize) -> Result<Network, HierarchyError> {
        let cells = links.saturating_mul(services);
        if cells >= LONG as usize {
            return Err(HierarchyError::TooMany { what: "links times services", most: LONG - 1 });
        }
        Ok(Network {
            links,
            services,
            cells: vec![Cell::default(); cells],
            starts: vec![0],
            path: Vec::new(),
            connected: (0..links as u32).collect(),
            known: HashMap::new(),
            idle: Vec::new(),
        })
    }

    pub fn add(
        &mut self,
        service: usize,
        links: &[u32],
        flows: u32,
        demand: f64,
    ) -> Result<ClassId, HierarchyError> {
        self.check(service, links, demand)?;
        let class = self.classes();
        if class >= LONG as usize || self.path.len() + links.len() > u32::MAX as usize {
            return Err(HierarchyError::TooMany { what: "classes", most: LONG - 1 });
        }
        self.path.resize(self.path.len() + links.len(), (0, 0));
        self.starts.push(self.path.len() as u32);
        self.enter(class as u32, service, links, flows, demand);
        Ok(ClassId(class as u32))
    }

    fn check(&self, service: usize, links: &[u32], demand: f64) -> Result<(), HierarchyError> {
        if service >= self.services {
            return Err(HierarchyError::Service { service, services: self.services });
        }
        check_demand(demand)?;
        if links.is_empty() {
            return Err(HierarchyError::NoLinks);
        }
        for (at, &link) in links.iter().enumerate() {
            if link as usize >= self.links {
                return Err(HierarchyError::Link { link, links: self.links });
            }
            if links[..at].contains(&link) {
                return Err(HierarchyError::Twice { link });
            }
        }
        Ok(())
    }

    /// Adds a class, whose path has been allocated, to its links.
    fn enter(&mut self, class: u32, service: usize, links: &[u32], flows: u32, demand: f64) {
        let cell = |link: u32| link as usize * self.services + service;
        let start = self.starts[class as usize] as usize;
        for (at, &link) in links.iter().enumerate() {
            let next = match links.len() {
                1 => self.cells.len() as u32,
                2 => cell(links[1 - at]) as u32,
                _ => LONG | class,
            };
            let place = &mut self.cells[cell(link)];
            self.path[start + at] = (cell(link) as u32, place.members.len() as u32);
            place.push(class, Member { next, flows }, demand);
        }
        for pair in links.windows(2) {
            self.connect(pair[0], pair[1]);
        }
    }

    /// Removes a class from its links.
    fn leave(&mut self, class: u32) {
        for at in self.range(class) {
            let (cell, place) = self.path[at];
            if let Some(moved) = self.cells[cell as usize].remove(place as usize) {
                let range = self.range(moved);
                let entry = self.path[range].iter_mut().find(|entry| entry.0 == cell);
                entry.expect("the path of a class has the cells that it is a member of").1 = place;
            }
        }
    }

    fn connect(&mut self, a: u32, b: u32) {
        let (root, other) = (self.root(a), self.root(b));
        self.connected[other as usize] = root;
        // Path compression: later lookups are shorter.
        self.connected[a as usize] = root;
        self.connected[b as usize] = root;
    }

    fn root(&self, mut link: u32) -> u32 {
        while self.connected[link as usize] != link {
            link = self.connected[link as usize];
        }
        link
    }

    /// All links that classes connect to these links, directly or not.
    pub fn around(&self, links: impl Iterator<Item = usize>) -> Vec<u32> {
        let mut wanted = vec![false; self.links];
        for link in links {
            let root = self.root(link as u32);
            wanted[root as usize] = true;
        }
        (0..self.links as u32).filter(|&link| wanted[self.root(link) as usize]).collect()
    }

    /// The class of single flows with this service, demand and path. If it does not exist, creates it without flows, from an
    /// ended class if possible.
    pub fn class_of(
        &mut self,
        service: usize,
        links: &[u32],
        demand: f64,
    ) -> Result<ClassId, HierarchyError> {
        // Adding 0 turns -0 into 0.
        let key: Key = (service, (demand + 0.0).to_bits(), links.into());
        if let Some(&class) = self.known.get(&key) {
            return Ok(ClassId(class));
        }
        self.check(service, links, demand)?;
        let class = match self.idle.get_mut(links.len()).and_then(Vec::pop) {
            Some(class) => {
                self.leave(class);
                self.enter(class, service, links, 0, demand);
                ClassId(class)
            }
            None => self.add(service, links, 0, demand)?,
        };
        self.known.insert(key, class.0);
        Ok(class)
    }

    /// Makes the number of a class available if it is a class of single flows without flows. Until then the class stays
    /// on its links.
    pub fn release(&mut self, class: u32) {
        if self.flows(class) > 0 || !self.forget_key(class) {
            return;
        }
        let length = self.range(class).len();
        if self.idle.len() <= length {
            self.idle.resize(length + 1, Vec::new());
        }
        self.idle[length].push(class);
    }

    pub fn set_flows(&mut self, class: ClassId, flows: u32) {
        for at in self.range(class.0) {
            let (cell, place) = self.path[at];
            let cell = &mut self.cells[cell as usize];
            let member = &mut cell.members[place as usize];
            cell.flows = cell.flows - u64::from(member.flows) + u64::from(flows);
            member.flows = flows;
        }
    }

    pub fn set_demand(&mut self, class: ClassId, demand: f64) -> Result<(), HierarchyError> {
        check_demand(demand)?;
        // The class no longer matches the demand in its key.
        self.forget_key(class.0);
        for at in self.range(class.0) {
            let (cell, place) = self.path[at];
            self.cells[cell as usize].set_demand(place as usize, demand);
        }
        Ok(())
    }

    /// Removes the key of a class, so that new flows with its demand go to another class. Returns whether the class had the
    /// key.
    fn forget_key(&mut self, class: u32) -> bool {
        if self.known.is_empty() {
            return false;
        }
        let path = self.path(class);
        let links = path.iter().map(|&(cell, _)| self.link_of(cell as usize) as u32).collect();
        let key: Key = (path[0].0 as usize % self.services, (self.demand(class) + 0.0).to_bits(), links);
        let known = self.known.get(&key) == Some(&class);
        if known {
            self.known.remove(&key);
        }
        known
    }

    fn range(&self, class: u32) -> std::ops::Range<usize> {
        self.starts[class as usize] as usize..self.starts[class as usize + 1] as usize
    }

    /// A class's cells, and its index among the members of each.
    pub fn path(&self, class: u32) -> &[(u32, u32)] {
        &self.path[self.range(class)]
    }

    pub fn classes(&self) -> usize {
        self.starts.len() - 1
    }

    pub fn flows(&self, class: u32) -> u32 {
        let (cell, place) = self.path[self.starts[class as usize] as usize];
        self.cells[cell as usize].members[place as usize].flows
    }

    pub fn demand(&self, class: u32) -> f64 {
        let (cell, place) = self.path[self.starts[class as usize] as usize];
        self.cells[cell as usize].demand(place as usize)
    }

    pub fn cells_of(&self, link: usize) -> std::ops::Range<usize> {
        link * self.services..(link + 1) * self.services
    }

    pub fn link_of(&self, cell: usize) -> usize {
        cell / self.services
    }

    /// Total length of the paths of all classes.
    pub fn crossings(&self) -> u64 {
        self.path.len() as u64
    }

    /// The minimum of a list by cell over the other cells of a member of `cell`. The list has one entry more than there
    /// are cells: infinity.
    #[inline(always)]
    pub fn least_elsewhere(&self, cell: usize, member: Member, list: &[f64]) -> f64 {
        if member.next & LONG == 0 {
            return list[member.next as usize];
        }
        self.least_of_others(cell, member.next & !LONG, list)
    }

    #[cold]
    fn least_of_others(&self, cell: usize, class: u32, list: &[f64]) -> f64 {
        let others = self.path(class).iter().filter(|&&(other, _)| other as usize != cell);
        others.map(|&(other, _)| list[other as usize]).fold(f64::INFINITY, f64::min)
    }

    /// Calls `visit` with the other cells of a member of `cell`.
    #[inline(always)]
    pub fn for_others(&self, cell: usize, member: Member, mut visit: impl FnMut(usize)) {
        if member.next & LONG != 0 {
            let path = self.path(member.next & !LONG);
            path.iter().map(|&(other, _)| other as usize).filter(|&other| other != cell).for_each(visit);
        } else if (member.next as usize) < self.cells.len() {
            visit(member.next as usize);
        }
    }
}

fn check_demand(demand: f64) -> Result<(), HierarchyError> {
    if demand >= 0.0 { Ok(()) } else { Err(HierarchyError::Demand { demand }) }
}
