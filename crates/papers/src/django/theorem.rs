//! Theorem 4.1's number of connections, as the predictor finds it, beside others.

use weir_predict::{Loss, Model, connections, data, file};
use weir_sim::outcome::percentile;

use super::claim::{self, Claim};
use super::lab::{Lab, World};
use super::{prediction, world};
use crate::doc;
use weir_console::failure::Failure;

/// What was trained by what was measured.
const MODEL: &str = include_str!("../../../../examples/incast/model.toml");

/// Numbers of connections to find the best by.
const TRIED: [usize; 9] = [1, 2, 4, 6, 8, 11, 16, 32, 64];

/// What the predictor says of a buffer.
pub struct Predicted {
    buffer: u32,
    loss: Loss,
    /// What it takes it for.
    taken: u32,
    connections: usize,
}

/// Asks the predictor about each buffer by the loss that is in the middle.
pub fn ask(threshold: u32) -> Result<Vec<Predicted>, Failure> {
    let records = data::read_from(prediction::CLASSES.as_bytes(), prediction::NAME)?;
    let marks = records.conditions().marks;
    assert!(
        marks.is_none_or(|marks| marks == threshold),
        "records and costs were measured with the same marks"
    );
    let model: Model = file::read_from(MODEL.as_bytes(), "examples/incast/model.toml")?;
    let of = |buffer: u32| {
        let at = records.all().iter().filter(|record| record.buffer == buffer);
        let losses: Vec<f64> = at.map(|record| record.loss.get()).collect();
        let loss = Loss::new(percentile(&losses, 50.0)).expect("it is one of them, or between two");
        let taken = model.predictor().predict(loss).buffer;
        Predicted { buffer, loss, taken, connections: connections(taken, threshold).connections as usize }
    };
    Ok(records.classes().into_iter().map(of).collect())
}

/// The section of the document: replays at those of the buffers at which costs were measured.
pub fn section(lab: &Lab<'_>, predicted: &[Predicted]) -> String {
    let threshold = lab.data.threshold();
    let (mut lines, mut good) = (Vec::new(), Vec::new());
    let costs = lab.data.marked.incast.buffers();
    for Predicted { buffer, loss, taken, connections } in
        predicted.iter().filter(|p| costs.contains(&p.buffer))
    {
        let world = World { buffer: *buffer, ..world() };
        let mean = |connections: usize| lab.get(world, &format!("django:connections={connections}")).mean();
        let rule = lab.data.goodput(&world).expect("connections cost in it").best();
        let tried = TRIED.map(|connections| (connections, mean(connections)));
        let all = tried.into_iter().chain([(*connections, mean(*connections)), (rule, mean(rule))]);
        let best = all.min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0))).expect("there are some");
        good.push((*buffer, mean(*connections) / best.1));
        lines.push(vec![
            buffer.to_string(),
            doc::share(loss.get()),
            taken.to_string(),
            connections.to_string(),
            doc::n(mean(*connections)),
            rule.to_string(),
            doc::n(mean(rule)),
            best.0.to_string(),
            doc::n(best.1),
        ]);
    }
    let worst = good.iter().map(|&(_, over)| over).fold(0.0, f64::max);
    let claims = [Claim::says(
        "as many connections as q = k + n says are best",
        "4.1, theorem 4.1",
        format!("at worst {} times the least mean CCT", doc::n(worst)),
        doc::same(worst, 1.0),
    )];
    let most = lab.data.most();
    format!(
        "### Theorem 4.1's number\n\nThe predictor ([the model](../predict.md), trained on these records) is told the median loss at each buffer, and \
         q = k + n makes connections of its answer, with marks from k = {threshold} packets on. By the theorem each connection has one packet in the buffer above those from which on packets are \
         marked, once windows have settled; the first windows are ten packets, and the port may send 11 packets more at once than its buffer holds. \
         More than {most} connections were not measured, and are taken to cost what {most} do. The rule is another: the most connections that cost nothing (up to 2 % of a link), as measured. Best are the least mean CCT's among \
         these and {}.\n{}{}",
        TRIED.map(|n| n.to_string()).join(", "),
        doc::table(
            &[
                "packets",
                "loss",
                "taken for",
                "n",
                "mean CCT s",
                "by the rule",
                "mean CCT s",
                "best",
                "mean CCT s"
            ],
            0,
            &lines
        ),
        claim::table(&claims)
    )
}
