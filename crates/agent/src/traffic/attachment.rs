//! Pins the links of attached BPF programs and holds them open, so that the agent notices when another process detaches a
//! program.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use aya::programs::links::FdLink;

use super::TrafficError;
use super::folder::{PinFolder, replace_pin};

/// The kernel's descriptions of the open files of this process.
const FDINFO_FOLDER: &str = "/proc/self/fdinfo";

/// A program at a cgroup or an interface.
#[derive(Debug)]
pub(super) struct Attachment {
    link: FdLink,
    /// The kernel's description of the link.
    fdinfo_path: PathBuf,
}

/// The files that show whether a program is still attached and pinned. A read can wait for a kernel lock, so a separate thread reads them.
#[derive(Debug, Clone)]
pub(super) struct AttachmentCheck {
    fdinfo_path: PathBuf,
    pin_path: PathBuf,
}

impl AttachmentCheck {
    pub fn is_intact(&self) -> bool {
        fs::symlink_metadata(&self.pin_path).is_ok()
            && fs::read_to_string(&self.fdinfo_path).is_ok_and(|text| has_target(&text))
    }
}

/// Programs by the names of their files in the folder.
pub(super) type Programs = BTreeMap<String, Attachment>;

impl Attachment {
    /// Pins a link in the folder, in place of one of the same name. Looks at the open files of this process, the newest first.
    ///
    /// # Errors
    /// If the kernel refuses, or does not describe the link.
    pub fn pin<L: TryInto<FdLink>>(folder: &Path, name: &str, link: L) -> Result<Attachment, TrafficError>
    where
        L::Error: std::error::Error,
    {
        let link = link.try_into().map_err(|error| TrafficError::kernel(name, &error))?;
        let link = pin_link(folder, name, link)?;
        let id = link.info().map_err(|error| TrafficError::kernel(name, &error))?.id();
        let fdinfo_path =
            find_fdinfo(id).map_err(|error| TrafficError::file(Path::new(FDINFO_FOLDER), error))?;
        Ok(Attachment { link, fdinfo_path })
    }

    /// Returns the files that show whether the program is attached, and pinned under a name.
    pub fn attachment_check(&self, folder: &PinFolder, name: &str) -> AttachmentCheck {
        AttachmentCheck { fdinfo_path: self.fdinfo_path.clone(), pin_path: folder.path().join(name) }
    }

    /// The number of the program; none if the kernel does not tell it.
    pub fn program_id(&self) -> Option<u32> {
        Some(self.link.info().ok()?.program_id())
    }

    /// Whether the program is attached. It is not if another process detached it, or its cgroup or interface was deleted.
    pub fn is_attached(&self) -> bool {
        fs::read_to_string(&self.fdinfo_path).is_ok_and(|text| has_target(&text))
    }

    /// Pins the link again if its file was deleted, and returns whether it was. Consumes the link.
    ///
    /// # Errors
    /// If the kernel refuses. The link is lost then, and the program is detached.
    pub fn repin(self, folder: &PinFolder, name: &str) -> Result<(Attachment, bool), TrafficError> {
        if folder.contains(name) {
            return Ok((self, false));
        }
        let link = pin_link(folder.path(), name, self.link)?;
        Ok((Attachment { link, fdinfo_path: self.fdinfo_path }, true))
    }
}

/// Pins the link. Its file descriptor stays the same.
fn pin_link(folder: &Path, name: &str, link: FdLink) -> Result<FdLink, TrafficError> {
    let mut pinned_link = None;
    replace_pin(folder, name, |path| {
        let link =
            link.pin(path).map_err(|error| TrafficError::kernel(&path.display().to_string(), &error))?;
        pinned_link = Some(link.into());
        Ok(())
    })?;
    Ok(pinned_link.expect("`replace_pin` returns an error unless it has called the closure"))
}

/// The file that describes the link with this id, which was just opened.
fn find_fdinfo(id: u32) -> std::io::Result<PathBuf> {
    let entries = fs::read_dir(FDINFO_FOLDER)?;
    let mut files: Vec<u32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    // An agent with many links opens a new one at the end.
    files.sort_unstable_by_key(|&file| Reverse(file));
    for file in files {
        let path = Path::new(FDINFO_FOLDER).join(file.to_string());
        // Other threads open and close files meanwhile.
        let describes_link = |text: String| parse_field(&text, "link_id:") == Some(u64::from(id));
        if fs::read_to_string(&path).is_ok_and(describes_link) {
            return Ok(path);
        }
    }
    Err(std::io::Error::other(format!(
        "the kernel does not describe BPF link {id}; expected Linux 6.6 or later"
    )))
}

/// Whether a link's description names a cgroup or an interface.
fn has_target(text: &str) -> bool {
    ["ifindex:", "cgroup_id:"].iter().any(|key| parse_field(text, key).is_some_and(|number| number != 0))
}

/// The number after a key, as in `ifindex:\t7`. The kernel adds a name in parentheses after some numbers.
fn parse_field(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detached_link_has_no_target() {
        let head = "pos:\t0\nflags:\t02000000\nmnt_id:\t16\nino:\t1061\n";
        for (rest, expected) in [
            (
                "link_type:\ttcx\nlink_id:\t9\nprog_tag:\tab\nprog_id:\t11\nifindex:\t7\nattach_type:\t47 (tcx_egress)\n",
                true,
            ),
            (
                "link_type:\ttcx\nlink_id:\t9\nprog_tag:\tab\nprog_id:\t11\nifindex:\t0\nattach_type:\t47 (tcx_egress)\n",
                false,
            ),
            ("link_type:\tcgroup\nlink_id:\t9\ncgroup_id:\t4711\nattach_type:\t3\n", true),
            ("link_type:\tcgroup\nlink_id:\t9\ncgroup_id:\t0\nattach_type:\t3\n", false),
            ("", false),
        ] {
            let text = format!("{head}{rest}");
            assert_eq!(has_target(&text), expected, "{text}");
            assert_eq!(parse_field(&text, "link_id:"), (!rest.is_empty()).then_some(9));
        }
    }
}
