//! Converts the rules and criteria of an explanation to the names and numbers in its output.

use weir_core::allocation::{OrderCriterion, Rule};

/// The name of a rule in kebab case, such as `work-conservation` for `WorkConservation`.
///
/// The name is part of the output of `weir explain`: renaming a variant of [`Rule`] renames it there.
pub fn rule_name(rule: Rule) -> String {
    let mut name = String::new();
    for c in format!("{rule:?}").chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

/// The number of coflows that a coflow contends with, if its policy orders coflows by contention.
pub fn contending_coflows(criterion: OrderCriterion) -> Option<u32> {
    match criterion {
        OrderCriterion::Contention(others) => Some(others),
        OrderCriterion::Constant | OrderCriterion::DeadlineExpired => None,
    }
}
