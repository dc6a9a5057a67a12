//! Families with deadlines, jobs, late data, and changes of ports and flows, all of the preset `small`.

use weir_core::model::{PortSide, TimedEvent, Workload, WorkloadChange};
use weir_sim::ReplayOptions;
use weir_sim::lower_bound::LowerBounds;
use weir_trace::generate::Preset;

use super::presets::generate_workload;
use super::random::Random;
use super::{Case, Family, no_worse_than_saath, seconds};

/// Coflows of a job.
const JOB_COFLOWS: usize = 4;

/// Ports that become slow, and ports that fail.
const SLOW_PORTS: usize = 10;
const FAILED_PORTS: usize = 3;

/// A change of a generated workload.
type Change = fn(&mut Workload, &mut Random);

/// All of these families.
pub fn families<'a>() -> Vec<Family<'a>> {
    let kinds: [(&str, &str, Change); 5] = [
        (
            "Deadlines",
            "Each coflow has a deadline: 1 to 4 times the time that it needs alone. No policy of the table uses deadlines.",
            set_deadlines,
        ),
        (
            "Jobs of several stages",
            "Each four successive coflows are a job: one coflow, then two, then one that depends on both. Times are those of jobs.",
            set_jobs,
        ),
        (
            "Late data",
            "In each second coflow, the data of each sending port exists up to 2 s after the release.",
            delay_data,
        ),
        (
            "Slow ports",
            "10 of the 50 ports have a quarter of their capacity, in both directions, for 20 s each, at random times.",
            slow_ports,
        ),
        (
            "Failures",
            "3 of the 50 ports fail for 5 s each, and one flow of each third coflow restarts up to 1 s after the arrival, at random times.",
            add_failures,
        ),
    ];
    let build = |(name, description, change): (&str, &str, Change)| {
        let description = format!("Workloads of the preset `small`. {description}");
        let family = Family::generated(name, description, move |seed| {
            let mut workload = generate_workload(&Preset::Small.spec(seed))?;
            change(&mut workload, &mut Random::new(seed));
            Ok(Case::from(workload))
        });
        family.with_goals(no_worse_than_saath())
    };
    let [deadlines, jobs, others @ ..] = kinds.map(build);
    [deadlines, jobs.timed_by_job()].into_iter().chain(others).collect()
}

fn set_deadlines(workload: &mut Workload, random: &mut Random) {
    let bounds = LowerBounds::new(workload, &ReplayOptions::default());
    for (coflow, alone) in workload.coflows.iter_mut().zip(bounds.min_ccts) {
        coflow.deadline = Some(seconds(alone * random.between(1.0, 4.0)));
    }
}

fn set_jobs(workload: &mut Workload, _: &mut Random) {
    for first in (0..workload.coflows.len()).step_by(JOB_COFLOWS) {
        let arrival = workload.coflows[first].arrival;
        let last = workload.coflows.len().min(first + JOB_COFLOWS);
        for (stage, coflow) in workload.coflows[first..last].iter_mut().enumerate() {
            (coflow.arrival, coflow.job) = (arrival, Some((first / JOB_COFLOWS) as u64));
            coflow.parents = match stage {
                0 => Vec::new(),
                3 => vec![first + 1, first + 2],
                _ => vec![first],
            };
        }
    }
}

fn delay_data(workload: &mut Workload, random: &mut Random) {
    let ports = workload.ports as usize;
    for coflow in workload.coflows.iter_mut().step_by(2) {
        let delays: Vec<_> = (0..ports).map(|_| seconds(random.between(0.0, 2.0))).collect();
        coflow.flows.iter_mut().for_each(|flow| flow.data_delay = delays[flow.src as usize]);
    }
}

/// Distinct random ports.
fn choose_ports(workload: &Workload, count: usize, random: &mut Random) -> Vec<u32> {
    let mut ports: Vec<u32> = (0..workload.ports).collect();
    (0..count).map(|_| ports.swap_remove(random.position(ports.len()))).collect()
}

/// Changes the capacity of a port for a while, at a random time.
fn change_port(workload: &mut Workload, port: u32, factor: f64, length: f64, random: &mut Random) {
    let last = workload.coflows.iter().map(|coflow| coflow.arrival.get()).fold(0.0, f64::max);
    let start = random.between(0.0, last);
    for (time, factor) in [(start, factor), (start + length, 1.0)] {
        let change = WorkloadChange::PortRate { port, side: PortSide::Both, factor };
        workload.events.push(TimedEvent { time: seconds(time), change });
    }
}

fn sort_events(workload: &mut Workload) {
    workload.events.sort_by(|a, b| a.time.get().total_cmp(&b.time.get()));
}

fn slow_ports(workload: &mut Workload, random: &mut Random) {
    for port in choose_ports(workload, SLOW_PORTS, random) {
        change_port(workload, port, 0.25, 20.0, random);
    }
    sort_events(workload);
}

fn add_failures(workload: &mut Workload, random: &mut Random) {
    for port in choose_ports(workload, FAILED_PORTS, random) {
        change_port(workload, port, 0.0, 5.0, random);
    }
    for position in (0..workload.coflows.len()).step_by(3) {
        let coflow = &workload.coflows[position];
        let time = seconds(coflow.arrival.get() + random.between(0.0, 1.0));
        let flow = random.position(coflow.flows.len());
        let change = WorkloadChange::RestartFlow { coflow: position, flow };
        workload.events.push(TimedEvent { time, change });
    }
    sort_events(workload);
}

#[cfg(test)]
mod tests {
    use super::super::Timed;
    use super::*;

    #[test]
    fn changed_workloads_are_valid_and_differ_from_the_preset() {
        let preset = generate_workload(&Preset::Small.spec(1)).unwrap();
        let families = families();
        assert_eq!(families.len(), 5);
        for family in families {
            let workload = &family.cases(&(1..2)).unwrap()[0].workload;
            assert_eq!(workload.check(), Ok(()), "{}", family.name);
            assert_ne!(*workload, preset, "{}", family.name);
            let has_jobs = workload.coflows.iter().any(|coflow| coflow.job.is_some());
            assert_eq!(has_jobs, family.timed == Timed::Jobs, "{}", family.name);
        }
    }

    #[test]
    fn last_coflow_of_a_job_depends_on_the_two_before_it() {
        let mut workload = generate_workload(&Preset::Small.spec(1)).unwrap();
        set_jobs(&mut workload, &mut Random::new(1));
        let parents: Vec<&[usize]> =
            workload.coflows[4..8].iter().map(|coflow| &coflow.parents[..]).collect();
        assert_eq!(parents, [&[][..], &[4], &[4], &[5, 6]]);
        assert!(workload.coflows[4..8].iter().all(|coflow| coflow.job == Some(1)));
    }
}
