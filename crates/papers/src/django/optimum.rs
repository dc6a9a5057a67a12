//! What connections cost (sections 2.3 and 4.1), and Fig. 2: one coflow, and how many connections are best for it.

use weir_core::model::HeldOut;
use weir_core::units::Rate;
use weir_sim::outcome::mean;
use weir_trace::incast::Measured;

use super::claim::{self, Claim};
use super::lab::{Cost, Data, Lab, PIECE, SHUFFLE_HOSTS, TASKS, What, World, rate};
use super::world;
use crate::doc;
use weir_console::table;

/// Connections of Fig. 2.
const CONNECTIONS: [usize; 12] = [1, 2, 3, 4, 6, 8, 11, 16, 24, 32, 48, 64];

/// The columns of [`parts`].
const COLUMNS: [usize; 9] = [1, 2, 4, 8, 11, 16, 32, 64, 100];

/// What part of a link is carried.
fn parts(measured: &Measured) -> String {
    let mut lines = Vec::new();
    for &buffer in measured.incast.buffers() {
        let goodput = measured.incast.goodput(buffer, rate(&world())).expect("it was measured");
        let mut line = vec![buffer.to_string()];
        line.extend(COLUMNS.iter().map(|&n| doc::n(goodput.part(n))));
        line.push(goodput.best().to_string());
        lines.push(line);
    }
    let names: Vec<String> = COLUMNS.iter().map(ToString::to_string).collect();
    let mut head = vec!["packets"];
    head.extend(names.iter().map(String::as_str));
    head.push("the most that cost nothing");
    doc::table(&head, 0, &lines)
}

/// What was measured, and how good the fit is.
pub fn cost(lab: &Lab<'_>) -> String {
    let Data { plain, marked, small, .. } = &lab.data;
    let mut out = format!(
        "## What connections cost\n\nBy measurement ([the format, the fit and the data](../incast-format.md)), for {} a connection and links of \
         {}: what part of a link is carried, by the packets that a port holds and the connections that send at once. The kernel \
         measured on has no DCTCP; what comes nearest is {marked}. DCTCP slows down by how much is marked, and this by half whenever something \
         is. Where many connections send at once all is marked, and they do the same.\n{}The same without marks, for {plain}:\n{}",
        table::bytes(marked.incast.bytes()),
        rate(&world()),
        parts(marked),
        parts(plain),
    );
    out.push_str(
        "How far off the fit is, if a buffer is left out: the mean difference of parts, beside that of a curve of connections over \
         packets of buffer alone.\n",
    );
    let slow = Rate::new(Rate::GBIT.get() / 10.0).expect("a constant");
    let files = [small, marked, plain];
    let kinds: Vec<(&Measured, Rate, HeldOut)> = files
        .into_iter()
        .flat_map(|measured| [slow, Rate::GBIT].map(|link| (measured, link)))
        .map(|(measured, link)| {
            (measured, link, measured.incast.held_out(link).expect("there are three buffers"))
        })
        .collect();
    let line = |(measured, link, held_out): &(&Measured, Rate, HeldOut)| {
        vec![
            table::bytes(measured.incast.bytes()),
            measured.to_string(),
            link.to_string(),
            doc::n(held_out.between_buffers),
            doc::n(held_out.by_ratio),
        ]
    };
    let lines: Vec<Vec<String>> = kinds.iter().map(line).collect();
    out.push_str(&doc::table(&["a connection", "TCP", "link", "between buffers", "by the ratio"], 3, &lines));
    let better = kinds.iter().filter(|(_, _, held_out)| held_out.between_buffers <= held_out.by_ratio);
    out.push_str(&format!(
        "The fit between buffers is the nearer one in {} of the {} cases. It is used in all: at a buffer that was measured, as all are here, it goes \
         by the runs with that buffer, and the curve does not.\n\n",
        better.count(),
        kinds.len()
    ));
    out
}

fn shuffled(seed: u64) -> World {
    World { what: What::Shuffle(seed), hosts: SHUFFLE_HOSTS, ..world() }
}

fn ccts(lab: &Lab<'_>, seeds: u64, change: impl Fn(World) -> World, policy: &str) -> f64 {
    mean(&(1..=seeds).map(|seed| lab.get(change(shuffled(seed)), policy).mean()).collect::<Vec<f64>>())
}

/// The section of Fig. 2, over so many draws.
pub fn section(lab: &Lab<'_>, seeds: u64) -> String {
    let goodput = lab.data.goodput(&world()).expect("connections cost in it");
    let free = |world: World| World { cost: Cost::None, ..world };
    let mut lines = Vec::new();
    let mut found = Vec::new();
    for connections in CONNECTIONS {
        let policy = format!("django:connections={connections}");
        let (cct, without) = (ccts(lab, seeds, |world| world, &policy), ccts(lab, seeds, free, &policy));
        let loss = doc::share(goodput.loss(connections));
        lines.push(vec![connections.to_string(), doc::n(cct), doc::n(without), loss]);
        found.push((connections, cct));
    }
    let least = found.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).expect("some");
    let (first, last) = (found[0].1, found[found.len() - 1].1);
    let rivals = [super::lab::AALO, super::lab::DCTCP].map(|policy| ccts(lab, seeds, |world| world, policy));
    let best = lab.connections(&world());
    let claims = [
        Claim::number("the best number of connections", "2.3, Fig. 2(a): \"11\"", 11.0, least.0 as f64),
        Claim::says(
            "fewer are worse",
            "2.3: \"prolonged if the number of connections is less than ... 11\"",
            format!("{} s with 1, {} s at best", doc::n(first), doc::n(least.1)),
            first > 1.01 * least.1,
        ),
        Claim::says(
            "more are worse",
            "2.3: \"or larger than 11\"",
            format!(
                "{} s with {}, {} s at best",
                doc::n(last),
                CONNECTIONS[CONNECTIONS.len() - 1],
                doc::n(least.1)
            ),
            last > 1.01 * least.1,
        ),
    ];
    format!(
        "## Fig. 2: how many connections are best\n\nOne coflow of {TASKS} mappers and {TASKS} reducers, as many on each of {SHUFFLE_HOSTS} hosts, \
         {} from each mapper to each reducer on average, links of {}, a port of {} packets; means over {seeds} draws of the sizes. Loss is what was \
         measured with so many connections.\n{}\
         `{}` takes {} s and `{}` {} s: they have no limit of connections. By theorem 4.1 Django has {best}.\n{}",
        table::bytes(PIECE * world().pace),
        rate(&world()),
        world().buffer,
        doc::table(&["connections", "CCT s", "CCT s if they cost nothing", "loss"], 0, &lines),
        super::lab::AALO,
        doc::n(rivals[0]),
        super::lab::DCTCP,
        doc::n(rivals[1]),
        claim::table(&claims),
    )
}
