//! Fig. 1 to 5: the examples of sections 2 and 3.

use weir_core::model::Plan;
use weir_core::model::scenario::Sending;
use weir_core::solve::{Hierarchy, Shares};
use weir_sim::service::Mechanism;

use super::Making;
use super::scene::{Scene, at_the_end, mbit};
use crate::doc::{n, table, yes};
use weir_console::failure::Failure;

/// An example: what it is, where it stands, the paper's words, the exact numbers and the measured ones, in Gbit/s.
type Example = (&'static str, &'static str, &'static str, Vec<f64>, Vec<f64>);

const TCP: Sending = Sending::Elastic;

/// How far a number may be from the exact one, as a part: rounding.
const EXACT: f64 = 1e-9;

/// Published and measured.
///
/// # Errors
/// If a run is ended early.
pub(super) fn section(making: &Making<'_>) -> Result<String, Failure> {
    let gbit = |scene: &Scene, mechanism| {
        let shared = scene.run(mechanism, making)?;
        Ok::<_, Failure>(at_the_end(&shared).iter().map(|rate| rate / 1000.0).collect::<Vec<f64>>())
    };
    let sixth = 10.0 / 6.0;
    let mut examples: Vec<Example> = vec![
        (
            "Fig. 1, weights 4:1:1: A1, A2 to E2, A2 to E3, A3",
            "2",
            "8, 1, 1, 9",
            vec![8.0, 1.0, 1.0, 9.0],
            gbit(&fig1(TCP), Mechanism::Queues)?,
        ),
        (
            "the same, A1 needs 6",
            "2",
            "6, 2, 2, 8",
            vec![6.0, 2.0, 2.0, 8.0],
            gbit(&fig1(Sending::Capped(mbit(6000.0))), Mechanism::Queues)?,
        ),
        ("Fig. 2: A1, A2, A3", "3.1", "8, 2, 8", vec![8.0, 2.0, 8.0], gbit(&fig2(), Mechanism::Queues)?),
        (
            "Fig. 3, queues of services: A1, H1, H2, H3",
            "3.1",
            "8, 1, 1, 9",
            vec![8.0, 1.0, 1.0, 9.0],
            gbit(&fig3(&[4.0, 1.0, 1.0], [0, 1, 1, 2], TCP, 0.0), Mechanism::Queues)?,
        ),
        (
            "Fig. 3, queues of connections: A1, H1, H2, H3",
            "3.1",
            "6.6, -, -, -",
            vec![4.0 * sixth, sixth, sixth, 10.0 - sixth],
            gbit(&fig3(&[4.0, 1.0, 1.0, 1.0], [0, 1, 2, 3], TCP, 0.0), Mechanism::Queues)?,
        ),
        (
            "Fig. 4, greedy UDP, queues alone: A1, H1, H2, H3",
            "3.2",
            "-, 1, -, 5",
            vec![8.0, 1.0, 1.0, 5.0],
            // H1 delivers 1 where as much arrives of H2 as of H1, which is 5.
            gbit(
                &fig3(&[4.0, 1.0, 1.0], [0, 1, 1, 2], Sending::Unresponsive(mbit(10_000.0)), 5000.0),
                Mechanism::Queues,
            )?,
        ),
    ];
    let third = 10.0 / 3.0;
    for (what, said, expected, shares, a3) in [
        ("Fig. 5, all three send", "3.33, 3.33, 3.33", vec![third; 3], Some([2.0, 1.0, 1.0]), f64::INFINITY),
        ("Fig. 5, A3 idles, weights alone", "5, 5, 0", vec![5.0, 5.0, 0.0], None, 0.0),
        (
            "Fig. 5, A3 idles, excess 2:1",
            "5.55, 4.4, 0",
            vec![50.0 / 9.0, 40.0 / 9.0, 0.0],
            Some([2.0, 1.0, 1.0]),
            0.0,
        ),
    ] {
        examples.push((what, "3.3", said, expected, fig5(shares, a3)));
    }
    let list = |numbers: &[f64]| numbers.iter().map(|&x| n(x)).collect::<Vec<_>>().join(", ");
    let lines: Vec<Vec<String>> = examples
        .iter()
        .map(|(what, place, said, exact, measured)| {
            let close = |(a, b): (&f64, &f64)| (a - b).abs() <= EXACT * b.max(1.0);
            let all = exact.len() == measured.len() && exact.iter().zip(measured).all(close);
            let place = (*place).to_owned();
            vec![(*what).to_owned(), place, (*said).to_owned(), list(exact), list(measured), yes(all)]
        })
        .collect();
    let head = ["Gbit/s", "section", "published", "exact", "measured", "to 1e-9"];
    let mut out = String::from("## Fig. 1 to 5: the examples\n\n");
    out.push_str(
        "Fig. 1 to 4 are run on their networks with a queue for each service; Fig. 5 is the central allocator's answer. \"Exact\" is \
         what the example's arithmetic gives where the text rounds.\n",
    );
    out.push_str(&table(&head, 3, &lines));
    let greedy = Sending::Unresponsive(mbit(10_000.0));
    let both = gbit(&fig3(&[4.0, 1.0, 1.0], [0, 1, 1, 2], greedy, 0.0), Mechanism::Queues)?;
    out.push_str(&format!(
        "In Fig. 4, H1 delivers 1 if as much of H2 as of H1 arrives at C1, which is 5. If H2 too sends 10, all of it arrives there, and of \
         A2's part H1 gets {} and H2 {}: one queue loses by arrivals. A3 gets {} either way.\n\n",
        n(both[1]),
        n(both[2]),
        n(both[3]),
    ));
    out.push_str(&in_the_loop(making)?);
    Ok(out)
}

fn fig1(a1: Sending) -> Scene {
    Scene::new(Plan::NetShareFig1, &[4.0, 1.0, 1.0], 1.0)
        .flow(0, "E1-A1", "E2-A1", a1)
        .flow(1, "E1-A2", "E2-A2", TCP)
        .flow(1, "E1-A2", "E3-A2", TCP)
        .flow(2, "E4-A3", "E3-A3", TCP)
}

fn fig2() -> Scene {
    Scene::new(Plan::NetShareFig3, &[4.0, 1.0, 1.0], 1.0)
        .flow(0, "H5", "H6", TCP)
        .flow(1, "H1", "H4", TCP)
        .flow(2, "H3", "H8", TCP)
}

/// A1, H1, H2 and H3, each in a queue. H1 and H2 send as they are told, H2 at another rate if that is not 0.
fn fig3(weights: &[f64], queues: [usize; 4], sending: Sending, h2: f64) -> Scene {
    let second = if h2 > 0.0 { Sending::Unresponsive(mbit(h2)) } else { sending };
    Scene::new(Plan::NetShareFig3, weights, 1.0)
        .flow(queues[0], "H5", "H6", TCP)
        .flow(queues[1], "H1", "H4", sending)
        .flow(queues[2], "H2", "H7", second)
        .flow(queues[3], "H3", "H8", TCP)
}

/// One link of 10 Gbit, three services of the same weight.
fn fig5(excess: Option<[f64; 3]>, a3: f64) -> Vec<f64> {
    let shares = match excess {
        Some(excess) => Shares::with_excess(&[1.0; 3], &excess),
        None => Shares::weighted(&[1.0; 3]),
    };
    let mut link = Hierarchy::new(&[10.0], shares.expect("weights of the paper")).expect("one link");
    let classes = [f64::INFINITY, f64::INFINITY, a3].into_iter().enumerate();
    let ids: Vec<_> =
        classes.map(|(service, demand)| link.add(service, &[0], 1, demand).expect("one link")).collect();
    link.solve();
    ids.into_iter().map(|id| link.rate(id)).collect()
}

/// Fig. 5 with measurements, prediction and headroom in the loop.
fn in_the_loop(making: &Making<'_>) -> Result<String, Failure> {
    let scene = |a1, a2| {
        Scene::new(Plan::NetShareFig3, &[1.0; 3], 20.0).flow(0, "H1", "H4", a1).flow(1, "H3", "H8", a2)
    };
    let mut excess = scene(TCP, TCP);
    for (service, weight) in excess.0.services.iter_mut().zip([2.0, 1.0, 1.0]) {
        service.excess = Some(weight);
    }
    let line = |what: &str, scene: &Scene, mechanism| {
        let shared = scene.run(mechanism, making)?;
        let highest = shared.segments.iter().map(|segment| segment.delivered[0] / 125e6).fold(0.0, f64::max);
        let end = at_the_end(&shared);
        let numbers = [highest, end[0] / 1000.0, end[1] / 1000.0];
        Ok::<_, Failure>([vec![what.to_owned()], numbers.map(n).to_vec()].concat())
    };
    // What hosts would set if the allocator knew that both want all there is.
    let best = fig5(Some([2.0, 1.0, 1.0]), 0.0);
    let limited = |factor: f64| [0, 1].map(|service| Sending::Capped(mbit(best[service] * 1000.0 * factor)));
    let ([a1, a2], [b1, b2]) = (limited(1.1), limited(1.0));
    let lines = vec![
        line("in the loop", &excess, Mechanism::Central)?,
        line("in the loop, with queues", &excess, Mechanism::QueuesCentral)?,
        line("demand of both known to be endless, 10 % headroom", &scene(a1, a2), Mechanism::None)?,
        line("the same without headroom", &scene(b1, b2), Mechanism::None)?,
    ];
    let mut out = String::from(
        "Fig. 5 with two TCP flows of A1 and A2, A3 idle, and the whole of 3.3 in the loop: rates measured over 50 ms, the least-squares \
         prediction, the allocator, and 10 % more at the hosts. The paper shows the allocator's answer only.\n",
    );
    out.push_str(&table(&["Gbit/s", "A1 at its highest", "A1 at the end", "A2 at the end"], 1, &lines));
    out.push_str(
        "All that a host sees of a TCP flow is what it sends. That is measured as its demand, headroom lets all flows grow until \
         queues decide who gets what, and then both ask for just what the queues give: no excess is left to divide. An allocator that \
         knew better would still lose most of the difference to the headroom. Shares that switches do not have need limits \
         without headroom, and hosts that know more of a TCP flow than its rate.\n\n",
    );
    Ok(out)
}
