//! Section 8.4: the synthetic workloads on 1,944 servers (Fig. 10 and 11), and what accounts for the differences.

use weir_core::saba::Fraction;
use weir_core::saba::share::FLOOR;
use weir_sim::stage::fabric::Paths;
use weir_sim::stage::sharing::Controllers;

use super::hall::{DISTRIBUTED, Hall, PAPER, Rival, SABA, World, rack_worth};
use crate::doc::{n, ratio, table};
use weir_console::failure::Failure;

/// All that Fig. 10 and 11a compare with the baseline: a name, where the paper has its average, and the average.
const RIVALS: [(&str, Rival, f64, &str); 5] = [
    ("Saba", SABA, 1.27, "8.4, study 4: \"Saba ... is 1.27x\""),
    ("ideal max-min", Rival::Ideal, 1.14, "8.4, study 4: \"ideal max-min fairness is ... 1.14x\""),
    ("Homa-like", Rival::Homa, 1.12, "8.4, study 5: \"Homa achieves 1.12x\""),
    ("Sincronia", Rival::Sincronia, 1.19, "8.4, study 6: \"Sincronia achieves 1.19x\""),
    ("distributed Saba", DISTRIBUTED, 1.23, "8.4, study 7, Fig. 11a: \"1.23x\""),
];

const BASE: (World, Rival) = (PAPER, Rival::Baseline);

/// A world where workloads feel each other: links between switches carry a quarter.
const NARROW: World = World { between: 0.25, ..PAPER };

/// The same, but models of what a part of a link between switches is worth to a workload.
fn worth() -> Result<World, Failure> {
    Ok(World { worth: NARROW.between * rack_worth()?, ..NARROW })
}

/// Saba that leaves each application half of an even share.
fn careful() -> Rival {
    Rival::Saba(Some(8), Fraction::new(0.5).unwrap_or(FLOOR), Controllers::Central)
}

/// Jobs that are slowed by less than this part are said not to feel each other.
const UNFELT: f64 = 0.01;

/// What comes out in the simulations, in a few sentences.
pub fn summary(hall: &mut Hall<'_>) -> Result<String, Failure> {
    let mut wanted: Vec<(World, Rival)> = RIVALS.iter().map(|(_, rival, ..)| (PAPER, *rival)).collect();
    wanted.extend(RIVALS.iter().map(|(_, rival, ..)| (NARROW, *rival)));
    wanted.extend([
        BASE,
        (NARROW, Rival::Baseline),
        (NARROW, careful()),
        (worth()?, SABA),
        (worth()?, Rival::Exact),
    ]);
    hall.prepare(&wanted)?;
    let mut averages = Vec::new();
    let mut narrow = Vec::new();
    for (name, rival, published, _) in RIVALS {
        averages.push(format!("{name} {} ({})", n(hall.compared((PAPER, rival), BASE)?.all), n(published)));
        let found = hall.compared((NARROW, rival), (NARROW, Rival::Baseline))?.all;
        narrow.push(format!("{name} {}", n(found)));
    }
    let slow = hall.slowdown(BASE)?;
    let why = if slow < 1.0 + UNFELT {
        ": jobs that have servers of their own do not feel each other there, and no way of sharing can gain"
    } else {
        ""
    };
    Ok(format!(
        "- In section 8.4, over the baseline, measured (published): {}. Under the baseline jobs take {} times as long as with all bandwidth{why}.\n\
         - Where links between switches carry a quarter, jobs take {} times as long under the baseline, and the averages over it are: {}; Saba with a least weight of half an even share {}, with models of what parts of those links are worth {}, and with right ones of that {}.\n",
        averages.join(", "),
        n(slow),
        n(hall.slowdown((NARROW, Rival::Baseline))?),
        narrow.join(", "),
        n(hall.compared((NARROW, careful()), (NARROW, Rival::Baseline))?.all),
        n(hall.compared((worth()?, SABA), (NARROW, Rival::Baseline))?.all),
        n(hall.compared((worth()?, Rival::Exact), (NARROW, Rival::Baseline))?.all),
    ))
}

/// Fig. 10 and 11, and the experiments.
pub fn section(hall: &mut Hall<'_>) -> Result<String, Failure> {
    let mut out = fig10(hall)?;
    out.push_str(&fig11b(hall)?);
    out.push_str(&experiments(hall)?);
    Ok(out)
}

fn fig10(hall: &mut Hall<'_>) -> Result<String, Failure> {
    let mut wanted: Vec<(World, Rival)> = RIVALS.iter().map(|(_, rival, ..)| (PAPER, *rival)).collect();
    wanted.push(BASE);
    hall.prepare(&wanted)?;
    let mut lines = Vec::new();
    let mut by_workload = Vec::new();
    for (name, rival, published, source) in RIVALS {
        let found = hall.compared((PAPER, rival), BASE)?;
        let (least, most) = range(&found.workloads);
        lines.push(vec![
            name.to_owned(),
            source.to_owned(),
            n(published),
            n(found.all),
            ratio(found.all, published),
            n(least),
            n(most),
        ]);
        by_workload.push(found.workloads);
    }
    let over = range(&hall.compared((PAPER, SABA), (PAPER, Rival::Ideal))?.workloads);
    let mut out = format!(
        "## Fig. 10 and 11a: 1,944 servers (section 8.4)\n\n20 synthetic workloads of 97 servers each on the three tiers of section 8.1, drawn with seed {}; each server runs one. Flows are split \
         evenly over all shortest paths. Averages over the workloads. Homa-like are strict priorities by the size that a flow begins with, 8 of them with as many bytes in each: by the paper's sizes all \
         flows here, which are above 10 KB, would have the same one, and Homa would be the baseline. Sincronia orders the transfers under way, each a coflow with what it has left, whenever one begins or ends.\n",
        hall.seed
    );
    let head = [
        "sharing",
        "where in the paper",
        "published",
        "measured",
        "ratio",
        "least workload",
        "greatest workload",
    ];
    out.push_str(&table(&head, 2, &lines));
    out.push_str(&format!(
        "The paper has 1.79 for the workload that gains most by Saba and 0.97 for two (8.4, study 4: \"penalized by 3%\"), and leaves open whether over the baseline, as in the table, or over ideal \
         max-min, where workloads have from {} to {} here.\n\n",
        n(over.0),
        n(over.1),
    ));
    if let Some(run) = hall.known(PAPER, SABA) {
        out.push_str(&format!(
            "Jobs cross {} links, of which {} are different to them; Saba's rates were found {} times, and settled but for {}.\n\n### Workloads\n\nThe parts are of a workload's time with all \
             bandwidth; the slowdown is that of the workload alone.\n",
            run.links.0, run.links.1, run.solutions.0, run.solutions.1
        ));
    }
    let mut lines = Vec::new();
    for (number, workload) in hall.workloads().iter().enumerate() {
        let mut line = vec![
            (number + 1).to_string(),
            n(workload.moving),
            n(workload.beside),
            workload.stages.len().to_string(),
            n(workload.seconds),
            n(workload.slowdown(0.25)),
        ];
        line.extend(by_workload.iter().map(|speedups| n(speedups[number])));
        lines.push(line);
    }
    let mut head = vec!["workload", "moves", "computes meanwhile", "stages", "time (s)", "slowdown at 25 %"];
    head.extend(RIVALS.iter().map(|(name, ..)| *name));
    out.push_str(&table(&head, 0, &lines));
    Ok(out)
}

fn fig11b(hall: &mut Hall<'_>) -> Result<String, Failure> {
    let saba = |queues| Rival::Saba(queues, FLOOR, Controllers::Central);
    let all =
        [(Some(2), Some(1.12)), (Some(4), None), (Some(8), Some(1.27)), (Some(16), None), (None, Some(1.33))];
    let wanted = all.iter().flat_map(|(queues, _)| [PAPER, NARROW].map(|world| (world, saba(*queues))));
    hall.prepare(&wanted.collect::<Vec<_>>())?;
    let mut lines = Vec::new();
    for (queues, published) in all {
        let found = hall.compared((PAPER, saba(queues)), BASE)?.all;
        let other = hall.compared((NARROW, saba(queues)), (NARROW, Rival::Baseline))?.all;
        lines.push(vec![
            queues.map_or_else(|| "unlimited".to_owned(), |queues| queues.to_string()),
            published.map_or_else(|| "not in the text".to_owned(), n),
            n(found),
            n(other),
        ]);
    }
    let head = ["queues", "published", "measured", "links between switches carry a quarter"];
    Ok(format!(
        "## Fig. 11b: queues of a port (section 8.4, study 8)\n\nSaba over the baseline. Unlimited is a queue and a priority level for each workload.\n{}",
        table(&head, 0, &lines)
    ))
}

/// The least and the greatest.
fn range(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    (least, values.iter().copied().fold(0.0, f64::max))
}

fn experiments(hall: &mut Hall<'_>) -> Result<String, Failure> {
    let with = |name, world| (name, world, world);
    let wasted = |links| World { links, ..PAPER };
    let tried = [
        with("as it is", PAPER),
        with("links between switches carry a half", World { between: 0.5, ..PAPER }),
        with("links between switches carry a quarter", NARROW),
        with("links between switches carry an eighth", World { between: 0.125, ..PAPER }),
        ("the quarter, and models of what parts of those links are worth", worth()?, NARROW),
        with(
            "the quarter, and no transfer is waited for longer than 8 times",
            World { limit: Some(8.0), ..NARROW },
        ),
        with("every server runs 2 workloads", World { layers: 2, ..PAPER }),
        ("the baseline's links carry 80 %", PAPER, wasted(0.8)),
        ("the baseline's links carry 60 %", PAPER, wasted(0.6)),
    ];
    let rivals = [Rival::Ideal, Rival::Homa, Rival::Sincronia, SABA, DISTRIBUTED, careful(), Rival::Exact];
    let mut wanted = Vec::new();
    for (_, world, base) in &tried {
        wanted.push((*base, Rival::Baseline));
        wanted.extend(rivals.iter().map(|rival| (*world, *rival)));
    }
    hall.prepare(&wanted)?;
    let mut lines = Vec::new();
    for (name, world, base) in tried {
        let mut line = vec![name.to_owned(), n(hall.slowdown((base, Rival::Baseline))?)];
        for rival in rivals {
            line.push(n(hall.compared((world, rival), (base, Rival::Baseline))?.all));
        }
        lines.push(line);
    }
    let order = order(hall)?;
    let hashed = World { paths: Paths::Hashed(hall.seed), ..PAPER };
    let slow = hall.slowdown((hashed, Rival::Baseline))?;
    let head = [
        "experiment",
        "baseline over all bandwidth",
        "ideal max-min",
        "Homa-like",
        "Sincronia",
        "Saba",
        "distributed Saba",
        "Saba, least weight 0.5 of even",
        "Saba with right models",
    ];
    Ok(format!(
        "### What accounts for the differences of 8.4\n\nAverages over the baseline, which runs in the same world unless the line says otherwise. The first column is the average time of jobs under the baseline over \
         what they take with all bandwidth: where it is 1, nobody is in anyone's way. Right models are what a workload is slowed to by a part of a link, and a queue for each.\n{}\
         If each flow takes one of the shortest paths, by hash, instead of a part of all, jobs take {} times as long under the baseline.\n\n{order}",
        table(&head, 1, &lines),
        n(slow)
    ))
}

/// Who comes before whom, where workloads feel each other.
fn order(hall: &mut Hall<'_>) -> Result<String, Failure> {
    let worlds = [
        ("a half", World { between: 0.5, ..PAPER }),
        ("a quarter", NARROW),
        ("an eighth", World { between: 0.125, ..PAPER }),
    ];
    // The last two differ in their models and in nothing else.
    let own_queues = Rival::Saba(None, FLOOR, Controllers::Central);
    let variants = [SABA, careful(), own_queues, Rival::Exact];
    let published = ordered(RIVALS.iter().map(|(name, _, average, _)| (*name, *average)).collect());
    let mut lines = vec![[vec!["published".to_owned(), published], vec!["-".to_owned(); 5]].concat()];
    let (mut places, mut ahead) = ([const { Vec::new() }; 4], 0);
    for (name, world) in worlds {
        let base = (world, Rival::Baseline);
        let mut averages = Vec::new();
        for (rival, how, ..) in RIVALS {
            averages.push((rival, hall.compared((world, how), base)?.all));
        }
        let mut line = vec![format!("links between switches carry {name}"), ordered(averages.clone())];
        let mut most = averages.iter().map(|(_, average)| *average).fold(0.0, f64::max);
        for (place, variant) in places.iter_mut().zip(variants) {
            let own = hall.compared((world, variant), base)?.all;
            let others = RIVALS.iter().zip(&averages).filter(|((_, rival, ..), _)| !rival.is_saba());
            let before = others.filter(|(_, (_, average))| *average >= own).count();
            line.push(format!("{} of 4", before + 1));
            place.push(before + 1);
            most = most.max(own);
        }
        let small = hall.compared((world, Rival::Small), base)?.all;
        ahead += usize::from(small > most);
        line.push(n(small));
        lines.push(line);
    }
    let head = [
        "",
        "from the greatest average to the least",
        "place of Saba",
        "with a least weight of 0.5 of even",
        "with a queue for each workload",
        "that, with right models",
        "average with weights by size",
    ];
    let [paper, _, cubics, right] = &places;
    let better = cubics.iter().zip(right).filter(|(cubic, right)| right < cubic).count();
    let first = |places: &[usize]| places.iter().filter(|place| **place == 1).count();
    Ok(format!(
        "### The order of the rivals\n\nPlaces are among Saba, ideal max-min, Homa-like and Sincronia.\n{}\
         Saba is first in {} of {} worlds, and with right models in {}; right models in place of cubics bring it forward in {better} of them. The last column has a queue for each workload, with a \
         weight of one over the square of what its servers send, and goes by nothing else: its average is above all others of the table in {ahead} of {} worlds. Eq. 2 knows no sizes.\n\n",
        table(&head, 2, &lines),
        first(paper),
        worlds.len(),
        first(right),
        worlds.len(),
    ))
}

/// Names, from the one with the greatest number to the one with the least.
fn ordered(mut averages: Vec<(&str, f64)>) -> String {
    averages.sort_by(|a, b| b.1.total_cmp(&a.1));
    averages.into_iter().map(|(name, _)| name).collect::<Vec<&str>>().join(" > ")
}
