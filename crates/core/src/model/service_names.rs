//! Names of services and applications, and their numbers.

use std::collections::BTreeMap;

/// Names of the services of a workload, of the applications of each service, and the services' weights. Coflows refer to
/// services and applications by number.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceNames {
    services: Vec<Service>,
    numbers: BTreeMap<String, u32>,
    /// Number of applications of all services.
    application_count: usize,
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Service {
    name: String,
    weight: Option<f64>,
    applications: Vec<String>,
    numbers: BTreeMap<String, u32>,
}

impl Default for ServiceNames {
    /// One service with one application, both named [`ServiceNames::DEFAULT`], for coflows without a service.
    fn default() -> ServiceNames {
        let mut names = ServiceNames::empty();
        names
            .intern(ServiceNames::DEFAULT, ServiceNames::DEFAULT)
            .expect("an empty list has room for a name");
        names
    }
}

impl ServiceNames {
    /// Name of the service and the application of coflows that specify none.
    pub const DEFAULT: &'static str = "default";

    /// Maximum number of applications of all services together.
    pub const MAX_APPLICATIONS: usize = 4096;

    /// The rule for names, for messages.
    pub const NAME_RULE: &'static str = "1 to 100 letters, digits, `-`, `_` and `.`";

    /// Creates an empty table; [`ServiceNames::intern`] adds names.
    pub fn empty() -> ServiceNames {
        ServiceNames { services: Vec::new(), numbers: BTreeMap::new(), application_count: 0 }
    }

    /// Whether a text is a valid name.
    pub fn is_name(text: &str) -> bool {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        (1..=100).contains(&text.len()) && text.chars().all(is_allowed)
    }

    /// The numbers of a service and its application. New names get the next numbers.
    ///
    /// `None` if the application would exceed [`ServiceNames::MAX_APPLICATIONS`]. O(log names).
    pub fn intern(&mut self, service: &str, application: &str) -> Option<(u32, u32)> {
        let known = self.numbers.get(service).copied();
        if let Some(at) = known
            && let Some(&number) = self.services[at as usize].numbers.get(application)
        {
            return Some((at, number));
        }
        if self.application_count == ServiceNames::MAX_APPLICATIONS {
            return None;
        }
        let at = known.unwrap_or_else(|| {
            let at = self.services.len() as u32;
            self.services.push(Service { name: service.to_owned(), ..Service::default() });
            self.numbers.insert(service.to_owned(), at);
            at
        });
        let service = &mut self.services[at as usize];
        let number = service.applications.len() as u32;
        service.applications.push(application.to_owned());
        service.numbers.insert(application.to_owned(), number);
        self.application_count += 1;
        Some((at, number))
    }

    /// The numbers of a service and its application, if both are known.
    pub fn find(&self, service: &str, application: &str) -> Option<(u32, u32)> {
        let at = *self.numbers.get(service)?;
        let number = *self.services[at as usize].numbers.get(application)?;
        Some((at, number))
    }

    /// Number of services.
    pub fn services(&self) -> usize {
        self.services.len()
    }

    /// Number of applications of all services.
    pub fn application_count(&self) -> usize {
        self.application_count
    }

    /// The name of a service, by its number.
    pub fn service(&self, service: u32) -> &str {
        &self.services[service as usize].name
    }

    /// The weight of a service for policies that share between services: 1 by default.
    pub fn weight(&self, service: u32) -> f64 {
        self.services[service as usize].weight.unwrap_or(1.0)
    }

    /// Sets the weight of a service: finite and above 0.
    pub fn set_weight(&mut self, service: u32, weight: f64) {
        self.services[service as usize].weight = Some(weight);
    }

    /// The names of a service's applications, by their numbers.
    pub fn applications(&self, service: u32) -> &[String] {
        &self.services[service as usize].applications
    }

    /// The number of a service, by its name.
    pub fn service_number(&self, service: &str) -> Option<u32> {
        self.numbers.get(service).copied()
    }

    /// Whether a service and an application with these numbers exist.
    pub fn contains(&self, service: u32, application: u32) -> bool {
        self.services.get(service as usize).is_some_and(|s| (application as usize) < s.applications.len())
    }

    /// The first invalid name.
    pub(super) fn first_invalid(&self) -> Option<&str> {
        let all = self.services.iter().flat_map(|s| std::iter::once(&s.name).chain(&s.applications));
        all.map(String::as_str).find(|name| !ServiceNames::is_name(name))
    }
}
