//! Families of training jobs, which compute and then send to each other, round after round.

use weir_console::failure::Failure;
use weir_core::model::{CoflowSpec, FlowSpec, ServiceNames, TopologyTemplate, Workload};
use weir_core::units::Bytes;
use weir_sim::ReplayOptions;

use super::presets::network;
use super::random::Random;
use super::single_flows::{PORT_GBIT, fast_ports_case, port_rate};
use super::{Case, Family, Goal, describe_interval, format_interval, seconds};

/// Rounds of a job.
const ROUNDS: usize = 20;

/// The shortest and the longest transfer of a job alone, in seconds.
const TRANSFER_SECONDS: [f64; 2] = [0.02, 0.2];

/// The numbers of jobs of a workload, and the shares of the period in which their transfers use the shared links, in sum.
const JOBS: [usize; 2] = [2, 8];
const SHARES: [f64; 2] = [0.5, 1.0];

/// Hosts of jobs that use the same hosts. On two leaves, a job has half of this number on each.
const HOSTS: u32 = 4;

/// The most hosts of two shifted jobs.
const MAX_SHIFTED_HOSTS: u32 = 8;

/// The maximum of the mean over that of `varys`.
const GOAL: f64 = 1.04;

/// Which hosts of a job send to which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Each host to the next one, as in a ring of reductions.
    Ring,
    /// Each host to all others, in equal parts.
    AllToAll,
}

impl Pattern {
    fn random(random: &mut Random) -> Pattern {
        [Pattern::Ring, Pattern::AllToAll][random.position(2)]
    }

    /// The flows of a transfer in which each host sends for `transfer` seconds at the full rate of its port.
    fn flows(self, hosts: &[u32], transfer: f64) -> Vec<FlowSpec> {
        let targets = match self {
            Pattern::Ring => 1,
            Pattern::AllToAll => hosts.len() - 1,
        };
        let bytes = Bytes::new(transfer * port_rate().get() / targets as f64).unwrap_or(Bytes::ZERO);
        let flow =
            |from: usize, step: usize| FlowSpec::new(hosts[from], hosts[(from + step) % hosts.len()], bytes);
        (0..hosts.len()).flat_map(|from| (1..=targets).map(move |step| flow(from, step))).collect()
    }
}

/// A job.
#[derive(Debug, Clone, PartialEq)]
pub struct PeriodicJob {
    /// Its hosts, in the order of a ring.
    pub hosts: Vec<u32>,
    /// Which of them send to which.
    pub pattern: Pattern,
    /// The computing before each transfer, in seconds.
    pub compute: f64,
    /// The time of each transfer alone, in seconds.
    pub transfer: f64,
    /// The start, in seconds.
    pub start: f64,
}

/// Builds the workload of a seed at an interval.
type BuildSetup = fn(u64, f64) -> Result<Case, Failure>;

/// All of these families.
pub fn families<'a>() -> Vec<Family<'a>> {
    let switch = [0.0, 10e-6, 8e-3].map(|interval| {
        let hosts = "All jobs use the same four hosts on one switch.";
        periodic_jobs("one switch", hosts, interval, switch_case)
    });
    let leaves = [0.0, 8e-3].map(|interval| {
        let hosts = "Two leaves and one spine with 2:1; each job has two separate hosts on both leaves, so jobs share links between \
                     switches only.";
        periodic_jobs("two leaves", hosts, interval, leaves_case)
    });
    let shifted = [0.0, 10e-6, 8e-3].map(shifted_jobs);
    switch.into_iter().chain(leaves).chain(shifted).collect()
}

fn periodic_jobs<'a>(place: &str, hosts: &str, interval: f64, build: BuildSetup) -> Family<'a> {
    let name = format!("Periodic jobs, {place}, interval {}", format_interval(interval));
    let description = format!(
        "Two to eight jobs with {ROUNDS} rounds of computing and a transfer of 20 to 200 ms: a ring or all-to-all at random. All have the \
         same period, and start within the first one. Transfers use 0.5 to 1 of the shared links' time. {hosts} Hosts have {PORT_GBIT} \
         Gbit/s. Times are those of jobs. {}",
        describe_interval(interval)
    );
    Family::generated(name, description, move |seed| build(seed, interval))
        .timed_by_job()
        .with_goals(vec![Goal::over("varys", GOAL)])
}

fn shifted_jobs<'a>(interval: f64) -> Family<'a> {
    let name = format!("Shifted jobs, interval {}", format_interval(interval));
    let description = format!(
        "Two jobs with {ROUNDS} rounds on the same two to {MAX_SHIFTED_HOSTS} hosts of one switch with ports of {PORT_GBIT} Gbit/s: rings \
         or all-to-all. A transfer takes as long as the computing, 20 to 200 ms, and one job starts that much later: one computes while \
         the other sends. Times are those of jobs. {}",
        describe_interval(interval)
    );
    let family = Family::generated(name, description, move |seed| {
        Ok(fast_ports_case(job_coflows(&shifted(&mut Random::new(seed)), ROUNDS), interval))
    });
    let goal = Goal { max_each: Some(GOAL), ..Goal::over("varys", GOAL) };
    family.timed_by_job().with_goals(vec![goal])
}

fn shifted(random: &mut Random) -> Vec<PeriodicJob> {
    let transfer = random.between(TRANSFER_SECONDS[0], TRANSFER_SECONDS[1]);
    let hosts: Vec<u32> = (0..2 + random.position(MAX_SHIFTED_HOSTS as usize - 1) as u32).collect();
    let pattern = Pattern::random(random);
    let job = |start| PeriodicJob { hosts: hosts.clone(), pattern, compute: transfer, transfer, start };
    vec![job(0.0), job(transfer)]
}

/// Jobs with these hosts: random patterns and transfers, and one period, in which `share` of the time on the shared link is used.
/// `shared_seconds` is the time that one second of a transfer takes there.
fn random_jobs(
    hosts: &[Vec<u32>],
    shared_seconds: impl Fn(Pattern) -> f64,
    random: &mut Random,
) -> Vec<PeriodicJob> {
    loop {
        let share = random.between(SHARES[0], SHARES[1]);
        let mut jobs: Vec<PeriodicJob> = Vec::new();
        for hosts in hosts {
            let transfer = random.between(TRANSFER_SECONDS[0], TRANSFER_SECONDS[1]);
            let pattern = Pattern::random(random);
            jobs.push(PeriodicJob { hosts: hosts.clone(), pattern, compute: 0.0, transfer, start: 0.0 });
        }
        let period = jobs.iter().map(|job| shared_seconds(job.pattern) * job.transfer).sum::<f64>() / share;
        if jobs.iter().all(|job| job.transfer <= period) {
            for job in &mut jobs {
                (job.compute, job.start) = (period - job.transfer, random.between(0.0, period));
            }
            return jobs;
        }
        // A transfer takes longer than the period. Another choice may fit.
    }
}

fn job_count(random: &mut Random) -> usize {
    JOBS[0] + random.position(JOBS[1] - JOBS[0] + 1)
}

fn switch_jobs(random: &mut Random) -> Vec<PeriodicJob> {
    let hosts = vec![(0..HOSTS).collect(); job_count(random)];
    random_jobs(&hosts, |_| 1.0, random)
}

fn switch_case(seed: u64, interval: f64) -> Result<Case, Failure> {
    Ok(fast_ports_case(job_coflows(&switch_jobs(&mut Random::new(seed)), ROUNDS), interval))
}

/// Jobs on two leaves. The hosts of the first leaf come first.
fn leaves_jobs(random: &mut Random) -> Vec<PeriodicJob> {
    let count = job_count(random) as u32;
    let second_leaf = count * HOSTS / 2;
    // A ring visits the leaves in turns, so all of its flows cross the spine.
    let hosts =
        |job: u32| (0..HOSTS).map(|host| host % 2 * second_leaf + job * HOSTS / 2 + host / 2).collect();
    let hosts: Vec<Vec<u32>> = (0..count).map(hosts).collect();
    // The link of a leaf to the spine carries as much as half of the leaf's hosts.
    let link = f64::from(second_leaf) / 2.0;
    let sending = f64::from(HOSTS) / 2.0;
    let crossing = |pattern| match pattern {
        Pattern::Ring => sending,
        Pattern::AllToAll => sending * f64::from(HOSTS / 2) / f64::from(HOSTS - 1),
    };
    random_jobs(&hosts, |pattern| crossing(pattern) / link, random)
}

fn leaves_case(seed: u64, interval: f64) -> Result<Case, Failure> {
    let jobs = leaves_jobs(&mut Random::new(seed));
    let hosts = jobs.len() as u32 * HOSTS / 2;
    let template =
        TopologyTemplate::LeafSpine { spines: 1, leaves: 2, hosts, rate: port_rate(), oversubscription: 2.0 };
    let network = network(template, seed)?;
    let coflows = job_coflows(&jobs, ROUNDS);
    let workload = Workload { ports: 2 * hosts, coflows, events: Vec::new(), names: ServiceNames::default() };
    let options = ReplayOptions {
        port_rate: port_rate(),
        interval: seconds(interval),
        network,
        ..ReplayOptions::default()
    };
    Ok(Case { workload, options })
}

/// The coflows of jobs, by number from 1 on: one for each round, which depends on the one before.
pub fn job_coflows(jobs: &[PeriodicJob], rounds: usize) -> Vec<CoflowSpec> {
    let mut coflows: Vec<CoflowSpec> = Vec::new();
    for (number, job) in jobs.iter().enumerate() {
        for round in 0..rounds {
            let position = coflows.len();
            let flows = job.pattern.flows(&job.hosts, job.transfer);
            coflows.push(CoflowSpec {
                job: Some(number as u64 + 1),
                stage: Some(round as u32),
                parents: if round == 0 { Vec::new() } else { vec![position - 1] },
                compute_before: seconds(job.compute),
                ..CoflowSpec::new(position as u64 + 1, seconds(job.start), flows)
            });
        }
    }
    coflows
}

#[cfg(test)]
mod tests {
    use weir_core::policy::build;
    use weir_sim::{NoObserver, replay};

    use super::*;

    /// The times of the jobs of a workload under a policy.
    fn times(case: &Case, policy: &str) -> Vec<f64> {
        let outcome = replay(&case.workload, build(policy).unwrap(), &case.options, &mut NoObserver).unwrap();
        outcome.jobs.iter().map(|job| job.end - job.arrival).collect()
    }

    #[test]
    fn all_workloads_are_valid_and_have_two_to_eight_jobs() {
        for family in families() {
            for case in family.cases(&(1..6)).unwrap() {
                assert_eq!(case.workload.check(), Ok(()), "{}", family.name);
                let jobs = case.workload.coflows.len() / ROUNDS;
                assert!((2..=8).contains(&jobs), "{}: {jobs} jobs", family.name);
            }
        }
    }

    #[test]
    fn job_alone_takes_its_period_in_every_round() {
        for pattern in [Pattern::Ring, Pattern::AllToAll] {
            for jobs in [switch_jobs as fn(&mut Random) -> _, leaves_jobs] {
                let mut job: PeriodicJob = jobs(&mut Random::new(3)).swap_remove(0);
                job.pattern = pattern;
                let expected = ROUNDS as f64 * (job.compute + job.transfer);
                let case = fast_ports_case(
                    job_coflows(&[PeriodicJob { hosts: vec![4, 5, 6, 7], ..job }], ROUNDS),
                    0.0,
                );
                let found = times(&case, "fair")[0];
                assert!((found / expected - 1.0).abs() < 1e-9, "{pattern:?}: {found} of {expected} s");
            }
        }
    }

    #[test]
    fn shifted_jobs_do_not_meet() {
        for seed in 1..6 {
            let jobs = shifted(&mut Random::new(seed));
            let alone = 2.0 * ROUNDS as f64 * jobs[0].transfer;
            let case = fast_ports_case(job_coflows(&jobs, ROUNDS), 0.0);
            for time in times(&case, "varys") {
                assert!((time / alone - 1.0).abs() < 1e-9, "{time} of {alone} s");
            }
        }
    }

    #[test]
    fn transfers_use_half_to_all_of_the_shared_links() {
        for seed in 1..20 {
            let jobs = switch_jobs(&mut Random::new(seed));
            let period = jobs[0].compute + jobs[0].transfer;
            let used: f64 = jobs.iter().map(|job| job.transfer / period).sum();
            assert!((0.5..=1.0 + 1e-9).contains(&used), "seed {seed}: {used}");
            assert!(jobs.iter().all(|job| job.start <= period && job.compute >= 0.0), "seed {seed}");
        }
    }

    #[test]
    fn jobs_on_two_leaves_use_half_to_all_of_the_links_between_switches() {
        for seed in 1..20 {
            let jobs = leaves_jobs(&mut Random::new(seed));
            let leaf = jobs.len() as u32 * HOSTS / 2;
            let period = jobs[0].compute + jobs[0].transfer;
            let crossing = |job: &PeriodicJob| -> f64 {
                let flows = job.pattern.flows(&job.hosts, job.transfer);
                flows
                    .iter()
                    .filter(|flow| flow.src < leaf && flow.dst >= leaf)
                    .map(|flow| flow.bytes.get())
                    .sum()
            };
            let link = f64::from(leaf) / 2.0 * port_rate().get();
            let used = jobs.iter().map(crossing).sum::<f64>() / link / period;
            assert!((0.5..=1.0 + 1e-9).contains(&used), "seed {seed}: {used}");
        }
    }
}
