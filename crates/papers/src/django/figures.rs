//! Fig. 5 to 10 and Table 2: Django beside Aalo+ and DCTCP.

use std::rc::Rc;

use weir_sim::outcome::{mean, percentile};

use super::claim::{self, Claim};
use super::lab::{AALO, DCTCP, Lab, Summary, What, World};
use super::world;
use crate::doc;

/// The best number of connections of Fig. 2(a).
const PUBLISHED_BEST: usize = 11;

/// Django, Aalo+ and DCTCP in a world.
pub fn three(lab: &Lab<'_>, world: World) -> [Rc<Summary>; 3] {
    [lab.django(world, ""), lab.get(world, AALO), lab.get(world, DCTCP)]
}

/// The same over worlds: a table of means and P95, and what was found.
fn over(lab: &Lab<'_>, name: &str, worlds: &[(String, World)]) -> (String, Vec<[Rc<Summary>; 3]>) {
    let found: Vec<[Rc<Summary>; 3]> = worlds.iter().map(|(_, world)| three(lab, *world)).collect();
    let mut lines = Vec::new();
    for ((value, world), all) in worlds.iter().zip(&found) {
        let mut line = vec![value.clone(), lab.connections(world).to_string()];
        line.extend(all.iter().map(|summary| doc::n(summary.mean())));
        line.extend(all.iter().map(|summary| doc::n(summary.tail(95.0))));
        lines.push(line);
    }
    let head = [name, "m", "Django mean s", "Aalo+", "DCTCP", "Django P95 s", "Aalo+", "DCTCP"];
    (doc::table(&head, 0, &lines), found)
}

/// How many times as fast Django is.
fn faster(all: &[Rc<Summary>; 3], rival: usize, what: impl Fn(&Summary) -> f64) -> f64 {
    what(&all[rival]) / what(&all[0])
}

/// The basic comparison.
pub fn fig5(lab: &Lab<'_>) -> String {
    let all = three(lab, world());
    let of = |what: &dyn Fn(&Summary) -> f64| all.each_ref().map(|summary| what(summary));
    let mut lines = Vec::new();
    for p in [10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0] {
        let mut line = vec![format!("P{p}")];
        line.extend(of(&|summary| summary.tail(p)).map(doc::n));
        lines.push(line);
    }
    let mut line = vec!["mean".to_owned()];
    line.extend(of(&|summary| summary.mean()).map(doc::n));
    lines.push(line);
    let part = |rival: usize, what: &dyn Fn(&Summary) -> f64| 1.0 / faster(&all, rival, what);
    let (average, tail) = (|summary: &Summary| summary.mean(), |summary: &Summary| summary.tail(95.0));
    let claims = [
        Claim::number("mean over Aalo+'s", "6.1: \"to 85%\"", 0.85, part(1, &average)),
        Claim::number("mean over DCTCP's", "6.1: \"and 65%\"", 0.65, part(2, &average)),
        Claim::number("P95 over Aalo+'s", "6.1: \"to 60%\"", 0.60, part(1, &tail)),
        Claim::number("P95 over DCTCP's", "6.1: \"and 23%\"", 0.23, part(2, &tail)),
        Claim::says(
            "Django is better than both, on average and at P95",
            "6.4, Fig. 5",
            format!("{} and {} s", doc::n(all[0].mean()), doc::n(all[0].tail(95.0))),
            [1, 2].iter().all(|&rival| part(rival, &average) < 1.0 && part(rival, &tail) < 1.0),
        ),
    ];
    format!(
        "## Fig. 5: basic performance\n\nCCTs in seconds.\n{}{}",
        doc::table(&["", "Django", "Aalo+", "DCTCP"], 1, &lines),
        claim::table(&claims)
    )
}

/// Buffers.
pub fn fig6(lab: &Lab<'_>) -> String {
    let worlds = [25, 50, 75, 100, 150, 250];
    let worlds: Vec<(String, World)> =
        worlds.map(|buffer| (buffer.to_string(), World { buffer, ..world() })).into();
    let (table, found) = over(lab, "packets", &worlds);
    let tail = |summary: &Summary| summary.tail(95.0);
    let spread = |policy: usize| {
        let means = found.iter().map(|all| all[policy].mean());
        means.clone().fold(0.0, f64::max) / means.fold(f64::INFINITY, f64::min)
    };
    let spreads = [0, 1, 2].map(spread);
    let claims = [
        Claim::number(
            "50 packets: P95, times as fast as Aalo+",
            "6.4, Fig. 6(a): \"2.3x\"",
            2.3,
            faster(&found[1], 1, tail),
        ),
        Claim::number(
            "50 packets: P95, times as fast as DCTCP",
            "6.4: \"and 1.9x\"",
            1.9,
            faster(&found[1], 2, tail),
        ),
        Claim::number(
            "150 packets: P95, times as fast as Aalo+",
            "6.4: \"1.2x ... larger than 100\"",
            1.2,
            faster(&found[4], 1, tail),
        ),
        Claim::number(
            "150 packets: P95, times as fast as DCTCP",
            "6.4: \"and 1.5x\"",
            1.5,
            faster(&found[4], 2, tail),
        ),
        Claim::says(
            "Django depends least on the buffer",
            "6.4: \"Aalo+ and DCTCP are more rigid\"",
            format!(
                "worst over best mean: {}, {} and {}",
                doc::n(spreads[0]),
                doc::n(spreads[1]),
                doc::n(spreads[2])
            ),
            spreads[0] < spreads[1] && spreads[0] < spreads[2],
        ),
    ];
    format!(
        "## Fig. 6: buffers\n\nm is Django's number of connections. More than {} were not measured, and are taken to cost what so many do, under every \
         policy.\n{table}{}",
        lab.data.most(),
        claim::table(&claims)
    )
}

/// Reducers of a host.
pub fn fig7(lab: &Lab<'_>) -> String {
    let counts = [2, 4, 8, 12, 16];
    let worlds: Vec<(String, World)> =
        counts.map(|count| (count.to_string(), World { what: What::Reducers(count), ..world() })).into();
    let (table, found) = over(lab, "reducers", &worlds);
    let growth = |policy: usize| found[4][policy].mean() / found[2][policy].mean();
    let growths = [0, 1, 2].map(growth);
    let claims = [Claim::says(
        "beyond 8, Aalo+ and DCTCP grow more than Django",
        "6.4, Fig. 7: \"when the number of reducers exceeds 10\"",
        format!(
            "from 8 to 16: {}, {} and {} times",
            doc::n(growths[1]),
            doc::n(growths[2]),
            doc::n(growths[0])
        ),
        growths[1] > growths[0] && growths[2] > growths[0],
    )];
    format!(
        "## Fig. 7: reducers per host\n\nSo many coflows at a time have a reducer on each of {} hosts, which gets as much from each; the next begins when one \
         ends, 96 in all, of four sizes.\n{table}{}",
        world().hosts,
        claim::table(&claims)
    )
}

/// Loads.
pub fn fig8(lab: &Lab<'_>) -> String {
    let loads = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0];
    let worlds: Vec<(String, World)> = loads.map(|load| (load.to_string(), World { load, ..world() })).into();
    let (table, found) = over(lab, "load ratio", &worlds);
    let (average, tail) = (|summary: &Summary| summary.mean(), |summary: &Summary| summary.tail(95.0));
    let growth = |policy: usize| found[5][policy].mean() - found[0][policy].mean();
    let claims = [
        Claim::number(
            "load 3: P95, times as fast as Aalo+",
            "6.4, Fig. 8: \"1.3x\"",
            1.3,
            faster(&found[5], 1, tail),
        ),
        Claim::number(
            "load 3: P95, times as fast as DCTCP",
            "6.4: \"and 2.2x\"",
            2.2,
            faster(&found[5], 2, tail),
        ),
        Claim::number(
            "load 3: mean, times as fast as Aalo+",
            "6.4: \"1.2x\"",
            1.2,
            faster(&found[5], 1, average),
        ),
        Claim::number(
            "load 3: mean, times as fast as DCTCP",
            "6.4: \"and 1.38x\"",
            1.38,
            faster(&found[5], 2, average),
        ),
        Claim::says(
            "Django's mean grows slowest with load",
            "6.4: \"increases slower\"",
            format!(
                "by {}, Aalo+'s {}, DCTCP's {} s",
                doc::n(growth(0)),
                doc::n(growth(1)),
                doc::n(growth(2))
            ),
            growth(0) < growth(1) && growth(0) < growth(2),
        ),
    ];
    format!("## Fig. 8: load\n{table}{}", claim::table(&claims))
}

/// Hosts.
pub fn fig9(lab: &Lab<'_>) -> String {
    let hosts = [8, 16, 32, 64, 128];
    let worlds: Vec<(String, World)> =
        hosts.map(|hosts| (hosts.to_string(), World { hosts, ..world() })).into();
    let (table, found) = over(lab, "hosts", &worlds);
    let (average, tail) = (|summary: &Summary| summary.mean(), |summary: &Summary| summary.tail(95.0));
    let claims = [
        Claim::number(
            "128 hosts: P95, times as fast as Aalo+",
            "6.4, Fig. 9: \"2x\"",
            2.0,
            faster(&found[4], 1, tail),
        ),
        Claim::number(
            "128 hosts: P95, times as fast as DCTCP",
            "6.4: \"and 2.1x\"",
            2.1,
            faster(&found[4], 2, tail),
        ),
        Claim::number(
            "128 hosts: mean, times as fast as Aalo+",
            "6.4: \"1.4x\"",
            1.4,
            faster(&found[4], 1, average),
        ),
        Claim::number(
            "128 hosts: mean, times as fast as DCTCP",
            "6.4: \"1.75x\"",
            1.75,
            faster(&found[4], 2, average),
        ),
    ];
    format!(
        "## Fig. 9: hosts\n\nThe load of a port stays. The paper does not say of how many hosts its factors are; here they are of 128.\n{table}{}",
        claim::table(&claims)
    )
}

/// What a schedule takes, with the paper's number of connections and with that of the theorem.
pub fn fig10(lab: &Lab<'_>) -> String {
    let (mut lines, mut each) = (Vec::new(), Vec::new());
    let theorem = lab.connections(&world());
    let run = |hosts: u32, connections: usize| {
        lab.get(World { hosts, ..world() }, &format!("django:connections={connections}"))
    };
    let part = |times: &[f64]| times.iter().filter(|&&ms| ms < 10.0).count() as f64 / times.len() as f64;
    for connections in [PUBLISHED_BEST, theorem] {
        for hosts in [16, 32, 64, 128] {
            let times = &run(hosts, connections).schedules;
            let host = mean(times) * 1e3 / f64::from(hosts);
            let mut line = vec![connections.to_string(), hosts.to_string(), doc::share(part(times))];
            let ms = [mean(times), percentile(times, 50.0), percentile(times, 95.0), percentile(times, 99.0)];
            line.extend(ms.map(|ms| doc::n(ms * 1e3)));
            line.push(doc::n(host));
            lines.push(line);
            each.push((connections, host));
        }
    }
    let most = |connections: usize| {
        let of = each.iter().filter(|(own, _)| *own == connections).map(|&(_, host)| host);
        of.fold(0.0, f64::max)
    };
    let times = &run(world().hosts, PUBLISHED_BEST).schedules;
    let wanted = |connections: usize| {
        Claim::says(
            &format!("a host's decision takes 50 us or less, with {connections} connections"),
            "(wanted; a schedule over its hosts)",
            format!("at most {} us", doc::n(most(connections))),
            most(connections) <= 50.0,
        )
    };
    let claims = [
        Claim::says(
            "94.1 % take less than 10 ms",
            "6.4, Fig. 10",
            doc::share(part(times)),
            part(times) >= 0.941,
        ),
        Claim::says(
            "4.8 ms on average, or less",
            "6.4, Fig. 10",
            format!("{} ms", doc::n(mean(times))),
            mean(times) <= 4.8,
        ),
        wanted(PUBLISHED_BEST),
        wanted(theorem),
    ];
    format!(
        "## Fig. 10: the time of a schedule\n\nBy a clock, which no two runs agree on, while as many other replays ran as `--jobs` says. A schedule decides for \
         all hosts, which in the paper each do for themselves, and it finds what their connections settle at, which in a network TCP does. The \
         paper's best number of connections is {PUBLISHED_BEST} (Fig. 2).\n{}{}",
        doc::table(
            &["connections", "hosts", "below 10 ms", "mean us", "P50", "P95", "P99", "mean us a host"],
            0,
            &lines
        ),
        claim::table(&claims)
    )
}

/// The testbed, simulated.
pub fn table2(lab: &Lab<'_>) -> String {
    let seven = World { hosts: 7, ..world() };
    let (django, dctcp) = (lab.django(seven, ""), lab.get(seven, DCTCP));
    let published = [("mean", 15.7, 18.1), ("P95", 10.9, 30.1), ("P99", 133.6, 1037.9)];
    let of = |summary: &Summary| [summary.mean(), summary.tail(95.0), summary.tail(99.0)];
    let mut lines = Vec::new();
    let mut claims = Vec::new();
    for ((name, own, rival), (mine, other)) in
        published.into_iter().zip(of(&django).into_iter().zip(of(&dctcp)))
    {
        lines.push(vec![name.to_owned(), doc::n(own), doc::n(rival), doc::n(mine), doc::n(other)]);
        let what = format!("{name} over DCTCP's");
        claims.push(Claim::number(&what, "6.3, Table 2", own / rival, mine / other));
    }
    format!(
        "## Table 2: seven servers\n\nThe paper's testbed has seven servers that send; here seven hosts are simulated. CCTs; the paper gives no unit, here \
         they are seconds.\n{}{}",
        doc::table(&["", "Django, published", "DCTCP, published", "Django", "DCTCP"], 1, &lines),
        claim::table(&claims)
    )
}
