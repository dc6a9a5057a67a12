//! Words for what an explanation refers to.

use weir_core::allocation::{OrderCriterion, Rule};

/// `work-conservation` for `WorkConservation`.
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

/// The number of coflows that a coflow contends with, if it is ordered by that.
pub fn contending_coflows(standing: OrderCriterion) -> Option<u32> {
    match standing {
        OrderCriterion::Contention(others) => Some(others),
        OrderCriterion::Constant | OrderCriterion::DeadlineExpired => None,
    }
}
