//! Parses the rules that define applications, and finds their cgroups.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, fstatfs};

use super::TrafficError;
use crate::htb::MAX_SERVICES;
use crate::queues::ids;

/// A class of traffic. Each port maps the mark of a class to one of its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrafficClass(u8);

impl TrafficClass {
    /// The class with this mark (DSCP), 1 to 63; none for other numbers.
    pub const fn new(mark: u8) -> Option<TrafficClass> {
        if mark >= 1 && mark as usize <= MAX_SERVICES { Some(TrafficClass(mark)) } else { None }
    }

    /// The mark (DSCP).
    pub const fn mark(self) -> u8 {
        self.0
    }

    /// The class with this priority; none for other priorities.
    pub(super) fn from_priority(priority: u32) -> Option<TrafficClass> {
        let number = priority.checked_sub(FIRST_PRIORITY)?.checked_add(1)?;
        u8::try_from(number).ok().and_then(TrafficClass::new)
    }

    /// The priority (`skb->priority`) of the class's packets on their way to the interface.
    pub const fn priority(self) -> u32 {
        FIRST_PRIORITY + self.0 as u32 - 1
    }
}

/// The priority of the first class.
pub(super) const FIRST_PRIORITY: u32 = (ids::ROOT_HANDLE as u32) << 16 | ids::FIRST_MARK_PRIORITY as u32;

impl FromStr for TrafficClass {
    type Err = String;

    fn from_str(text: &str) -> Result<TrafficClass, String> {
        let mark = text.parse().ok().and_then(TrafficClass::new);
        mark.ok_or_else(|| {
            format!("class `{text}` is invalid; expected a whole number from 1 to {MAX_SERVICES}")
        })
    }
}

/// Which traffic belongs to an application, and the class of its packets: `NAME=CGROUP[:CLASS]` or `NAME=port/PORT[:CLASS]`. A number
/// after the last colon is the class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The name of the application.
    pub name: String,
    /// The folder of the cgroup. A relative path starts at the root of the cgroups. For a port, the path is empty: the root.
    pub cgroup: PathBuf,
    /// The TCP or UDP port, at either end, if the application is a port. It applies to packets that no cgroup has a class for.
    pub port: Option<u16>,
    /// The class of all packets; none if orders set it.
    pub class: Option<TrafficClass>,
}

/// The number of the root cgroup.
const ROOT_CGROUP_ID: u64 = 1;

/// The prefix of a rule for a port.
const PORT_PREFIX: &str = "port/";

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        let is_class = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        let parts = text.split_once('=').map(|(name, rest)| match rest.rsplit_once(':') {
            Some((cgroup, class)) if is_class(class) => (name, cgroup, Some(class)),
            _ => (name, rest, None),
        });
        let (name, cgroup, class) = parts.filter(|(_, cgroup, _)| !cgroup.is_empty()).ok_or_else(|| {
            format!(
                "application `{text}` is invalid; expected NAME=CGROUP[:CLASS], such as web=system.slice/web:2, or NAME=port/PORT[:CLASS], such as web=port/8080:2"
            )
        })?;
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_allowed) {
            return Err(format!(
                "name `{name}` is invalid; expected 1 to 64 letters, digits, `_`, `-` or `.`"
            ));
        }
        let class = class.map(str::parse).transpose()?;
        let port = cgroup.strip_prefix(PORT_PREFIX).map(|port| {
            let number = port.parse::<u16>().ok().filter(|&number| number > 0);
            number.ok_or_else(|| format!("port `{port}` is invalid; expected a whole number from 1 to 65535"))
        });
        let port = port.transpose()?;
        let cgroup = if port.is_some() { PathBuf::new() } else { cgroup.into() };
        Ok(Rule { name: name.to_owned(), cgroup, port, class })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            None => write!(f, "{}={}", self.name, self.cgroup.display())?,
            Some(port) => write!(f, "{}={PORT_PREFIX}{port}", self.name)?,
        }
        self.class.map_or(Ok(()), |class| write!(f, ":{}", class.mark()))
    }
}

/// An existing cgroup.
#[derive(Debug)]
pub(super) struct Cgroup {
    /// The path, without symbolic links.
    pub path: PathBuf,
    /// The kernel's number, which is never reused. For a port, `port << 48 | 1` (as in `bpf/interface.c`): no cgroup has this number, since
    /// the root is the only cgroup whose low 32 bits are 1.
    pub id: u64,
    /// The port, if the application is a port.
    pub port: Option<u16>,
    /// The open folder.
    pub folder: File,
}

/// The number of an application that is a port, in place of a cgroup's.
pub(super) fn port_application_id(port: u16) -> u64 {
    u64::from(port) << 48 | ROOT_CGROUP_ID
}

impl Cgroup {
    /// Opens the cgroup of an application.
    pub fn open_for(rule: &Rule) -> Result<Cgroup, TrafficError> {
        let Some(port) = rule.port else { return Cgroup::open(&rule.cgroup) };
        let root = Cgroup::open_root()?;
        Ok(Cgroup { id: port_application_id(port), port: Some(port), ..root })
    }

    /// Opens the root of all cgroups.
    pub fn open_root() -> Result<Cgroup, TrafficError> {
        let root = Cgroup::open(Path::new(""))?;
        if root.id != ROOT_CGROUP_ID {
            let message =
                "not the root of all cgroups, as inside a container; help: mount the host's /sys/fs/cgroup";
            return Err(TrafficError::file(&root.path, io::Error::other(message)));
        }
        Ok(root)
    }

    fn open(path: &Path) -> Result<Cgroup, TrafficError> {
        let to_error = |error| TrafficError::file(path, error);
        let full_path = match path.is_absolute() {
            true => path.to_owned(),
            false => find_cgroup_root()?.join(path),
        };
        let full_path = full_path.canonicalize().map_err(|error| TrafficError::file(&full_path, error))?;
        let folder = File::open(&full_path).map_err(to_error)?;
        let fs_type = fstatfs(&folder).map_err(|error| to_error(error.into()))?.filesystem_type();
        if fs_type != CGROUP2_SUPER_MAGIC {
            return Err(to_error(io::Error::other(
                "not a cgroup; expected a folder in a file system of cgroups of version 2",
            )));
        }
        let meta = folder.metadata().map_err(to_error)?;
        if !meta.is_dir() {
            return Err(to_error(io::Error::other("not a folder; expected the folder of a cgroup")));
        }
        Ok(Cgroup { path: full_path, id: meta.ino(), port: None, folder })
    }
}

/// Returns the root of the cgroups of version 2.
///
/// # Errors
/// If none is mounted, or the list of mounts cannot be read.
pub fn find_cgroup_root() -> Result<PathBuf, TrafficError> {
    let mounts = Path::new("/proc/self/mountinfo");
    let text = fs::read_to_string(mounts).map_err(|error| TrafficError::file(mounts, error))?;
    parse_cgroup_root(&text).ok_or(TrafficError::NoCgroups)
}

/// Returns the folder of this process's cgroup below a root; none if it is not known, or outside of the root.
pub(super) fn find_own_cgroup(root: &Path) -> Option<PathBuf> {
    parse_own_cgroup(root, &fs::read_to_string("/proc/self/cgroup").ok()?)
}

/// Finds the cgroup in the text of `/proc/self/cgroup`.
fn parse_own_cgroup(root: &Path, text: &str) -> Option<PathBuf> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    (!path.starts_with("..")).then(|| root.join(path))
}

/// Finds the root in the text of `/proc/self/mountinfo`.
fn parse_cgroup_root(mounts: &str) -> Option<PathBuf> {
    let mount_point = mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mount_point = mount.split(' ').nth(4)?;
        kind.starts_with("cgroup2 ").then_some(mount_point)
    })?;
    // The characters that mountinfo escapes.
    Some(mount_point.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_the_cgroup2_mount() {
        let mounts = "\
37 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw,relatime shared:9 - cgroup2 cgroup2 rw
";
        assert_eq!(parse_cgroup_root(mounts), Some("/sys/fs/cgroup/uni fied".into()));
        assert_eq!(parse_cgroup_root("37 31 0:36 / /cgroup2 rw - cgroup cgroup2 rw\n"), None);
    }

    #[test]
    fn own_cgroup_is_that_of_version_2() {
        let own = |text| parse_own_cgroup(Path::new("/root"), text);
        assert_eq!(
            own("5:cpu:/x\n0::/system.slice/weir.service\n"),
            Some("/root/system.slice/weir.service".into())
        );
        assert_eq!(own("0::/\n"), Some("/root/".into()));
        // The root of a container's cgroups is deeper.
        assert_eq!((own("0::/../other\n"), own("5:cpu:/x\n")), (None, None));
    }

    #[test]
    fn rules_survive_parsing_and_formatting() {
        let rule: Rule = "web=a/cri:x.scope:63".parse().unwrap();
        let (cgroup, class) = ("a/cri:x.scope".into(), TrafficClass::new(63));
        assert_eq!(rule, Rule { name: "web".into(), cgroup, port: None, class });
        let port: Rule = "web=port/8080:63".parse().unwrap();
        assert_eq!(
            (port.port, port.class, port.to_string()),
            (Some(8080), class, "web=port/8080:63".to_owned())
        );
        assert_eq!(rule.to_string(), "web=a/cri:x.scope:63");
        assert_eq!(rule.class.unwrap().priority(), 0x7765_043e);
        let rule: Rule = "web=a/cri:x.scope".parse().unwrap();
        assert_eq!((rule.class, rule.to_string()), (None, "web=a/cri:x.scope".to_owned()));
        for (text, message) in [
            (
                "web",
                "application `web` is invalid; expected NAME=CGROUP[:CLASS], such as web=system.slice/web:2, or NAME=port/PORT[:CLASS], such as web=port/8080:2",
            ),
            (
                "web=",
                "application `web=` is invalid; expected NAME=CGROUP[:CLASS], such as web=system.slice/web:2, or NAME=port/PORT[:CLASS], such as web=port/8080:2",
            ),
            (
                "web=:1",
                "application `web=:1` is invalid; expected NAME=CGROUP[:CLASS], such as web=system.slice/web:2, or NAME=port/PORT[:CLASS], such as web=port/8080:2",
            ),
            ("web=port/0", "port `0` is invalid; expected a whole number from 1 to 65535"),
            ("web=port/65536:1", "port `65536` is invalid; expected a whole number from 1 to 65535"),
            ("=a:1", "name `` is invalid; expected 1 to 64 letters, digits, `_`, `-` or `.`"),
            ("web=a:0", "class `0` is invalid; expected a whole number from 1 to 63"),
            ("web=a:64", "class `64` is invalid; expected a whole number from 1 to 63"),
        ] {
            assert_eq!(text.parse::<Rule>(), Err(message.to_owned()));
        }
    }
}
