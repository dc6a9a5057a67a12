//! Finds the cgroups and ports of the traffic that a coordinator orders for applications.
//!
//! Orders name cgroups by patterns, so cgroups that are created later belong to an application from the next search on. Of cgroups that
//! contain each other, the innermost counts. Options count more than orders: their applications, cgroups and ports are never touched.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_proto::{ApplicationTraffic, MAX_CONFLICTS, cgroup_patterns, matches_component};

use super::cgroup::{Rule, port_application_id};

/// The maximum number of cgroups and ports by orders. Each cgroup has a BPF program.
pub const MAX_ORDERED_TARGETS: usize = 128;

/// The maximum number of folders that a search looks at, for all patterns together.
const MAX_VISITED_FOLDERS: usize = 4096;

/// A cgroup or port of an application by orders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The application.
    pub application: Arc<str>,
    /// The number of the cgroup, or that of the port's application.
    pub id: u64,
    /// The folder of the cgroup; empty for a port.
    pub path: PathBuf,
    /// The port.
    pub port: Option<u16>,
}

impl Target {
    /// The rule of the target.
    pub fn rule(&self) -> Rule {
        Rule { name: self.application.to_string(), cgroup: self.path.clone(), port: self.port, class: None }
    }
}

/// The cgroup or port of an application by the agent's options.
#[derive(Debug, Clone)]
pub(super) struct OptionTarget {
    /// The application.
    pub name: String,
    /// The folder of the cgroup, without symbolic links.
    pub path: PathBuf,
    /// The port; none for a cgroup.
    pub port: Option<u16>,
}

/// Where the agent looks for cgroups.
#[derive(Debug)]
pub(super) struct CgroupTree {
    /// The root of the cgroups.
    pub root: PathBuf,
    /// The folder of the agent's own cgroup, if it is known.
    pub own: Option<PathBuf>,
}

impl CgroupTree {
    /// The targets of orders that exist now, at most [`MAX_ORDERED_TARGETS`], and the conflicts of those that are not applied, at most
    /// [`MAX_CONFLICTS`], each with its reason. Reads a folder for each component with a `*`, and looks at 4,096 folders or fewer:
    /// O(f log f) for f folders in them.
    pub fn find_targets(
        &self,
        ordered: &[ApplicationTraffic],
        options: &[OptionTarget],
    ) -> (Vec<Target>, Vec<String>) {
        let option_names: BTreeSet<&str> = options.iter().map(|option| option.name.as_str()).collect();
        let mut found = TargetList::new(self, options);
        for entry in ordered {
            let application = &entry.application;
            if option_names.contains(&**application) {
                found.add_conflict(application, "the agent's options define it");
                continue;
            }
            found.add_cgroups(entry);
            for &port in &entry.ports {
                found.add_port(application, port);
            }
        }
        found.finish()
    }
}

/// The targets that a search has found so far.
struct TargetList<'a> {
    tree: &'a CgroupTree,
    options: &'a [OptionTarget],
    /// The applications of cgroups: by options, and found ones.
    cgroups: BTreeMap<PathBuf, &'a str>,
    /// The applications of ports: by options, and found ones.
    ports: BTreeMap<u16, &'a str>,
    targets: Vec<Target>,
    conflicts: Vec<String>,
    /// How many more folders the search looks at.
    remaining_folders: usize,
    /// Whether there are more folders.
    has_more_folders: bool,
}

impl<'a> TargetList<'a> {
    fn new(tree: &'a CgroupTree, options: &'a [OptionTarget]) -> TargetList<'a> {
        let (mut cgroups, mut ports) = (BTreeMap::new(), BTreeMap::new());
        for OptionTarget { name, path, port } in options {
            match port {
                Some(port) => drop(ports.insert(*port, name.as_str())),
                None => drop(cgroups.insert(path.clone(), name.as_str())),
            }
        }
        let (targets, conflicts) = (Vec::new(), Vec::new());
        let remaining_folders = MAX_VISITED_FOLDERS;
        let has_more_folders = false;
        TargetList { tree, options, cgroups, ports, targets, conflicts, remaining_folders, has_more_folders }
    }

    /// Whether the search has found more targets than the agent applies.
    fn is_full(&self) -> bool {
        self.targets.len() > MAX_ORDERED_TARGETS
    }

    fn finish(mut self) -> (Vec<Target>, Vec<String>) {
        let mut conflicts = Vec::new();
        if self.is_full() {
            self.targets.truncate(MAX_ORDERED_TARGETS);
            conflicts.push(format!(
                "more than {MAX_ORDERED_TARGETS} cgroups and ports match; only the first {MAX_ORDERED_TARGETS} are marked"
            ));
        } else if self.has_more_folders {
            conflicts.push(format!(
                "the patterns of cgroups match too many folders; only the first {MAX_VISITED_FOLDERS} are searched"
            ));
        }
        conflicts.append(&mut self.conflicts);
        conflicts.truncate(MAX_CONFLICTS);
        (self.targets, conflicts)
    }

    /// Adds why traffic of an application is not applied.
    fn add_conflict(&mut self, application: &str, reason: &str) {
        if self.conflicts.len() < MAX_CONFLICTS {
            self.conflicts.push(format!("application {application}: {reason}"));
        }
    }

    fn add_cgroups(&mut self, entry: &'a ApplicationTraffic) {
        let mut patterns = Vec::new();
        for text in &entry.cgroups {
            match cgroup_patterns(text) {
                Some(named) => patterns.extend(named),
                None => {
                    self.add_conflict(&entry.application, &format!("cgroup {text} is not a valid path"));
                }
            }
        }
        // A cgroup covers those below it, so it is found before them.
        patterns.sort_by_key(|pattern| pattern.components().len());
        let tree = self.tree;
        for pattern in &patterns {
            self.add_matches(&entry.application, &tree.root, pattern.components());
        }
    }

    /// Adds the existing cgroups that components of a pattern name below a folder, in the order of their paths.
    fn add_matches(&mut self, application: &'a Arc<str>, folder: &Path, components: &[String]) {
        let wildcard = components.iter().position(|component| component.contains('*'));
        let (names, rest) = components.split_at(wildcard.unwrap_or(components.len()));
        let mut folder = folder.to_owned();
        folder.extend(names);
        if self.is_full() || self.owner(&folder).is_some_and(|(_, name)| *name == **application) {
            return;
        }
        let Some(remaining) = self.remaining_folders.checked_sub(1) else {
            self.has_more_folders = true;
            return;
        };
        self.remaining_folders = remaining;
        match rest {
            [] => self.add_cgroup(application, folder),
            [component, rest @ ..] => {
                for name in matching_folders(&folder, component, remaining + 1) {
                    self.add_matches(application, &folder.join(name), rest);
                }
            }
        }
    }

    fn add_cgroup(&mut self, application: &'a Arc<str>, path: PathBuf) {
        // The kernel's files in a cgroup are no cgroups.
        let Some(meta) = fs::metadata(&path).ok().filter(fs::Metadata::is_dir) else { return };
        let reason = match self.owner(&path) {
            _ if self.tree.own.as_ref().is_some_and(|own| own.starts_with(&path)) => {
                "contains the agent".to_owned()
            }
            Some((owned, name)) if owned == path || self.is_inside_option(&path) => {
                format!("overlaps with application {name}")
            }
            _ => {
                self.cgroups.insert(path.clone(), application);
                let application = Arc::clone(application);
                self.targets.push(Target { application, id: meta.ino(), path, port: None });
                return;
            }
        };
        let name = path.strip_prefix(&self.tree.root).unwrap_or(&path);
        self.add_conflict(application, &format!("cgroup {} {reason}", name.display()));
    }

    /// The innermost known cgroup that is or contains this one, and its application.
    fn owner(&self, path: &Path) -> Option<(&Path, &'a str)> {
        let known = path.ancestors().find_map(|outer| self.cgroups.get_key_value(outer));
        known.map(|(owned, &name)| (owned.as_path(), name))
    }

    /// Whether a cgroup of an option contains this one.
    fn is_inside_option(&self, path: &Path) -> bool {
        self.options.iter().any(|option| option.port.is_none() && path.starts_with(&option.path))
    }

    fn add_port(&mut self, application: &'a Arc<str>, port: u16) {
        match self.ports.get(&port) {
            Some(name) if **name == **application => {}
            Some(name) => {
                let reason = format!("port {port} belongs to application {name}");
                self.add_conflict(application, &reason);
            }
            None if self.is_full() => {}
            None => {
                self.ports.insert(port, application);
                self.targets.push(Target {
                    application: Arc::clone(application),
                    id: port_application_id(port),
                    path: PathBuf::new(),
                    port: Some(port),
                });
            }
        }
    }
}

/// The names of folders in a folder that match, the first ones in their order.
fn matching_folders(folder: &Path, component: &str, max_count: usize) -> Vec<OsString> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let is_match = |entry: &fs::DirEntry| {
        entry.file_name().to_str().is_some_and(|name| matches_component(component, name))
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
    };
    let mut names: Vec<OsString> =
        entries.flatten().filter(is_match).map(|entry| entry.file_name()).collect();
    names.sort();
    names.truncate(max_count);
    names
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A folder in place of the root of the cgroups, with these cgroups.
    fn tree(cgroups: &[&str]) -> (TempDir, CgroupTree) {
        // In memory, as cgroups are: some disks need milliseconds for each folder.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        cgroups.iter().for_each(|cgroup| fs::create_dir_all(folder.path().join(cgroup)).unwrap());
        let tree =
            CgroupTree { root: folder.path().to_owned(), own: Some(folder.path().join("system.slice/weir")) };
        (folder, tree)
    }

    fn traffic(application: &str, cgroups: &[&str], ports: &[u16]) -> ApplicationTraffic {
        let cgroups = cgroups.iter().map(|&cgroup| cgroup.to_owned()).collect();
        ApplicationTraffic { application: application.into(), cgroups, ports: ports.to_vec() }
    }

    /// Each target as `APPLICATION=PATH` or `APPLICATION=PORT`.
    fn describe(tree: &CgroupTree, targets: &[Target]) -> Vec<String> {
        let describe = |target: &Target| match target.port {
            Some(port) => format!("{}={port}", target.application),
            None => {
                format!("{}={}", target.application, target.path.strip_prefix(&tree.root).unwrap().display())
            }
        };
        targets.iter().map(describe).collect()
    }

    #[test]
    fn patterns_find_cgroups_when_they_appear() {
        let (folder, tree) =
            tree(&["system.slice/job-1.service", "system.slice/web.service", "a/x", "b/x", "b/y"]);
        // A file of the kernel is no cgroup.
        fs::write(folder.path().join("system.slice/job-9.service"), "").unwrap();
        let ordered = [
            traffic("job", &["system.slice/job-*.service"], &[]),
            traffic("late", &["late.slice"], &[]),
            traffic("x", &["*/x"], &[]),
        ];
        let (targets, conflicts) = tree.find_targets(&ordered, &[]);
        assert_eq!(describe(&tree, &targets), ["job=system.slice/job-1.service", "x=a/x", "x=b/x"]);
        assert_eq!(conflicts, Vec::<String>::new());
        let inode = fs::metadata(folder.path().join("a/x")).unwrap().ino();
        assert_eq!(
            (targets[1].id, targets[1].rule().to_string()),
            (inode, format!("x={}/a/x", tree.root.display()))
        );

        fs::create_dir_all(folder.path().join("system.slice/job-2.service")).unwrap();
        fs::create_dir_all(folder.path().join("late.slice")).unwrap();
        fs::remove_dir(folder.path().join("b/x")).unwrap();
        let (targets, _) = tree.find_targets(&ordered, &[]);
        assert_eq!(
            describe(&tree, &targets),
            ["job=system.slice/job-1.service", "job=system.slice/job-2.service", "late=late.slice", "x=a/x"]
        );
    }

    #[test]
    fn options_and_the_agent_itself_are_never_claimed() {
        let (_folder, tree) = tree(&["system.slice/weir", "system.slice/web/part", "batch/sort", "free"]);
        let options = [
            OptionTarget { name: "web".to_owned(), path: tree.root.join("system.slice/web"), port: None },
            OptionTarget { name: "dns".to_owned(), path: PathBuf::new(), port: Some(53) },
        ];
        let ordered = [
            traffic("all", &["system.slice"], &[]),
            traffic("bad", &["../free", "/", "free"], &[]),
            traffic("dns", &["free"], &[]),
            traffic("part", &["system.slice/web/*"], &[53, 80]),
            traffic("same", &["batch", "batch/sort"], &[80]),
            traffic("sort", &["batch/*"], &[]),
        ];
        let (targets, conflicts) = tree.find_targets(&ordered, &options);
        assert_eq!(describe(&tree, &targets), ["bad=free", "part=80", "same=batch", "sort=batch/sort"]);
        assert_eq!(
            conflicts,
            [
                "application all: cgroup system.slice contains the agent",
                "application bad: cgroup ../free is not a valid path",
                "application bad: cgroup / is not a valid path",
                "application dns: the agent's options define it",
                "application part: cgroup system.slice/web/part overlaps with application web",
                "application part: port 53 belongs to application dns",
                "application same: port 80 belongs to application part",
            ]
        );
    }

    #[test]
    fn cgroup_covers_those_below_it_in_any_order() {
        let (_folder, tree) = tree(&["batch/sort/part", "batch/web", "other/sort"]);
        let orders = [
            ["batch", "batch/sort", "*/sort/part"],
            ["batch/sort", "*/sort/part", "batch"],
            ["*/sort/part", "batch", "batch/sort"],
            ["batch/*", "batch/sort", "batch"],
        ];
        for cgroups in orders {
            let (targets, conflicts) = tree.find_targets(&[traffic("job", &cgroups, &[])], &[]);
            assert_eq!((describe(&tree, &targets), conflicts), (vec!["job=batch".to_owned()], vec![]));
        }
    }

    #[test]
    fn pods_are_found_under_both_drivers() {
        let slice = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_a.slice";
        let (_folder, tree) =
            tree(&[&format!("{slice}/cri-1.scope"), "kubepods/besteffort/pod2-b/c", "kubepods/pod3"]);
        let ordered = [traffic("web", &["pod:1-a", "pod:2-b", "pod:3", "pod:4"], &[])];
        let (targets, conflicts) = tree.find_targets(&ordered, &[]);
        let expected = [
            "web=kubepods/pod3".to_owned(),
            format!("web={slice}"),
            "web=kubepods/besteffort/pod2-b".to_owned(),
        ];
        assert_eq!((describe(&tree, &targets), conflicts), (expected.to_vec(), vec![]));
    }

    #[test]
    fn cgroups_of_applications_nest_and_one_cgroup_belongs_to_the_first() {
        let (_folder, tree) = tree(&["batch/sort/part", "batch/web", "other/sort"]);
        let ordered =
            [traffic("a", &["batch/sort"], &[]), traffic("b", &["batch", "*/sort", "*/sort/part"], &[])];
        let (targets, conflicts) = tree.find_targets(&ordered, &[]);
        assert_eq!(
            describe(&tree, &targets),
            ["a=batch/sort", "b=batch", "b=other/sort", "b=batch/sort/part"]
        );
        assert_eq!(conflicts, ["application b: cgroup batch/sort overlaps with application a"]);
        // A cgroup of an option can be inside that of an order, and not around it.
        let option = OptionTarget { name: "o".to_owned(), path: tree.root.join("batch/sort"), port: None };
        let ordered = [traffic("a", &["batch", "batch/sort/part"], &[])];
        let (targets, conflicts) = tree.find_targets(&ordered, &[option]);
        assert_eq!(describe(&tree, &targets), ["a=batch"]);
        assert_eq!(conflicts, ["application a: cgroup batch/sort/part overlaps with application o"]);
    }

    /// The names of this many cgroups, in their order.
    fn names(count: usize) -> Vec<String> {
        (0..count).map(|at| format!("jobs/job-{at:04}")).collect()
    }

    #[test]
    fn search_stops_beyond_the_maximum_of_targets() {
        let names = names(MAX_ORDERED_TARGETS + 1);
        let (_folder, tree) = tree(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let options = [];
        let mut found = TargetList::new(&tree, &options);
        let entry = traffic("job", &["jobs/job-*"], &[7]);
        found.add_cgroups(&entry);
        // The folder `jobs`, and one for each target.
        assert_eq!(MAX_VISITED_FOLDERS - found.remaining_folders, MAX_ORDERED_TARGETS + 2);
        let (targets, conflicts) = tree.find_targets(&[entry], &[]);
        let expected: Vec<String> =
            names[..MAX_ORDERED_TARGETS].iter().map(|name| format!("job={name}")).collect();
        assert_eq!(describe(&tree, &targets), expected);
        assert_eq!(conflicts, ["more than 128 cgroups and ports match; only the first 128 are marked"]);
    }

    #[test]
    fn thousands_of_matching_cgroups_cost_few_visits_and_few_conflicts() {
        let names = names(MAX_VISITED_FOLDERS + 100);
        let (_folder, tree) = tree(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let (options, entry) = ([], traffic("job", &["jobs/*"], &[]));
        let mut found = TargetList::new(&tree, &options);
        found.add_cgroups(&entry);
        assert_eq!(MAX_VISITED_FOLDERS - found.remaining_folders, MAX_ORDERED_TARGETS + 2);

        // All of them are inside the cgroup of an option.
        let option = OptionTarget { name: "all".to_owned(), path: tree.root.join("jobs"), port: None };
        let (targets, conflicts) = tree.find_targets(&[traffic("job", &["jobs/*"], &[9])], &[option]);
        assert_eq!(describe(&tree, &targets), ["job=9"]);
        assert_eq!(conflicts.len(), MAX_CONFLICTS);
        assert_eq!(
            conflicts[..2],
            [
                "the patterns of cgroups match too many folders; only the first 4096 are searched",
                "application job: cgroup jobs/job-0000 overlaps with application all",
            ]
        );
        // Without a match below them, folders are searched up to the same maximum.
        let (targets, conflicts) = tree.find_targets(&[traffic("job", &["*/*/x"], &[])], &[]);
        assert_eq!((targets.len(), conflicts.len()), (0, 1), "{conflicts:?}");
    }
}
