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
pub struct Class(u8);

impl Class {
    /// The class with this mark (DSCP), 1 to 63; none for other numbers.
    pub const fn new(mark: u8) -> Option<Class> {
        if mark >= 1 && mark as usize <= MAX_SERVICES { Some(Class(mark)) } else { None }
    }

    /// The mark (DSCP).
    pub const fn mark(self) -> u8 {
        self.0
    }

    /// The priority (`skb->priority`) of the class's packets on their way to the interface.
    pub const fn priority(self) -> u32 {
        FIRST + self.0 as u32 - 1
    }
}

/// The priority of the first class.
pub(super) const FIRST: u32 = (ids::ROOT as u32) << 16 | ids::MARKS as u32;

impl FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Class, String> {
        let mark = text.parse().ok().and_then(Class::new);
        mark.ok_or_else(|| format!("class `{text}`: expected a whole number from 1 to {MAX_SERVICES}"))
    }
}

/// Which traffic belongs to an application, and the class of its packets: `NAME=CGROUP[:CLASS]` or `NAME=port/PORT[:CLASS]`. A number
/// after the last colon is the class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The name of the application.
    pub name: String,
    /// The folder of the cgroup; a relative path starts at the root of the cgroups. For a port, the path is empty and means that root.
    pub cgroup: PathBuf,
    /// The TCP or UDP port, at either end, if the application is a port. It applies to packets that no cgroup has a class for.
    pub port: Option<u16>,
    /// The class of all packets; none if orders set it.
    pub class: Option<Class>,
}

/// The number of the root cgroup.
const ROOT: u64 = 1;

/// The prefix of a rule for a port.
const PORT: &str = "port/";

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
                "`{text}`: expected NAME=CGROUP or NAME=CGROUP:CLASS, as in web=system.slice/web:2, or a port, as in web=port/8080:2"
            )
        })?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            return Err(format!("name `{name}`: expected 1 to 64 letters, digits, `_`, `-` or `.`"));
        }
        let class = class.map(str::parse).transpose()?;
        let port = cgroup.strip_prefix(PORT).map(|port| {
            let number = port.parse::<u16>().ok().filter(|&number| number > 0);
            number.ok_or_else(|| format!("port `{port}`: expected a whole number from 1 to 65535"))
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
            Some(port) => write!(f, "{}={PORT}{port}", self.name)?,
        }
        self.class.map_or(Ok(()), |class| write!(f, ":{}", class.mark()))
    }
}

/// An existing cgroup.
#[derive(Debug)]
pub(super) struct Cgroup {
    /// The path, without symbolic links.
    pub path: PathBuf,
    /// The kernel's number, which is never reused. For a port, a number that no cgroup has (`bpf/interface.c`): only the root's low part
    /// is 1.
    pub id: u64,
    /// The port, if the application is a port.
    pub port: Option<u16>,
    /// The open folder.
    pub folder: File,
}

impl Cgroup {
    /// Opens the cgroup of an application.
    pub fn of(rule: &Rule) -> Result<Cgroup, TrafficError> {
        let cgroup = Cgroup::open(&rule.cgroup)?;
        if rule.port.is_some() && cgroup.id != ROOT {
            let why = "expected the root of all cgroups, since an application is a port; inside a container it may be another";
            return Err(TrafficError::file(&cgroup.path, io::Error::other(why)));
        }
        let id = rule.port.map_or(cgroup.id, |port| u64::from(port) << 48 | ROOT);
        Ok(Cgroup { id, port: rule.port, ..cgroup })
    }

    fn open(path: &Path) -> Result<Cgroup, TrafficError> {
        let failed = |error| TrafficError::file(path, error);
        let whole = match path.is_absolute() {
            true => path.to_owned(),
            false => cgroups()?.join(path),
        };
        let whole = whole.canonicalize().map_err(|error| TrafficError::file(&whole, error))?;
        let folder = File::open(&whole).map_err(failed)?;
        let kind = fstatfs(&folder).map_err(|error| failed(error.into()))?.filesystem_type();
        if kind != CGROUP2_SUPER_MAGIC {
            return Err(failed(io::Error::other("expected a folder of cgroups, version 2")));
        }
        let meta = folder.metadata().map_err(failed)?;
        if !meta.is_dir() {
            return Err(failed(io::Error::other("expected a folder")));
        }
        Ok(Cgroup { path: whole, id: meta.ino(), port: None, folder })
    }
}

/// Returns the root of the cgroups of version 2.
///
/// # Errors
/// If none is mounted, or the list of mounts cannot be read.
pub fn cgroups() -> Result<PathBuf, TrafficError> {
    let mounts = Path::new("/proc/self/mountinfo");
    let text = fs::read_to_string(mounts).map_err(|error| TrafficError::file(mounts, error))?;
    root(&text).ok_or(TrafficError::NoCgroups)
}

/// Finds the root in the text of `/proc/self/mountinfo`.
fn root(mounts: &str) -> Option<PathBuf> {
    let place = mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let place = mount.split(' ').nth(4)?;
        kind.starts_with("cgroup2 ").then_some(place)
    })?;
    // The characters that mountinfo escapes.
    Some(place.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\").into())
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
        assert_eq!(root(mounts), Some("/sys/fs/cgroup/uni fied".into()));
        assert_eq!(root("37 31 0:36 / /cgroup2 rw - cgroup cgroup2 rw\n"), None);
    }

    #[test]
    fn rules_survive_parsing_and_formatting() {
        let rule: Rule = "web=a/cri:x.scope:63".parse().unwrap();
        let (cgroup, class) = ("a/cri:x.scope".into(), Class::new(63));
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
        for (text, said) in [
            (
                "web",
                "`web`: expected NAME=CGROUP or NAME=CGROUP:CLASS, as in web=system.slice/web:2, or a port, as in web=port/8080:2",
            ),
            (
                "web=",
                "`web=`: expected NAME=CGROUP or NAME=CGROUP:CLASS, as in web=system.slice/web:2, or a port, as in web=port/8080:2",
            ),
            (
                "web=:1",
                "`web=:1`: expected NAME=CGROUP or NAME=CGROUP:CLASS, as in web=system.slice/web:2, or a port, as in web=port/8080:2",
            ),
            ("web=port/0", "port `0`: expected a whole number from 1 to 65535"),
            ("web=port/65536:1", "port `65536`: expected a whole number from 1 to 65535"),
            ("=a:1", "name ``: expected 1 to 64 letters, digits, `_`, `-` or `.`"),
            ("web=a:0", "class `0`: expected a whole number from 1 to 63"),
            ("web=a:64", "class `64`: expected a whole number from 1 to 63"),
        ] {
            assert_eq!(text.parse::<Rule>(), Err(said.to_owned()));
        }
    }
}
