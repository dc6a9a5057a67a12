//! Services, their applications, and the numbers that stand for them.

use std::collections::BTreeMap;

/// What the services of a workload are called, and the applications of each. A coflow says by number whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    services: Vec<Service>,
    numbers: BTreeMap<String, u32>,
    /// Applications of all services.
    count: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Service {
    name: String,
    applications: Vec<String>,
    numbers: BTreeMap<String, u32>,
}

impl Default for Names {
    /// One service with one application, both called [`Names::DEFAULT`]: those of coflows that do not say.
    fn default() -> Names {
        let mut names = Names::empty();
        names.number(Names::DEFAULT, Names::DEFAULT).expect("an empty list has room for a name");
        names
    }
}

impl Names {
    /// The service, and the application, of coflows that do not say.
    pub const DEFAULT: &'static str = "default";

    /// The most applications that all services have together.
    pub const MAX_APPLICATIONS: usize = 4096;

    /// What a name may be, in words.
    pub const RULE: &'static str = "1 to 100 letters, digits, `-`, `_` and `.`";

    /// No names: what [`Names::number`] starts from.
    pub fn empty() -> Names {
        Names { services: Vec::new(), numbers: BTreeMap::new(), count: 0 }
    }

    /// Whether a text can be a name.
    pub fn is_name(text: &str) -> bool {
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        (1..=100).contains(&text.len()) && text.chars().all(known)
    }

    /// The numbers of a service and of an application of it, which get the next ones if they are new. `None` if that is one
    /// application too many. O(log names).
    pub fn number(&mut self, service: &str, application: &str) -> Option<(u32, u32)> {
        let known = self.numbers.get(service).copied();
        if let Some(at) = known
            && let Some(&number) = self.services[at as usize].numbers.get(application)
        {
            return Some((at, number));
        }
        if self.count == Names::MAX_APPLICATIONS {
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
        self.count += 1;
        Some((at, number))
    }

    /// The numbers of a service and of an application of it, if both are known.
    pub fn find(&self, service: &str, application: &str) -> Option<(u32, u32)> {
        let at = *self.numbers.get(service)?;
        let number = *self.services[at as usize].numbers.get(application)?;
        Some((at, number))
    }

    /// How many services there are.
    pub fn services(&self) -> usize {
        self.services.len()
    }

    /// Applications of all services.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The name of a service, by its number.
    pub fn service(&self, service: u32) -> &str {
        &self.services[service as usize].name
    }

    /// The names of a service's applications, by their numbers.
    pub fn applications(&self, service: u32) -> &[String] {
        &self.services[service as usize].applications
    }

    /// The number of a service.
    pub fn service_number(&self, service: &str) -> Option<u32> {
        self.numbers.get(service).copied()
    }

    /// Whether there are a service and an application with these numbers.
    pub fn has(&self, service: u32, application: u32) -> bool {
        self.services.get(service as usize).is_some_and(|s| (application as usize) < s.applications.len())
    }

    /// The first name that can be none.
    pub(super) fn wrong(&self) -> Option<&str> {
        let all = self.services.iter().flat_map(|s| std::iter::once(&s.name).chain(&s.applications));
        all.map(String::as_str).find(|name| !Names::is_name(name))
    }
}
