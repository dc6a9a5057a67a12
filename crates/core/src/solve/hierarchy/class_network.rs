//! Links, services and the classes of flows on them.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::{ClassId, HierarchyError};

/// Flag of a member's `next`: the class crosses three links or more.
const LONG_PATH_FLAG: u32 = 1 << 31;

/// A class at one of its links.
#[derive(Debug, Clone, Copy)]
pub(super) struct CellMember {
    /// The class's cell at its other link. With several other links, [`LONG_PATH_FLAG`] and the class; without any, the number of
    /// cells, which indexes an entry of infinity.
    other_cell: u32,
    pub flows: u32,
}

/// A link and a service.
#[derive(Debug, Clone, Default)]
pub(super) struct Cell {
    pub members: Vec<CellMember>,
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
    pub fn is_elastic(&self) -> bool {
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

    fn add_member(&mut self, class: u32, member: CellMember, demand: f64) {
        self.members.push(member);
        self.classes.push(class);
        self.flows += u64::from(member.flows);
        if !self.demands.is_empty() {
            self.demands.push(demand);
        }
        self.set_demand(self.members.len() - 1, demand);
    }

    /// Removes a member. Returns the class that moved to its place, if any.
    fn remove_member(&mut self, place: usize) -> Option<u32> {
        self.flows -= u64::from(self.members.swap_remove(place).flows);
        self.classes.swap_remove(place);
        if !self.demands.is_empty() {
            self.demands.swap_remove(place);
        }
        self.classes.get(place).copied()
    }
}

/// A service, the bits of a demand, and a path.
type ClassKey = (usize, u64, SmallVec<[u32; 6]>);

/// Cells are numbered by link and then by service.
#[derive(Debug, Clone)]
pub(super) struct ClassNetwork {
    pub links: usize,
    pub services: usize,
    pub cells: Vec<Cell>,
    /// By class: the start of its path in `path`, and the end of the last.
    path_starts: Vec<u32>,
    /// Cells, one for each link of a path, and the index of the class among the cell's members.
    path_cells: Vec<(u32, u32)>,
    /// Union-find over links that classes connect, directly or not. By link, its parent; a root is its own parent.
    link_parents: Vec<u32>,
    /// Classes of single flows. Only looked up, never iterated: iteration order would not be deterministic.
    class_by_key: HashMap<ClassKey, u32>,
    /// Classes of single flows that have ended, by length of path. Their numbers are available for new classes.
    free_classes: Vec<Vec<u32>>,
}

impl ClassNetwork {
    pub fn new(links: usize, services: usize) -> Result<ClassNetwork, HierarchyError> {
        let cells = links.saturating_mul(services);
        if cells >= LONG_PATH_FLAG as usize {
            return Err(HierarchyError::TooMany { counted: "links times services", max: LONG_PATH_FLAG - 1 });
        }
        Ok(ClassNetwork {
            links,
            services,
            cells: vec![Cell::default(); cells],
            path_starts: vec![0],
            path_cells: Vec::new(),
            link_parents: (0..links as u32).collect(),
            class_by_key: HashMap::new(),
            free_classes: Vec::new(),
        })
    }

    pub fn add_class(
        &mut self,
        service: usize,
        links: &[u32],
        flows: u32,
        demand: f64,
    ) -> Result<ClassId, HierarchyError> {
        self.check_class(service, links, demand)?;
        let class = self.classes();
        if class >= LONG_PATH_FLAG as usize || self.path_cells.len() + links.len() > u32::MAX as usize {
            return Err(HierarchyError::TooMany { counted: "classes", max: LONG_PATH_FLAG - 1 });
        }
        self.path_cells.resize(self.path_cells.len() + links.len(), (0, 0));
        self.path_starts.push(self.path_cells.len() as u32);
        self.add_to_links(class as u32, service, links, flows, demand);
        Ok(ClassId(class as u32))
    }

    fn check_class(&self, service: usize, links: &[u32], demand: f64) -> Result<(), HierarchyError> {
        if service >= self.services {
            return Err(HierarchyError::UnknownService { service, services: self.services });
        }
        check_demand(demand)?;
        if links.is_empty() {
            return Err(HierarchyError::NoLinks);
        }
        for (at, &link) in links.iter().enumerate() {
            if link as usize >= self.links {
                return Err(HierarchyError::UnknownLink { link, links: self.links });
            }
            if links[..at].contains(&link) {
                return Err(HierarchyError::RepeatedLink { link });
            }
        }
        Ok(())
    }

    /// Adds a class, whose path has been allocated, to its links.
    fn add_to_links(&mut self, class: u32, service: usize, links: &[u32], flows: u32, demand: f64) {
        let cell = |link: u32| link as usize * self.services + service;
        let start = self.path_starts[class as usize] as usize;
        for (at, &link) in links.iter().enumerate() {
            let next = match links.len() {
                1 => self.cells.len() as u32,
                2 => cell(links[1 - at]) as u32,
                _ => LONG_PATH_FLAG | class,
            };
            let place = &mut self.cells[cell(link)];
            self.path_cells[start + at] = (cell(link) as u32, place.members.len() as u32);
            place.add_member(class, CellMember { other_cell: next, flows }, demand);
        }
        for pair in links.windows(2) {
            self.connect_links(pair[0], pair[1]);
        }
    }

    /// Removes a class from its links.
    fn remove_from_links(&mut self, class: u32) {
        for at in self.path_range(class) {
            let (cell, place) = self.path_cells[at];
            if let Some(moved) = self.cells[cell as usize].remove_member(place as usize) {
                let range = self.path_range(moved);
                let entry = self.path_cells[range].iter_mut().find(|entry| entry.0 == cell);
                entry.expect("the path of a class has the cells that it is a member of").1 = place;
            }
        }
    }

    fn connect_links(&mut self, a: u32, b: u32) {
        let (root, other) = (self.component_root(a), self.component_root(b));
        self.link_parents[other as usize] = root;
        // Path compression: later lookups are shorter.
        self.link_parents[a as usize] = root;
        self.link_parents[b as usize] = root;
    }

    fn component_root(&self, mut link: u32) -> u32 {
        while self.link_parents[link as usize] != link {
            link = self.link_parents[link as usize];
        }
        link
    }

    /// All links that classes connect to these links, directly or not.
    pub fn connected_links(&self, links: impl Iterator<Item = usize>) -> Vec<u32> {
        let mut wanted = vec![false; self.links];
        for link in links {
            let root = self.component_root(link as u32);
            wanted[root as usize] = true;
        }
        (0..self.links as u32).filter(|&link| wanted[self.component_root(link) as usize]).collect()
    }

    /// The class of single flows with this service, demand and path. If it does not exist, creates it without flows, from an
    /// ended class if possible.
    pub fn find_or_add_class(
        &mut self,
        service: usize,
        links: &[u32],
        demand: f64,
    ) -> Result<ClassId, HierarchyError> {
        // Adding 0 turns -0 into 0.
        let key: ClassKey = (service, (demand + 0.0).to_bits(), links.into());
        if let Some(&class) = self.class_by_key.get(&key) {
            return Ok(ClassId(class));
        }
        self.check_class(service, links, demand)?;
        let class = match self.free_classes.get_mut(links.len()).and_then(Vec::pop) {
            Some(class) => {
                self.remove_from_links(class);
                self.add_to_links(class, service, links, 0, demand);
                ClassId(class)
            }
            None => self.add_class(service, links, 0, demand)?,
        };
        self.class_by_key.insert(key, class.0);
        Ok(class)
    }

    /// Makes the number of a class available if it is a class of single flows without flows. Until then the class stays
    /// on its links.
    pub fn release_class(&mut self, class: u32) {
        if self.flows(class) > 0 || !self.remove_key(class) {
            return;
        }
        let length = self.path_range(class).len();
        if self.free_classes.len() <= length {
            self.free_classes.resize(length + 1, Vec::new());
        }
        self.free_classes[length].push(class);
    }

    pub fn set_flows(&mut self, class: ClassId, flows: u32) {
        for at in self.path_range(class.0) {
            let (cell, place) = self.path_cells[at];
            let cell = &mut self.cells[cell as usize];
            let member = &mut cell.members[place as usize];
            cell.flows = cell.flows - u64::from(member.flows) + u64::from(flows);
            member.flows = flows;
        }
    }

    pub fn set_demand(&mut self, class: ClassId, demand: f64) -> Result<(), HierarchyError> {
        check_demand(demand)?;
        // The class no longer matches the demand in its key.
        self.remove_key(class.0);
        for at in self.path_range(class.0) {
            let (cell, place) = self.path_cells[at];
            self.cells[cell as usize].set_demand(place as usize, demand);
        }
        Ok(())
    }

    /// Removes the key of a class, so that new flows with its demand go to another class. Returns whether the class had the
    /// key.
    fn remove_key(&mut self, class: u32) -> bool {
        if self.class_by_key.is_empty() {
            return false;
        }
        let path = self.path(class);
        let links = path.iter().map(|&(cell, _)| self.link_of_cell(cell as usize) as u32).collect();
        let key: ClassKey = (path[0].0 as usize % self.services, (self.demand(class) + 0.0).to_bits(), links);
        let known = self.class_by_key.get(&key) == Some(&class);
        if known {
            self.class_by_key.remove(&key);
        }
        known
    }

    fn path_range(&self, class: u32) -> std::ops::Range<usize> {
        self.path_starts[class as usize] as usize..self.path_starts[class as usize + 1] as usize
    }

    /// A class's cells, and its index among the members of each.
    pub fn path(&self, class: u32) -> &[(u32, u32)] {
        &self.path_cells[self.path_range(class)]
    }

    pub fn classes(&self) -> usize {
        self.path_starts.len() - 1
    }

    pub fn flows(&self, class: u32) -> u32 {
        let (cell, place) = self.path_cells[self.path_starts[class as usize] as usize];
        self.cells[cell as usize].members[place as usize].flows
    }

    pub fn demand(&self, class: u32) -> f64 {
        let (cell, place) = self.path_cells[self.path_starts[class as usize] as usize];
        self.cells[cell as usize].demand(place as usize)
    }

    pub fn cells_of_link(&self, link: usize) -> std::ops::Range<usize> {
        link * self.services..(link + 1) * self.services
    }

    pub fn link_of_cell(&self, cell: usize) -> usize {
        cell / self.services
    }

    /// Total length of the paths of all classes.
    pub fn total_path_len(&self) -> u64 {
        self.path_cells.len() as u64
    }

    /// The minimum of a list by cell over the other cells of a member of `cell`. The list has one entry more than there
    /// are cells: infinity.
    #[inline(always)]
    pub fn min_over_other_cells(&self, cell: usize, member: CellMember, list: &[f64]) -> f64 {
        if member.other_cell & LONG_PATH_FLAG == 0 {
            return list[member.other_cell as usize];
        }
        self.min_over_path(cell, member.other_cell & !LONG_PATH_FLAG, list)
    }

    #[cold]
    fn min_over_path(&self, cell: usize, class: u32, list: &[f64]) -> f64 {
        let others = self.path(class).iter().filter(|&&(other, _)| other as usize != cell);
        others.map(|&(other, _)| list[other as usize]).fold(f64::INFINITY, f64::min)
    }

    /// Calls `visit` with the other cells of a member of `cell`.
    #[inline(always)]
    pub fn visit_other_cells(&self, cell: usize, member: CellMember, mut visit: impl FnMut(usize)) {
        if member.other_cell & LONG_PATH_FLAG != 0 {
            let path = self.path(member.other_cell & !LONG_PATH_FLAG);
            path.iter().map(|&(other, _)| other as usize).filter(|&other| other != cell).for_each(visit);
        } else if (member.other_cell as usize) < self.cells.len() {
            visit(member.other_cell as usize);
        }
    }
}

fn check_demand(demand: f64) -> Result<(), HierarchyError> {
    if demand >= 0.0 { Ok(()) } else { Err(HierarchyError::InvalidDemand { demand }) }
}
