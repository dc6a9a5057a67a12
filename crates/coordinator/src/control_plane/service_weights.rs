//! Weights and bandwidths of services, and the services of applications and classes.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::solve::hierarchy::{HierarchyError, ServiceShares};

use crate::service_bandwidth::ServiceBandwidth;

/// Weights and bandwidths of services, and the service of each application.
#[derive(Debug, Clone)]
pub struct ServiceWeights {
    pub(super) shares: ServiceShares,
    pub(super) weights: Vec<f64>,
    /// Whether the lower bound uses the weights of all services (`true`), or of the services with flows on the link.
    pub(super) counts_idle_services: bool,
    pub(super) bandwidths: Vec<ServiceBandwidth>,
    pub(super) service_of_application: BTreeMap<Arc<str>, u32>,
    /// The service of each class, from class 1; none for a class of several services.
    service_of_class: Vec<Option<u32>>,
}

impl ServiceWeights {
    /// Weights by service number. `excess` are the weights for unused bandwidth, if they differ. `service_of_application`
    /// maps ids of applications to service numbers. No service has a minimum or maximum bandwidth, and each has the class of its number.
    ///
    /// # Errors
    /// [`HierarchyError`]: a weight is out of range.
    pub fn new(
        weights: Vec<f64>,
        excess: Option<&[f64]>,
        service_of_application: BTreeMap<Arc<str>, u32>,
    ) -> Result<ServiceWeights, HierarchyError> {
        let shares = match excess {
            Some(excess) => ServiceShares::with_excess(&weights, excess)?,
            None => ServiceShares::weighted(&weights)?,
        };
        Ok(ServiceWeights {
            shares,
            counts_idle_services: excess.is_some(),
            bandwidths: vec![ServiceBandwidth::default(); weights.len()],
            service_of_application,
            service_of_class: (0..weights.len() as u32).map(Some).collect(),
            weights,
        })
    }

    /// The same services with these bandwidths, by service number. Services beyond the list are bounded by weight only.
    #[must_use]
    pub fn with_bandwidths(mut self, mut bandwidths: Vec<ServiceBandwidth>) -> ServiceWeights {
        bandwidths.resize(self.weights.len(), ServiceBandwidth::default());
        self.bandwidths = bandwidths;
        self
    }

    /// The same services with these classes: the service of each class, from class 1; none for a class of several services, whose UDP has
    /// no limits.
    #[must_use]
    pub fn with_service_of_class(self, service_of_class: Vec<Option<u32>>) -> ServiceWeights {
        ServiceWeights { service_of_class, ..self }
    }

    /// Whether a service has a maximum.
    pub(super) fn has_max(&self) -> bool {
        self.bandwidths.iter().any(ServiceBandwidth::has_max)
    }

    /// The service of packets of a class, from 1.
    pub(super) fn service_of_class(&self, class: u8) -> Option<u32> {
        self.service_of_class.get(usize::from(class).checked_sub(1)?).copied().flatten()
    }
}
