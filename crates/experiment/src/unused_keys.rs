//! Names the keys of a trace that policies do not use.

use weir_console::policy_spec;
use weir_core::model::CoflowKey;

use crate::source::Source;

/// The keys in which the trace's coflows differ, and which this policy does not use.
pub fn unused_keys(source: &Source, policy: &str) -> Vec<CoflowKey> {
    if source.trace_keys.is_empty() {
        return Vec::new();
    }
    // A policy that does not fit the trace is refused before its replay.
    let built = policy_spec::build_policy(policy, Some(&source.workload.names), &source.sensitivities);
    let is_unused = |key: &CoflowKey| built.as_ref().is_ok_and(|policy| !policy.uses(*key));
    source.trace_keys.iter().copied().filter(is_unused).collect()
}

/// A line for each key that policies do not use, with these policies.
pub fn note<'a>(replays: impl IntoIterator<Item = (&'a Source, &'a str)>) -> String {
    let mut policies_by_key = CoflowKey::ALL.map(|key| (key, Vec::new()));
    for (source, policy) in replays {
        let unused = unused_keys(source, policy);
        for (_, policies) in policies_by_key.iter_mut().filter(|(key, _)| unused.contains(key)) {
            if !policies.contains(&policy) {
                policies.push(policy);
            }
        }
    }
    let lines = policies_by_key.into_iter().filter(|(_, policies)| !policies.is_empty());
    lines
        .map(|(key, policies)| format!("The key `{}` is not used by {}.\n", key.name(), policies.join(", ")))
        .collect()
}
