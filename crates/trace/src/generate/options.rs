//! The options of `weir trace generate` and of `weir.Trace.generate`.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use weir_core::model::Workload;
use weir_core::units::{Bytes, Rate};
use weir_fields::FileError;

use super::{
    ArrivalProcess, Cdf, CoflowKind, Distribution, FlowSizes, Incasts, Load, Preset, Resolution, Skew,
    WorkloadSpec, WorkloadSpecError, assign_services, generate,
};
use crate::bounds::Limits;
use crate::coflow_benchmark::TraceUnit;

/// A random workload, as a user requests it. The default is the preset `small` with seed 1.
#[derive(Debug, Clone)]
pub struct GeneratorOptions {
    /// A predefined specification; not with `mappers`, `reducers`, `size`, `skew` and `sizes`.
    pub preset: Option<Preset>,
    /// The seed of the random numbers.
    pub seed: u64,
    /// The number of ports; that of the preset, or 50.
    pub ports: Option<u32>,
    /// The number of coflows; that of the preset, or 100.
    pub coflows: Option<usize>,
    /// The number of mappers of a coflow; `uniform:1,10`, or 1 with `sizes`.
    pub mappers: Option<Distribution>,
    /// The number of reducers of a coflow; `uniform:1,10`, or 1 with `sizes`.
    pub reducers: Option<Distribution>,
    /// The mean size of a coflow's reducers in megabytes; `lognormal:10,1.5,1,1000`. Not with `sizes`.
    pub size: Option<Distribution>,
    /// The differences between the sizes of a coflow's reducers.
    pub skew: Option<Skew>,
    /// The arrivals; those of the preset, or `poisson:1s`.
    pub arrival: Option<ArrivalProcess>,
    /// The sizes of reducers.
    pub sizes: Option<Cdf>,
    /// The mean load of ports, as a fraction of their rate.
    pub load: Option<f64>,
    /// The rate of ports, for loads.
    pub port_rate: Rate,
    /// The number of senders of an incast; with `incast_load`.
    pub incast_degree: Option<u32>,
    /// The mean load of incasts; with `incast_degree`.
    pub incast_load: Option<f64>,
    /// What each sender of an incast sends; 500 kB. With `incast_degree`.
    pub incast_size: Option<Bytes>,
    /// The number of services.
    pub services: usize,
    /// The number of applications of each service.
    pub applications: usize,
}

impl Default for GeneratorOptions {
    fn default() -> GeneratorOptions {
        GeneratorOptions {
            preset: None,
            seed: 1,
            ports: None,
            coflows: None,
            mappers: None,
            reducers: None,
            size: None,
            skew: None,
            arrival: None,
            sizes: None,
            load: None,
            port_rate: Rate::GBIT,
            incast_degree: None,
            incast_load: None,
            incast_size: None,
            services: 1,
            applications: 1,
        }
    }
}

impl GeneratorOptions {
    /// Generates the workload, with megabytes of this `unit`. Arrivals and sizes that the preset does not set have the resolution of a
    /// format.
    ///
    /// # Errors
    /// If options exclude each other, a value is out of its range, or the workload exceeds the limits.
    pub fn generate(
        &self,
        resolution: Resolution,
        unit: TraceUnit,
        limits: &Limits,
    ) -> Result<Workload, WorkloadSpecError> {
        self.check_combination()?;
        let mut workload = generate(&self.spec(resolution), unit, limits)?;
        assign_services(&mut workload, self.services, self.applications, self.seed)?;
        Ok(workload)
    }

    /// Checks that options do not exclude each other.
    fn check_combination(&self) -> Result<(), WorkloadSpecError> {
        let excluded = |name: &str, is_given: bool, by: &str| match is_given {
            true => Err(WorkloadSpecError::new(name, "given", format_args!("no `{name}` with `{by}`"))),
            false => Ok(()),
        };
        if self.preset.is_some() {
            excluded("mappers", self.mappers.is_some(), "preset")?;
            excluded("reducers", self.reducers.is_some(), "preset")?;
            excluded("size", self.size.is_some(), "preset")?;
            excluded("skew", self.skew.is_some(), "preset")?;
            excluded("cdf", self.sizes.is_some(), "preset")?;
        }
        excluded("size", self.size.is_some() && self.sizes.is_some(), "cdf")?;
        let required = |name: &str, is_missing: bool, by: &str| match is_missing {
            true => Err(WorkloadSpecError::new(name, "missing", format_args!("a value with `{by}`"))),
            false => Ok(()),
        };
        let (degree, load) = (self.incast_degree.is_none(), self.incast_load.is_none());
        required("incast_load", load && !degree, "incast_degree")?;
        required("incast_degree", degree && !load, "incast_load")?;
        required("incast_degree", degree && self.incast_size.is_some(), "incast_size")
    }

    fn spec(&self, resolution: Resolution) -> WorkloadSpec {
        let GeneratorOptions { mappers, reducers, size, skew, seed, .. } = *self;
        let has_kind = mappers.is_some() || reducers.is_some() || size.is_some() || skew.is_some();
        let mut spec = if has_kind || self.sizes.is_some() {
            let default = CoflowKind::default();
            let one = self.sizes.as_ref().map(|_| Distribution::Constant(1.0));
            let kind = CoflowKind {
                mappers: mappers.or(one).unwrap_or(default.mappers),
                reducers: reducers.or(one).unwrap_or(default.reducers),
                mean_megabytes: size.unwrap_or(default.mean_megabytes),
                skew: skew.unwrap_or(default.skew),
                ..default
            };
            WorkloadSpec {
                seed,
                arrival_resolution: resolution,
                size_resolution: resolution,
                kinds: vec![kind],
                sizes: self.sizes.clone(),
                ..WorkloadSpec::default()
            }
        } else {
            self.preset.unwrap_or(Preset::Small).spec(seed)
        };
        spec.ports = self.ports.unwrap_or(spec.ports);
        spec.coflows = self.coflows.unwrap_or(spec.coflows);
        if let Some(arrival) = self.arrival {
            (spec.arrival, spec.arrival_resolution) = (arrival, resolution);
        }
        let load = |fraction| Load { fraction, port_rate: self.port_rate };
        if let Some(fraction) = self.load {
            (spec.load, spec.arrival_resolution) = (Some(load(fraction)), resolution);
        }
        spec.incasts = self.incast_load.zip(self.incast_degree).map(|(fraction, degree)| Incasts {
            degree,
            bytes: self.incast_size.unwrap_or_else(Incasts::default_size),
            load: load(fraction),
        });
        spec
    }
}

/// Why a distribution of sizes cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CdfError {
    /// No published distribution and no file has this name.
    #[error("{name}: {source}; expected a file, or one of {}", FlowSizes::ALL.map(|sizes| sizes.to_string()).join(", "))]
    NotFound {
        /// The name.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// The file is invalid.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Cdf {
    /// The published distribution of this name, or that of a file.
    ///
    /// # Errors
    /// If the file cannot be read or is invalid.
    pub fn find(name: &Path) -> Result<Cdf, CdfError> {
        let published = FlowSizes::ALL.into_iter().find(|sizes| name == Path::new(&sizes.to_string()));
        if let Some(sizes) = published {
            return Ok(sizes.cdf());
        }
        let text = name.display().to_string();
        let file = File::open(name).map_err(|source| CdfError::NotFound { name: text.clone(), source })?;
        Ok(Cdf::read(BufReader::new(file), &text)?)
    }
}
