//! The queue of each service, where each has its own as far as queues suffice.
//!
//! Queues bound the rates of services, and the mark of a queue identifies the service of UDP. A service with a minimum or maximum therefore
//! needs a separate queue.

use weir_core::model::ServiceNames;
use weir_proto::MAX_CLASSES;

/// The queue of each service. Services beyond the number of queues share the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceQueues {
    /// By service number: its queue, from 0.
    queue_of_service: Vec<u16>,
    queue_count: u16,
}

impl ServiceQueues {
    /// Assigns queues: first to services that need a separate one, those with a minimum or maximum, then in the order of service numbers.
    ///
    /// # Errors
    /// The names of the services that need a queue, if they are too many.
    pub fn assign(
        names: &ServiceNames,
        needs_queue: impl Fn(&str) -> bool,
    ) -> Result<ServiceQueues, Vec<String>> {
        let services = names.services();
        if services <= MAX_CLASSES {
            return Ok(ServiceQueues {
                queue_of_service: (0..services as u16).collect(),
                queue_count: services as u16,
            });
        }
        let needs_queue: Vec<bool> = (0..services as u32).map(|at| needs_queue(names.service(at))).collect();
        let required = needs_queue.iter().filter(|needs| **needs).count();
        let shared = MAX_CLASSES - 1;
        let Some(mut free) = shared.checked_sub(required) else {
            let required = (0u32..).zip(&needs_queue).filter(|(_, needs)| **needs);
            return Err(required.map(|(service, _)| names.service(service).to_owned()).collect());
        };
        let mut next = 0;
        let mut assign = |needs: bool| {
            if !needs {
                let Some(rest) = free.checked_sub(1) else { return shared as u16 };
                free = rest;
            }
            next += 1;
            next - 1
        };
        let queue_of_service = needs_queue.into_iter().map(&mut assign).collect();
        Ok(ServiceQueues { queue_of_service, queue_count: MAX_CLASSES as u16 })
    }

    /// Number of queues.
    pub fn queue_count(&self) -> u16 {
        self.queue_count
    }

    /// The queue of a service, from 0.
    pub fn queue(&self, service: u32) -> u16 {
        self.queue_of_service[service as usize]
    }

    /// Whether a service shares its queue with others.
    pub fn is_shared(&self, service: u32) -> bool {
        self.queue_of_service.len() > usize::from(self.queue_count)
            && self.queue(service) == self.queue_count - 1
    }

    /// The service of each queue; none for the queue that services share.
    pub fn owners(&self) -> Vec<Option<u32>> {
        let mut owners = vec![None; self.queue_count.into()];
        for service in 0..self.queue_of_service.len() as u32 {
            if !self.is_shared(service) {
                owners[usize::from(self.queue(service))] = Some(service);
            }
        }
        owners
    }

    /// The sum of values of services, by queue.
    pub fn sum_by_queue(&self, values: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.queue_count.into()];
        for (value, &queue) in values.iter().zip(&self.queue_of_service) {
            sums[usize::from(queue)] += value;
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> ServiceNames {
        let mut names = ServiceNames::empty();
        for at in 0..count {
            names.intern(&format!("s{at}"), ServiceNames::DEFAULT).unwrap();
        }
        names
    }

    #[test]
    fn each_service_has_a_queue_while_queues_suffice() {
        let queues = ServiceQueues::assign(&names(63), |_| true).unwrap();
        assert_eq!((queues.queue_count(), queues.queue(62), queues.is_shared(62)), (63, 62, false));
        assert_eq!(queues.owners()[62], Some(62));
    }

    #[test]
    fn services_beyond_the_queues_share_the_last_one_unless_they_need_a_queue() {
        let needed = ["s5", "s80", "s99"];
        let queues = ServiceQueues::assign(&names(100), |name| needed.contains(&name)).unwrap();
        let own: Vec<u32> = (0..100).filter(|&service| !queues.is_shared(service)).collect();
        let expected: Vec<u32> = (0..60).chain([80, 99]).collect();
        assert_eq!(own, expected);
        let numbers: Vec<u16> = own.iter().map(|&service| queues.queue(service)).collect();
        assert_eq!(numbers, (0..62).collect::<Vec<u16>>());
        assert_eq!((queues.queue(60), queues.queue(98), queues.queue_count()), (62, 62, 63));
        assert_eq!((queues.owners()[60], queues.owners()[62]), (Some(80), None));
        let sums = queues.sum_by_queue(&[1.0; 100]);
        assert_eq!((sums[0], sums[62], sums.len()), (1.0, 38.0, 63));
    }

    #[test]
    fn more_services_that_need_a_queue_than_queues_are_named() {
        let needs = |count: usize| {
            ServiceQueues::assign(&names(100), move |name| name[1..].parse::<usize>().unwrap() < count)
        };
        assert!(needs(62).is_ok());
        let refused = needs(63).unwrap_err();
        assert_eq!((refused.len(), &*refused[62]), (63, "s62"));
    }
}
