//! Arrivals at a mean load, and incasts.

use weir_core::model::{CoflowSpec, FlowSpec};
use weir_core::units::{Bytes, Rate, Time};

use super::{Resolution, SeededRng, WorkloadSpecError};
use crate::coflow_benchmark::TraceUnit;

/// The mean load of ports, as a fraction of their rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// The fraction; above 0, and up to 10.
    pub fraction: f64,
    /// The rate of a port in each direction.
    pub port_rate: Rate,
}

impl Load {
    pub(super) fn check(&self, field: &str) -> Result<(), WorkloadSpecError> {
        match self.fraction > 0.0 && self.fraction <= 10.0 {
            true => Ok(()),
            false => Err(WorkloadSpecError::new(field, self.fraction, "a load above 0, up to 10")),
        }
    }

    /// The time in which ports with this load send `bytes`, in seconds.
    pub(super) fn seconds(&self, bytes: f64, ports: u32) -> f64 {
        bytes / (self.fraction * f64::from(ports) * self.port_rate.get())
    }
}

/// Coflows from many ports to one, at times of a Poisson process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Incasts {
    /// The number of senders, at most one less than ports.
    pub degree: u32,
    /// The bytes of each sender.
    pub bytes: Bytes,
    /// Their load, in addition to that of the other coflows.
    pub load: Load,
}

impl Incasts {
    /// What each sender sends by default: 500 kB.
    pub fn default_size() -> Bytes {
        Bytes::new(500e3).expect("500 kB is a valid size")
    }

    pub(super) fn check(&self, ports: u32) -> Result<(), WorkloadSpecError> {
        self.load.check("incast load")?;
        if self.degree == 0 || self.degree >= ports {
            let expected = format!("1 to {}, one less than the ports", ports.saturating_sub(1));
            return Err(WorkloadSpecError::new("incast degree", self.degree, expected));
        }
        match self.bytes.get() >= 1.0 {
            true => Ok(()),
            false => Err(WorkloadSpecError::new("incast size", self.bytes, "a size of 1 byte or more")),
        }
    }

    /// The incasts until `end`, in seconds, with ids from `first_id` on.
    pub(super) fn coflows(
        &self,
        ports: u32,
        end: f64,
        first_id: u64,
        max_flows: usize,
        (resolution, unit): (Resolution, TraceUnit),
        rng: &mut SeededRng,
    ) -> Result<Vec<CoflowSpec>, WorkloadSpecError> {
        let mean_gap = self.load.seconds(self.bytes.get() * f64::from(self.degree), ports);
        let bytes =
            Bytes::new(resolution.round_size(self.bytes.get() / unit.bytes(), unit)).unwrap_or(self.bytes);
        let mut all_ports: Vec<u32> = (0..ports).collect();
        let mut coflows: Vec<CoflowSpec> = Vec::new();
        let mut now = 0.0;
        loop {
            now -= mean_gap * libm::log(1.0 - rng.uniform());
            let Some(arrival) = Time::new(resolution.round_time(now)).filter(|_| now <= end) else {
                return Ok(coflows);
            };
            if (coflows.len() + 1) * self.degree as usize > max_flows {
                let value = format!("more than {max_flows} flows");
                return Err(WorkloadSpecError::new(
                    "incast load",
                    value,
                    "fewer flows in total (--max-flows)",
                ));
            }
            let receiver = rng.uniform_below(all_ports.len());
            all_ports.swap(receiver, ports as usize - 1);
            let senders = rng.choose(&mut all_ports[..ports as usize - 1], self.degree as usize);
            let dst = all_ports[ports as usize - 1];
            let flows = senders.into_iter().map(|src| FlowSpec::new(src, dst, bytes)).collect();
            coflows.push(CoflowSpec::new(first_id + coflows.len() as u64, arrival, flows));
        }
    }
}
