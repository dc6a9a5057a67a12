//! Finds the cgroups and ports of the traffic that a coordinator orders for applications.
//!
//! Orders name cgroups by patterns, so cgroups that are created later belong to an application from the next search on. Options count
//! more than orders: their applications, cgroups and ports are never touched.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_proto::{ApplicationTraffic, CgroupPattern, matches_component};

use super::cgroup::{Rule, port_application_id};

/// The maximum number of cgroups and ports by orders. Each cgroup has two BPF programs.
pub const MAX_ORDERED_TARGETS: usize = 128;

/// The maximum number of folders that a pattern may match at each of its components.
const MAX_MATCHES: usize = 1024;

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
#[derive(Debug, Clone, Copy)]
pub(super) struct OptionTarget<'a> {
    /// The application.
    pub name: &'a str,
    /// The folder of the cgroup, without symbolic links.
    pub path: &'a Path,
    /// The port; none for a cgroup.
    pub port: Option<u16>,
}

/// Why a target of an order is not applied, for a conflict.
pub(super) fn conflict_text(application: &str, target: &str, reason: &str) -> String {
    format!("application {application}: {target} {reason}")
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
    /// The targets of orders that exist now, and the conflicts of those that are not applied, each with its reason. Reads a folder for each
    /// component with a `*`.
    pub fn find_targets(
        &self,
        ordered: &[ApplicationTraffic],
        options: &[OptionTarget<'_>],
    ) -> (Vec<Target>, Vec<String>) {
        let (mut targets, mut conflicts) = (Vec::new(), Vec::new());
        for entry in ordered {
            if options.iter().any(|option| *option.name == *entry.application) {
                conflicts.push(format!("application {}: the agent's options define it", entry.application));
                continue;
            }
            self.add_cgroups(entry, options, &mut targets, &mut conflicts);
            add_ports(entry, options, &mut targets, &mut conflicts);
        }
        if targets.len() > MAX_ORDERED_TARGETS {
            let count = targets.len();
            conflicts.push(format!(
                "{count} cgroups and ports match; only the first {MAX_ORDERED_TARGETS} are marked"
            ));
            targets.truncate(MAX_ORDERED_TARGETS);
        }
        (targets, conflicts)
    }

    fn add_cgroups(
        &self,
        entry: &ApplicationTraffic,
        options: &[OptionTarget<'_>],
        targets: &mut Vec<Target>,
        conflicts: &mut Vec<String>,
    ) {
        let application = &entry.application;
        for text in &entry.cgroups {
            let Some(pattern) = CgroupPattern::parse(text) else {
                conflicts.push(conflict_text(application, &format!("cgroup {text}"), "is not a valid path"));
                continue;
            };
            for path in self.find_cgroups(&pattern) {
                // The cgroup was deleted meanwhile.
                let Ok(id) = fs::metadata(&path).map(|meta| meta.ino()) else { continue };
                let target = Target { application: Arc::clone(application), id, path, port: None };
                match self.overlap(&target, options, targets) {
                    Overlap::None => targets.push(target),
                    Overlap::Same => {}
                    Overlap::Other(reason) => {
                        let name = target.path.strip_prefix(&self.root).unwrap_or(&target.path);
                        conflicts.push(conflict_text(
                            application,
                            &format!("cgroup {}", name.display()),
                            &reason,
                        ));
                    }
                }
            }
        }
    }

    /// What a cgroup overlaps with: its traffic would count twice, or the agent would mark its own.
    fn overlap(&self, target: &Target, options: &[OptionTarget<'_>], targets: &[Target]) -> Overlap {
        if self.own.as_ref().is_some_and(|own| own.starts_with(&target.path)) {
            return Overlap::Other("contains the agent".to_owned());
        }
        let overlaps = |path: &Path| target.path.starts_with(path) || path.starts_with(&target.path);
        let with_option = options.iter().find(|option| option.port.is_none() && overlaps(option.path));
        let with_target = || targets.iter().find(|other| other.port.is_none() && overlaps(&other.path));
        match with_option.map(|option| option.name).or_else(|| with_target().map(|other| &*other.application))
        {
            None => Overlap::None,
            Some(name) if *name == *target.application => Overlap::Same,
            Some(name) => Overlap::Other(format!("overlaps with application {name}")),
        }
    }

    /// The existing cgroups of a pattern, sorted.
    fn find_cgroups(&self, pattern: &CgroupPattern) -> Vec<PathBuf> {
        let mut found = vec![self.root.clone()];
        for component in pattern.components() {
            found = match component.contains('*') {
                false => found.into_iter().map(|folder| folder.join(component)).collect(),
                true => found
                    .iter()
                    .flat_map(|folder| matching_folders(folder, component))
                    .take(MAX_MATCHES)
                    .collect(),
            };
        }
        found.retain(|path| path.is_dir());
        found.sort();
        found
    }
}

/// The result of a search for other applications with the same traffic.
enum Overlap {
    None,
    /// With a target of the same application.
    Same,
    /// With the agent or another application: the reason of the conflict.
    Other(String),
}

fn add_ports(
    entry: &ApplicationTraffic,
    options: &[OptionTarget<'_>],
    targets: &mut Vec<Target>,
    conflicts: &mut Vec<String>,
) {
    let application = &entry.application;
    for &port in &entry.ports {
        let of_option = options.iter().find(|option| option.port == Some(port)).map(|option| option.name);
        let of_target =
            || targets.iter().find(|other| other.port == Some(port)).map(|other| &*other.application);
        match of_option.or_else(of_target) {
            Some(name) if *name == **application => {}
            Some(name) => conflicts.push(conflict_text(
                application,
                &format!("port {port}"),
                &format!("belongs to application {name}"),
            )),
            None => targets.push(Target {
                application: Arc::clone(application),
                id: port_application_id(port),
                path: PathBuf::new(),
                port: Some(port),
            }),
        }
    }
}

/// The folders in a folder whose names match.
fn matching_folders(folder: &Path, component: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let is_match = |entry: &fs::DirEntry| {
        entry.file_name().to_str().is_some_and(|name| matches_component(component, name))
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
    };
    entries.flatten().filter(is_match).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A folder in place of the root of the cgroups, with these cgroups.
    fn tree(cgroups: &[&str]) -> (TempDir, CgroupTree) {
        let folder = tempfile::tempdir().unwrap();
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
        let path = tree.root.join("system.slice/web");
        let options = [
            OptionTarget { name: "web", path: &path, port: None },
            OptionTarget { name: "dns", path: Path::new(""), port: Some(53) },
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
        assert_eq!(describe(&tree, &targets), ["bad=free", "part=80", "same=batch"]);
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
                "application sort: cgroup batch/sort overlaps with application same",
            ]
        );
    }

    #[test]
    fn number_of_targets_is_limited() {
        let names: Vec<String> = (0..=MAX_ORDERED_TARGETS).map(|at| format!("job-{at:03}")).collect();
        let (_folder, tree) = tree(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let (targets, conflicts) = tree.find_targets(&[traffic("job", &["job-*"], &[])], &[]);
        assert_eq!(targets.len(), MAX_ORDERED_TARGETS);
        assert_eq!(conflicts, ["129 cgroups and ports match; only the first 128 are marked"]);
    }
}
