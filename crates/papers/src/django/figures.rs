//! Writes Fig. 5 to 9, Fig. 11, Table 2 and the assumptions: Django next to Aalo+ and DCTCP. The functions also add the
//! paper's statements about a figure to a list of claims.

use std::rc::Rc;

use weir_console::chart::{DotPlot, DotRow, DotSeries, LineChart, Scale, distribution};

use super::replays::{DCTCP, PUBLISHED_BEST, Replays, STRICT_AALO, Summary};
use super::setup::{ConnectionCost, DEFAULT, Setup, WorkloadSource};
use crate::claim::Claim;
use crate::markdown;
use crate::picture::Pictures;

/// Fig. 5: the basic comparison.
pub fn fig5(replays: &Replays<'_>, claims: &mut Vec<Claim>, pictures: &mut Pictures) -> String {
    let all = replays.compare_policies(DEFAULT);
    let row = |name: String, value: &dyn Fn(&Summary) -> f64| {
        [vec![name], all.iter().map(|summary| markdown::format_cell(value(summary))).collect()].concat()
    };
    let percentiles = [10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0];
    let mut rows: Vec<_> =
        percentiles.iter().map(|&p| row(format!("P{p}"), &|summary| summary.percentile(p))).collect();
    rows.push(row("mean".to_owned(), &Summary::mean));
    claims.extend([
        Claim::number("mean CCT / Aalo+'s", "6.1: \"to 85%\"", 0.85, all[0].mean() / all[1].mean()),
        Claim::number("mean CCT / DCTCP's", "6.1: \"and 65%\"", 0.65, all[0].mean() / all[3].mean()),
        Claim::number("P95 / Aalo+'s", "6.1: \"to 60%\"", 0.60, all[0].p95() / all[1].p95()),
        Claim::number("P95 / DCTCP's", "6.1: \"and 23%\"", 0.23, all[0].p95() / all[3].p95()),
    ]);
    format!(
        "## Fig. 5: basic performance\n\nCCTs in seconds.\n{}",
        markdown::table(&["", "Django", "Aalo+", "Aalo+ strict", "DCTCP"], 1, &rows)
    ) + &pictures.add(
        "times",
        "Distributions of completion times under Django, Aalo+, Aalo+ with strict queues, and DCTCP",
        "Part of the coflows that take at most this time. The paper prints curves, of which its text quotes ratios (above).",
        times_chart(&all),
    )
}

/// The names of the policies on the page, in the order of [`Replays::compare_policies`].
const POLICY_NAMES: [&str; 4] = ["Django", "Aalo+", "Aalo+ strict", "DCTCP"];

fn times_chart(summaries: &[Rc<Summary>; 4]) -> Option<String> {
    let line = |summary: &Rc<Summary>| -> Vec<(f64, f64)> {
        distribution(summary.ccts()).into_iter().filter(|(cct, _)| *cct > 0.0).collect()
    };
    LineChart {
        x_title: "CCT (s)",
        y_title: "part of the coflows",
        x_scale: Scale::Log,
        y_max: 1.0,
        lines: summaries.iter().map(line).collect(),
        names: &POLICY_NAMES.map(str::to_owned),
        ..LineChart::default()
    }
    .to_svg()
}

const BUFFERS: [u32; 6] = [25, 50, 75, 100, 150, 250];
const REDUCERS: [u32; 5] = [2, 4, 8, 12, 16];
const LOADS: [f64; 6] = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0];
const HOSTS: [u32; 5] = [8, 16, 32, 64, 128];

fn reducers_setup(count: u32) -> Setup {
    Setup { source: WorkloadSource::Reducers(count), ..DEFAULT }
}

/// Fig. 6 to 9: buffers, reducers, loads and hosts.
pub fn fig6_to_9(replays: &Replays<'_>, pictures: &mut Pictures) -> String {
    let mut setups = vec![("default".to_owned(), DEFAULT)];
    let mut add = |name: String, setup: Setup| {
        // The default setup is a point of several figures; the table has it once.
        if setup != DEFAULT {
            setups.push((name, setup));
        }
    };
    BUFFERS.iter().for_each(|&buffer| {
        add(format!("Fig. 6: {buffer} packets"), Setup { buffer_packets: buffer, ..DEFAULT })
    });
    REDUCERS.iter().for_each(|&count| add(format!("Fig. 7: {count} reducers"), reducers_setup(count)));
    LOADS
        .iter()
        .for_each(|&load| add(format!("Fig. 8: load {load}"), Setup { coflows_per_sec: load, ..DEFAULT }));
    HOSTS.iter().for_each(|&hosts| add(format!("Fig. 9: {hosts} hosts"), Setup { hosts, ..DEFAULT }));
    let row = |(name, setup): (String, Setup)| {
        let all = replays.compare_policies(setup);
        let mut row = vec![name, replays.inputs.connections(&setup).to_string()];
        row.extend(all.iter().map(|summary| markdown::format_cell(summary.mean())));
        row.extend(all.iter().map(|summary| markdown::format_cell(summary.p95())));
        row
    };
    let dots = |(name, setup): &(String, Setup)| {
        DotRow::new(name.as_str(), &replays.compare_policies(*setup).map(|summary| Some(summary.mean())))
    };
    let plot = DotPlot {
        title: "mean CCT (s)",
        scale: Scale::Log,
        reference: None,
        series: POLICY_NAMES.map(DotSeries::measured).to_vec(),
        rows: setups.iter().map(dots).collect(),
    };
    let rows: Vec<_> = setups.into_iter().map(row).collect();
    let head = [
        "setup",
        "m",
        "Django mean s",
        "Aalo+",
        "Aalo+ strict",
        "DCTCP",
        "Django P95 s",
        "Aalo+",
        "Aalo+ strict",
        "DCTCP",
    ];
    format!(
        "## Fig. 6 to 9: buffers, reducers, load and hosts\n\n\
         The default is {} packets, load 1 and {} hosts. m is Django's number of connections. Fig. 7: n reducers are n \
         concurrent coflows with one reducer on each host. There are 96 coflows of four sizes; a coflow starts when an \
         earlier one ends. Fig. 9: the load of a port does not change.\n\
         {}",
        DEFAULT.buffer_packets,
        DEFAULT.hosts,
        markdown::table(&head, 1, &rows)
    ) + &pictures.add(
        "setups",
        "Mean completion times under Django, Aalo+ (weighted and strict queues) and DCTCP by buffer, reducers, load and hosts",
        "The mean CCTs of the table. The paper prints curves, of which its text quotes speedups (above).",
        plot.to_svg(),
    )
}

/// The speedups of Django over Aalo+ and over DCTCP. `published` has the citation and the value of each.
fn speedups(
    subject: &str,
    all: &[Rc<Summary>; 4],
    value: fn(&Summary) -> f64,
    published: [(&'static str, f64); 2],
) -> [Claim; 2] {
    let rivals = [(1, "Aalo+"), (3, "DCTCP")];
    [0, 1].map(|index| {
        let ((rival, name), (citation, published)) = (rivals[index], published[index]);
        let measured = value(&all[rival]) / value(&all[0]);
        Claim::number(format!("{subject}, speedup over {name}"), citation, published, measured)
    })
}

/// The paper's statements about Fig. 6 to 9.
pub fn claims_6_to_9(replays: &Replays<'_>) -> Vec<Claim> {
    let [packets_50, packets_150] =
        [50, 150].map(|buffer| replays.compare_policies(Setup { buffer_packets: buffer, ..DEFAULT }));
    let load_3 = replays.compare_policies(Setup { coflows_per_sec: 3.0, ..DEFAULT });
    let hosts_128 = replays.compare_policies(Setup { hosts: 128, ..DEFAULT });
    let mut claims = Vec::new();
    let at_50 = [("6.4, Fig. 6(a): \"2.3x\"", 2.3), ("6.4: \"and 1.9x\"", 1.9)];
    claims.extend(speedups("50 packets: P95", &packets_50, Summary::p95, at_50));
    let at_150 = [("6.4: \"1.2x ... larger than 100\"", 1.2), ("6.4: \"and 1.5x\"", 1.5)];
    claims.extend(speedups("150 packets: P95", &packets_150, Summary::p95, at_150));
    // Applies `figure` to the mean CCTs of all setups, for each policy.
    let figures_by_policy = |setups: &[Setup], figure: &dyn Fn(&[f64]) -> f64| {
        let means = |index: usize| {
            setups.iter().map(|&setup| replays.compare_policies(setup)[index].mean()).collect::<Vec<f64>>()
        };
        let figures = POLICY_NAMES
            .iter()
            .enumerate()
            .map(|(index, name)| format!("{name} {}", markdown::format_cell(figure(&means(index)))));
        figures.collect::<Vec<String>>().join(", ")
    };
    let buffers = BUFFERS.map(|buffer| Setup { buffer_packets: buffer, ..DEFAULT });
    claims.push(Claim::statement(
        "buffers: highest / lowest mean CCT",
        "6.4, Fig. 6",
        "\"Aalo+ and DCTCP are more rigid\"",
        figures_by_policy(&buffers, &|means| {
            means.iter().copied().fold(0.0, f64::max) / means.iter().copied().fold(f64::INFINITY, f64::min)
        }),
    ));
    claims.push(Claim::statement(
        "mean CCT with 16 reducers / with 8",
        "6.4, Fig. 7",
        "beyond 10, Aalo+ and DCTCP \"increase significantly\"",
        figures_by_policy(&[8, 16].map(reducers_setup), &|means| means[1] / means[0]),
    ));
    let at_3 = [("6.4, Fig. 8: \"1.3x\"", 1.3), ("6.4: \"and 2.2x\"", 2.2)];
    claims.extend(speedups("load 3: P95", &load_3, Summary::p95, at_3));
    let at_3 = [("6.4: \"1.2x\"", 1.2), ("6.4: \"and 1.38x\"", 1.38)];
    claims.extend(speedups("load 3: mean", &load_3, Summary::mean, at_3));
    claims.push(Claim::statement(
        "load 0.5 to 3: increase of the mean, s",
        "6.4, Fig. 8",
        "Django \"increases slower\"",
        figures_by_policy(&[0.5, 3.0].map(|load| Setup { coflows_per_sec: load, ..DEFAULT }), &|means| {
            means[1] - means[0]
        }),
    ));
    let at_128 = [("6.4, Fig. 9: \"2x\"", 2.0), ("6.4: \"and 2.1x\"", 2.1)];
    claims.extend(speedups("128 hosts: P95", &hosts_128, Summary::p95, at_128));
    let at_128 = [("6.4, Fig. 9: \"1.4x\"", 1.4), ("6.4: \"1.75x\"", 1.75)];
    claims.extend(speedups("128 hosts: mean", &hosts_128, Summary::mean, at_128));
    claims.push(Claim::statement(
        "mean CCT with 128 hosts / with 8",
        "6.4, Fig. 9",
        "Django \"changes slightly\"",
        figures_by_policy(&[8, 128].map(|hosts| Setup { hosts, ..DEFAULT }), &|means| means[1] / means[0]),
    ));
    claims
}

/// Aalo+ with strict queues next to the default, weighted queues: Django's ratios and speedups.
pub fn strict_aalo(replays: &Replays<'_>) -> String {
    let [default, packets_50, packets_150, load_3, hosts_128] = [
        DEFAULT,
        Setup { buffer_packets: 50, ..DEFAULT },
        Setup { buffer_packets: 150, ..DEFAULT },
        Setup { coflows_per_sec: 3.0, ..DEFAULT },
        Setup { hosts: 128, ..DEFAULT },
    ]
    .map(|setup| replays.compare_policies(setup));
    let row = |name: &str, published: f64, measured: [f64; 2]| {
        let cells = [published, measured[0], measured[1]].map(markdown::format_cell);
        [vec![name.to_owned()], cells.to_vec()].concat()
    };
    let ratios = |[django, aalo, strict, _]: &[Rc<Summary>; 4], value: fn(&Summary) -> f64| {
        [aalo, strict].map(|rival| value(django) / value(rival))
    };
    let speedups =
        |all: &[Rc<Summary>; 4], value: fn(&Summary) -> f64| ratios(all, value).map(|ratio| 1.0 / ratio);
    let rows = [
        row("mean CCT / Aalo+'s", 0.85, ratios(&default, Summary::mean)),
        row("P95 / Aalo+'s", 0.60, ratios(&default, Summary::p95)),
        row("50 packets: P95, speedup over Aalo+", 2.3, speedups(&packets_50, Summary::p95)),
        row("150 packets: P95, speedup over Aalo+", 1.2, speedups(&packets_150, Summary::p95)),
        row("load 3: P95, speedup over Aalo+", 1.3, speedups(&load_3, Summary::p95)),
        row("load 3: mean, speedup over Aalo+", 1.2, speedups(&load_3, Summary::mean)),
        row("128 hosts: P95, speedup over Aalo+", 2.0, speedups(&hosts_128, Summary::p95)),
        row("128 hosts: mean, speedup over Aalo+", 1.4, speedups(&hosts_128, Summary::mean)),
    ];
    format!(
        "### Aalo+ with strict queues\n\n\
         The paper does not state how Aalo+ shares a port between queues. Aalo's queues have weights, so Aalo+ has weighted \
         queues in the table above. Django's mappers serve their prioritized reducer first. Strict queues \
         (`{STRICT_AALO}`) give Aalo+ the same priority at senders.\n\
         {}",
        markdown::table(&["", "published", "weighted queues", "strict queues"], 1, &rows)
    )
}

/// Table 2: the paper's testbed of seven servers, simulated.
pub fn table2(replays: &Replays<'_>, claims: &mut Vec<Claim>) -> String {
    let setup = Setup { hosts: 7, ..DEFAULT };
    let (django, dctcp) = (replays.django(setup, ""), replays.summary(setup, DCTCP));
    let published = [("mean", 15.7, 18.1), ("P95", 10.9, 30.1), ("P99", 133.6, 1037.9)];
    let figures = |summary: &Summary| [summary.mean(), summary.p95(), summary.percentile(99.0)];
    let row = |((name, own, rival), (measured, other)): ((&str, f64, f64), (f64, f64))| {
        let cells = [own, rival, own / rival, measured, other, measured / other];
        [vec![name.to_owned()], cells.map(markdown::format_cell).to_vec()].concat()
    };
    let rows: Vec<_> =
        published.into_iter().zip(figures(&django).into_iter().zip(figures(&dctcp))).map(row).collect();
    let speedup = dctcp.mean() / django.mean();
    claims.push(Claim::number(
        "seven servers: mean, speedup over DCTCP",
        "6.3: \"around 1.3x\"",
        1.3,
        speedup,
    ));
    let head = ["", "Django, published", "DCTCP", "ratio", "Django, measured", "DCTCP", "ratio"];
    format!(
        "## Table 2: seven servers\n\n\
         The paper's testbed, simulated with seven hosts. Figures are CCTs. The measured ones are in seconds; the paper \
         gives no unit.\n\
         {}",
        markdown::table(&head, 1, &rows)
    )
}

/// Fig. 11: Django's parameters, one at a time.
pub fn fig11(replays: &Replays<'_>, claims: &mut Vec<Claim>) -> String {
    let parameters = [
        ("alpha", [0.02, 0.1, 0.3, 0.5, 0.9], "6.4, Fig. 11(a)", "small: \"can improve ... CCT\""),
        ("beta", [0.3, 0.5, 0.7, 0.8, 0.9], "6.4, Fig. 11(b)", "\"[0.7 0.9]\""),
        ("eta", [0.2, 0.4, 0.6, 0.8, 1.0], "6.4, Fig. 11(c)", "\"around 0.6\""),
    ];
    let mut rows = Vec::new();
    for (name, values, citation, published) in parameters {
        let means = values.map(|value| replays.django(DEFAULT, &format!(":{name}={value}")).mean());
        let min_mean = means.iter().copied().fold(f64::INFINITY, f64::min);
        let join = |texts: Vec<String>| texts.join(", ");
        let near_best = values.iter().zip(means).filter(|(_, mean)| *mean <= 1.01 * min_mean);
        let best = join(near_best.map(|(value, _)| value.to_string()).collect());
        claims.push(Claim::statement(&format!("best {name}"), citation, published, best));
        let values = join(values.iter().map(ToString::to_string).collect());
        rows.push(vec![name.to_owned(), values, join(means.map(markdown::format_cell).to_vec())]);
    }
    format!(
        "## Fig. 11: alpha, beta and eta\n\n\
         One parameter changes at a time, with {} connections. The other parameters are alpha 0.1, beta 0.7, eta 0.5, lambda \
         0.2 and theta 0. The best values are those within 1 % of the lowest mean.\n\
         {}",
        replays.inputs.connections(&DEFAULT),
        markdown::table(&["parameter", "values", "mean CCT s"], 3, &rows)
    )
}

/// The assumptions that change the results most.
pub fn assumptions(replays: &Replays<'_>) -> String {
    let cost = |cost| Setup { cost, ..DEFAULT };
    let row = |name: &str, m: usize, [django, rivals @ ..]: [Rc<Summary>; 4]| {
        let ratios = |value: fn(&Summary) -> f64| {
            let django_value = value(&django);
            let ratios = rivals.iter().map(move |rival| django_value / value(rival));
            [django_value].into_iter().chain(ratios).map(markdown::format_cell).collect::<Vec<String>>()
        };
        let figures = ratios(Summary::mean).into_iter().chain(ratios(Summary::p95));
        [name.to_owned(), m.to_string()].into_iter().chain(figures).collect::<Vec<String>>()
    };
    let setup_row =
        |name, setup| row(name, replays.inputs.connections(&setup), replays.compare_policies(setup));
    let django_row = |name, connections, parameters| {
        let [_, aalo, strict_aalo, dctcp] = replays.compare_policies(DEFAULT);
        row(
            name,
            connections,
            [replays.django_with(DEFAULT, connections, parameters), aalo, strict_aalo, dctcp],
        )
    };
    let published = ["published (6.1)", "-", "-", "0.85", "0.85", "0.65", "-", "0.60", "0.60", "0.23"];
    let rows = [
        published.map(str::to_owned).to_vec(),
        setup_row("default: steady connections", DEFAULT),
        setup_row("connections cost nothing", cost(ConnectionCost::None)),
        setup_row("512 kB per connection, starting together", cost(ConnectionCost::Marked)),
        setup_row("the same without marks", cost(ConnectionCost::Plain)),
        setup_row("64 kB per connection, starting together", cost(ConnectionCost::SmallTransfers)),
        django_row("the paper's best number of connections", PUBLISHED_BEST, ""),
        django_row("theta = 0.5", replays.inputs.connections(&DEFAULT), ":theta=0.5"),
    ];
    let head = [
        "assumption",
        "m",
        "mean s",
        "/ Aalo+'s",
        "/ strict Aalo+'s",
        "/ DCTCP's",
        "P95 s",
        "/ Aalo+'s",
        "/ strict Aalo+'s",
        "/ DCTCP's",
    ];
    format!(
        "## Assumptions\n\n\
         The assumptions that change Django's results most, one at a time. Section 6.1 gives alpha, beta, lambda and \
         \"m\" as 0.1, 0.7, 0.2 and 0.5. Weir takes the 0.5 as eta, which 4.2 calls \"a half of the number of free \
         connections\". The paper gives no theta.\n\
         {}",
        markdown::table(&head, 1, &rows)
    )
}
