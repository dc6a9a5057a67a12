//! Defines which traffic of unmodified programs belongs to an application: that of cgroups, and of TCP and UDP ports.

use std::fmt;
use std::sync::Arc;

/// The maximum number of components of a [`CgroupPattern`].
const MAX_COMPONENTS: usize = 16;

/// The maximum number of components with a `*`, which bounds the folders that an agent reads.
const MAX_WILDCARD_COMPONENTS: usize = 2;

/// The maximum length of a component, in bytes: that of a file name.
const MAX_COMPONENT_BYTES: usize = 255;

/// The maximum length of the UID of a pod.
const MAX_POD_UID_BYTES: usize = 64;

/// The start of the text of a pod in the place of a cgroup's path ([`pod_rule`]).
const POD_PREFIX: &str = "pod:";

/// What [`pod_rule`] accepts.
pub const EXPECTED_POD: &str = "the UID of a pod, such as 2f0e7a50-4f2c-4d6b-9c8e-0a1b2c3d4e5f: 1 to 64 lower-case letters, digits and `-`";

/// The traffic of an application at a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplicationTraffic {
    /// The name of the application, which is an id ([`is_id`](crate::is_id)).
    pub application: Arc<str>,
    /// The cgroups whose packets belong to the application, with the cgroups below them: texts that [`cgroup_patterns`] accepts, without
    /// spaces. An agent reports those that it does not understand as conflicts.
    pub cgroups: Vec<String>,
    /// The TCP and UDP ports, at either end, of packets that no cgroup has a class for; above 0.
    pub ports: Vec<u16>,
}

/// The paths of cgroups, from the root of the cgroups of version 2, such as `system.slice/job-*.service`. In a component, `*` stands for
/// any characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupPattern(Vec<String>);

impl CgroupPattern {
    /// What [`CgroupPattern::parse`] accepts.
    pub const EXPECTED: &str = "a path below the root of the cgroups, such as system.slice/job-*.service: 1 to 16 components of at most 255 \
        printable characters, none of them `.` or `..`, at most two with `*`, without a `/` at the start or end";

    /// What [`CgroupPattern::from_slice`] accepts.
    pub const EXPECTED_SLICE: &str = "the name of a slice below the root slice, such as batch.slice or batch-sort.slice, without `/` and `*`";

    /// The pattern with this text; none if the text is invalid.
    pub fn parse(text: &str) -> Option<CgroupPattern> {
        let components: Vec<String> = text.split('/').map(str::to_owned).collect();
        let is_valid = |component: &String| {
            (1..=MAX_COMPONENT_BYTES).contains(&component.len())
                && component.bytes().all(|c| c.is_ascii_graphic())
                && component != "."
                && component != ".."
        };
        let wildcards = components.iter().filter(|component| component.contains('*')).count();
        let is_pattern = components.len() <= MAX_COMPONENTS
            && wildcards <= MAX_WILDCARD_COMPONENTS
            && components.iter().all(is_valid);
        is_pattern.then_some(CgroupPattern(components))
    }

    /// The cgroup of a systemd slice: `a-b.slice` is in `a.slice`. None if the name is invalid, or that of the root slice.
    pub fn from_slice(name: &str) -> Option<CgroupPattern> {
        let prefix = name.strip_suffix(".slice").filter(|prefix| !prefix.contains(['/', '*']))?;
        let parts: Vec<&str> = prefix.split('-').collect();
        if parts.iter().any(|part| part.is_empty()) {
            return None;
        }
        let slices = (1..=parts.len()).map(|depth| format!("{}.slice", parts[..depth].join("-")));
        CgroupPattern::parse(&slices.collect::<Vec<_>>().join("/"))
    }

    /// The components of the path, each a pattern of [`matches_component`].
    pub fn components(&self) -> &[String] {
        &self.0
    }
}

/// The text of a pod with a UID, for an order; none if the UID is invalid.
pub fn pod_rule(uid: &str) -> Option<String> {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_uid = (1..=MAX_POD_UID_BYTES).contains(&uid.len()) && uid.bytes().all(is_allowed);
    is_uid.then(|| format!("{POD_PREFIX}{uid}"))
}

/// The cgroups that the text of a cgroup or pod names; none if the text is invalid. The kubelet places a pod in one of six, by its driver
/// (systemd or cgroupfs) and the pod's class of service (guaranteed, burstable or best-effort).
pub fn cgroup_patterns(text: &str) -> Option<Vec<CgroupPattern>> {
    let Some(uid) = text.strip_prefix(POD_PREFIX) else { return Some(vec![CgroupPattern::parse(text)?]) };
    pod_rule(uid)?;
    // The systemd driver replaces `-`, which would separate slices.
    let slice = uid.replace('-', "_");
    let paths = [
        format!("kubepods.slice/kubepods-pod{slice}.slice"),
        format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice"),
        format!("kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{slice}.slice"),
        format!("kubepods/pod{uid}"),
        format!("kubepods/burstable/pod{uid}"),
        format!("kubepods/besteffort/pod{uid}"),
    ];
    paths.iter().map(|path| CgroupPattern::parse(path)).collect()
}

impl fmt::Display for CgroupPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("/"))
    }
}

/// Whether a name matches a pattern, in which `*` stands for any characters. O(pattern x name).
pub fn matches_component(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut matched) = (0, 0);
    // The position after the last `*`, and the number of bytes that the part before it has matched.
    let mut retry: Option<(usize, usize)> = None;
    while matched < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                retry = Some((at, matched));
            }
            Some(byte) if *byte == name[matched] => (at, matched) = (at + 1, matched + 1),
            _ => match &mut retry {
                // The `*` stands for one more byte.
                Some((after_star, end)) => {
                    *end += 1;
                    (at, matched) = (*after_star, *end);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_paths_below_the_root() {
        let long = "a".repeat(256);
        for bad in
            ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a b", "a\u{7}", "é", "*/*/*", &long]
        {
            assert_eq!(CgroupPattern::parse(bad), None, "{bad}");
        }
        assert_eq!(CgroupPattern::parse(&["a"; 17].join("/")), None);
        for good in ["a", "*", "system.slice/job-*.service", "a/cri:x.scope", "..a/a..", &["a"; 16].join("/")]
        {
            assert_eq!(CgroupPattern::parse(good).unwrap().to_string(), good);
        }
    }

    #[test]
    fn slices_are_nested_by_their_names() {
        let path = |name| CgroupPattern::from_slice(name).map(|pattern| pattern.to_string());
        assert_eq!(path("batch.slice").as_deref(), Some("batch.slice"));
        assert_eq!(path("a-b-c.slice").as_deref(), Some("a.slice/a-b.slice/a-b-c.slice"));
        for bad in [
            "-.slice",
            ".slice",
            "batch",
            "a--b.slice",
            "a-.slice",
            "a.slice/b.slice",
            "a*.slice",
            "a b.slice",
        ] {
            assert_eq!(path(bad), None, "{bad}");
        }
    }

    #[test]
    fn pods_have_a_cgroup_for_each_driver_and_class_of_service() {
        let rule = pod_rule("2f0e-7a50").unwrap();
        let paths = cgroup_patterns(&rule).unwrap();
        let texts: Vec<String> = paths.iter().map(CgroupPattern::to_string).collect();
        assert_eq!(
            texts,
            [
                "kubepods.slice/kubepods-pod2f0e_7a50.slice",
                "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2f0e_7a50.slice",
                "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod2f0e_7a50.slice",
                "kubepods/pod2f0e-7a50",
                "kubepods/burstable/pod2f0e-7a50",
                "kubepods/besteffort/pod2f0e-7a50",
            ]
        );
        for bad in ["", "2F", "a/b", "a*", "a b", "..", &"a".repeat(65)] {
            assert_eq!((pod_rule(bad), cgroup_patterns(&format!("pod:{bad}"))), (None, None), "{bad}");
        }
        assert_eq!(cgroup_patterns("a/b").unwrap(), [CgroupPattern::parse("a/b").unwrap()]);
        assert_eq!(cgroup_patterns("a//b"), None);
    }

    #[test]
    fn star_stands_for_any_characters() {
        for (pattern, name, expected) in [
            ("job-*.service", "job-17.service", true),
            ("job-*.service", "job-.service", true),
            ("job-*.service", "job-17.scope", false),
            ("job-*.service", "a-job-17.service", false),
            ("*", "anything", true),
            ("**", "", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXcYb", false),
            ("a", "a", true),
            ("a", "ab", false),
            ("", "", true),
        ] {
            assert_eq!(matches_component(pattern, name), expected, "{pattern} {name}");
        }
    }
}
