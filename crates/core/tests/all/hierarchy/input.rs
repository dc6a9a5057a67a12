//! Invalid input and its errors.

use weir_core::solve::{Guarantee, HierarchicalMaxMin, HierarchyError, ServiceShares};

use super::INF;

#[test]
fn hierarchy_rejects_invalid_input_and_names_the_expected_values() {
    let text = |e: HierarchyError| e.to_string();
    let zero = text(ServiceShares::weighted(&[1.0, 0.0]).unwrap_err());
    assert_eq!(zero, "service 1: weight 0 is out of range; expected a number from 1e-9 to 1e9");
    assert!(ServiceShares::weighted(&[f64::NAN]).is_err() && ServiceShares::weighted(&[1e300]).is_err());
    assert!(
        ServiceShares::with_excess(&[1.0], &[0.0]).is_ok()
            && ServiceShares::with_excess(&[1.0], &[]).is_err()
    );
    let guarantee = |service, rate| Guarantee { link: 0, service, rate };
    let two = |a, b| ServiceShares::with_guarantees(vec![guarantee(0, a), guarantee(1, b)], &[1.0, 1.0]);
    let beyond = text(HierarchicalMaxMin::new(&[10.0], two(6.0, 5.0).unwrap()).unwrap_err());
    assert_eq!(beyond, "link 0: guarantees sum to 11 B/s; expected at most the capacity of 10 B/s");
    assert!(two(-1.0, 0.0).is_err() && two(INF, 0.0).is_err());
    assert!(ServiceShares::with_guarantees(vec![guarantee(0, 1.0); 2], &[1.0]).is_err());
    assert!(ServiceShares::with_guarantees(vec![guarantee(1, 1.0)], &[1.0]).is_err());
    assert!(HierarchicalMaxMin::new(&[], two(1.0, 1.0).unwrap()).is_err());
    let weighted = ServiceShares::weighted(&[1.0]).unwrap();
    assert!(HierarchicalMaxMin::new(&[-1.0], weighted.clone()).is_err());
    let mut hierarchy = HierarchicalMaxMin::new(&[1.0], weighted).unwrap();
    assert_eq!(
        text(hierarchy.add_class(1, &[0], 1, INF).unwrap_err()),
        "service 1 does not exist; expected a number below 1"
    );
    assert_eq!(
        text(hierarchy.add_class(0, &[7], 1, INF).unwrap_err()),
        "link 7 does not exist; expected a number below 1"
    );
    assert_eq!(
        text(hierarchy.add_class(0, &[0, 0], 1, INF).unwrap_err()),
        "path crosses link 0 twice; expected each link once"
    );
    assert!(
        hierarchy.add_class(0, &[], 1, INF).is_err() && hierarchy.add_class(0, &[0], 1, f64::NAN).is_err()
    );
}
