//! Section 6.2: how often the predictor is right, by classes and by records.

use std::fmt::Write;

use weir_predict::data::{self, Record, Records};
use weir_predict::{Predictor, Settings};
use weir_sim::outcome::{mean, percentile};

use crate::clock::spent;
use crate::doc::{n, share, table, yes};
use crate::spread::Spread;
use weir_console::failure::Failure;
use weir_console::progress::Progress;

/// What losses were measured at which buffers, and its name.
pub const CLASSES: &str = include_str!("../../../../examples/incast/classes.csv");
pub const NAME: &str = "examples/incast/classes.csv";

/// How often records are divided into those that train and those that test.
const SPLITS: u32 = 20;

/// Numbers of classes, and the accuracy that the paper has for them: the abstract's for those that "perform well", and the text's.
const PUBLISHED: [(usize, f64); 4] = [(2, 0.98), (3, 0.98), (4, 0.877), (5, 0.736)];

/// Numbers of training records of Fig. 4.
const TRAINED: [usize; 6] = [50, 100, 150, 200, 250, 300];

/// What one hundred records lose, in points.
const LOST: f64 = 3.0;

/// What training and testing take, in milliseconds, and one estimate, in microseconds.
const TOOK: [f64; 2] = [20.0, 75.0];

/// C and gamma beside those of the library.
const PARAMETERS: [f64; 3] = [1.0, 10.0, 100.0];

/// Records in the order of a seed, of which the last quarter tests.
struct Split(Vec<Record>);

impl Split {
    fn of(records: &Records, classes: &[u32], seed: u32) -> Split {
        Split(records.shuffled(classes, seed))
    }

    /// The most that train.
    fn most(&self) -> usize {
        self.0.len() - self.0.len() / 4
    }

    fn train(&self, trained: usize) -> &[Record] {
        &self.0[..trained]
    }

    fn test(&self) -> &[Record] {
        &self.0[self.most()..]
    }
}

/// A classifier that needs no library: the class whose mean loss is nearest.
struct Nearest(Vec<(u32, f64)>);

impl Nearest {
    fn train(records: &[Record]) -> Nearest {
        let mut records = records.to_vec();
        records.sort_by_key(|record| record.buffer);
        let class = |class: &[Record]| {
            let losses: Vec<f64> = class.iter().map(|record| record.loss.get()).collect();
            (class[0].buffer, mean(&losses))
        };
        Nearest(records.chunk_by(|a, b| a.buffer == b.buffer).map(class).collect())
    }

    fn right(&self, records: &[Record]) -> usize {
        let nearest = |record: &&Record| {
            let far = |mean: f64| (mean - record.loss.get()).abs();
            let class = self.0.iter().min_by(|a, b| far(a.1).total_cmp(&far(b.1)));
            class.is_some_and(|(buffer, _)| *buffer == record.buffer)
        };
        records.iter().filter(nearest).count()
    }
}

/// Accuracies on what was held out, split by split.
struct Accuracy {
    machines: Vec<f64>,
    nearest: Vec<f64>,
}

impl Accuracy {
    /// Of some classes and a number of training records; all there are if it is not said.
    fn measure(
        records: &Records,
        classes: &[u32],
        trained: Option<usize>,
        settings: &Settings,
    ) -> Result<Accuracy, Failure> {
        let mut found = Accuracy { machines: Vec::new(), nearest: Vec::new() };
        for seed in 1..=SPLITS {
            Failure::unless_asked()?;
            let split = Split::of(records, classes, seed);
            let train = split.train(trained.unwrap_or_else(|| split.most()));
            let part = |right: usize| right as f64 / split.test().len() as f64;
            let predictor = Predictor::train(train, settings).map_err(Failure::undone)?;
            found.machines.push(part(predictor.right(split.test())));
            found.nearest.push(part(Nearest::train(train).right(split.test())));
        }
        Ok(found)
    }

    /// How much better machines are than the nearest mean, in points, on the same splits.
    fn gain(&self) -> Spread {
        let pairs = self.machines.iter().zip(&self.nearest);
        Spread::of(&pairs.map(|(a, b)| 100.0 * (a - b)).collect::<Vec<f64>>())
    }
}

/// A share with its interval.
fn percent(values: &[f64]) -> String {
    let spread = Spread::of(values);
    format!("{:.1} ± {:.1} %", 100.0 * spread.mean, 100.0 * spread.half)
}

/// All ways to choose so many of the classes.
fn choices(classes: &[u32], count: usize) -> Vec<Vec<u32>> {
    let all = (0u32..1 << classes.len()).filter(|bits| bits.count_ones() as usize == count);
    let some =
        |bits: u32| (0..).zip(classes).filter(|(at, _)| (bits >> at) & 1 == 1).map(|(_, c)| *c).collect();
    all.map(some).collect()
}

/// The section of the document.
pub fn section(timing: bool, progress: &Progress) -> Result<String, Failure> {
    let records = data::read_from(CLASSES.as_bytes(), NAME)?;
    let bar = progress.steps("predictors", 4);
    let mut out = head(&records);
    out.push_str(&by_classes(&records)?);
    bar.inc(1);
    out.push_str(&by_records(&records)?);
    bar.inc(1);
    out.push_str(&by_parameters(&records)?);
    bar.inc(1);
    out.push_str(&times(&records, timing)?);
    bar.finish_and_clear();
    Ok(out)
}

fn head(records: &Records) -> String {
    let conditions = records.conditions();
    let mut out = String::from("## 6.2: the buffer by what is lost (Fig. 4)\n\n");
    writeln!(
        out,
        "A record is one run of {} connections to one receiver, {} bytes each, at a known buffer, and the part of the packets that the switch \
         dropped. {} of them were measured on the testbed, at 100 Mbit over {} buffers with {} (`{NAME}`; [how](../testbed.md#incast)); the paper has 400 of \
         about 200 \"small flows\" and does not say which buffers. Machines are trained and asked as [the predictor](../predict.md) has it, with \
         LibSVM's parameters. Three quarters of the records train and the rest test; numbers are means over {SPLITS} such divisions, with the 95 % \
         interval of the mean (Student's t). It says how much the division matters, not how much another measurement would: all divide the \
         same records.",
        conditions.connections,
        conditions.bytes,
        records.all().len(),
        records.classes().len(),
        match (&conditions.congestion, conditions.marks) {
            (Some(name), Some(marks)) => format!("{name} and marks from {marks} packets on"),
            (Some(name), None) => format!("{name} and no marks"),
            (None, _) => "the system's congestion control".to_owned(),
        },
    )
    .expect("memory takes all");
    let classes: Vec<(u32, Vec<f64>)> = records
        .all()
        .chunk_by(|a, b| a.buffer == b.buffer)
        .map(|class| (class[0].buffer, class.iter().map(|record| record.loss.get()).collect()))
        .collect();
    let borders: Vec<f64> = classes.windows(2).map(|pair| border(&pair[0].1, &pair[1].1)).collect();
    let lines: Vec<Vec<String>> = (0..)
        .zip(&classes)
        .map(|(at, (buffer, losses)): (usize, _)| {
            let part = |p: f64| share(percentile(losses, p));
            vec![
                buffer.to_string(),
                losses.len().to_string(),
                share(mean(losses)),
                part(10.0),
                part(50.0),
                part(90.0),
                borders.get(at).map_or("-".to_owned(), |right| share(*right)),
            ]
        })
        .collect();
    let head = ["buffer, packets", "records", "mean loss", "P10", "P50", "P90", "best border to the next"];
    out.push_str(&table(&head, 0, &lines));
    let worst = borders.iter().zip(classes.windows(2)).min_by(|(a, _), (b, _)| a.total_cmp(b));
    if let Some((right, pair)) = worst {
        writeln!(
            out,
            "The *best border* is the loss that tells a buffer from the next one best, chosen with all records known: the part of the two buffers' \
             records that are on their side of it. A classifier that goes by one border between neighbours cannot be better on them. {} and {} \
             packets are least apart: {}.",
            pair[0].0,
            pair[1].0,
            share(*right)
        )
        .expect("memory takes all");
    }
    out
}

/// The most that are on their side of a border, of losses at a smaller buffer, which belong above it, and at a larger one.
fn border(smaller: &[f64], larger: &[f64]) -> f64 {
    let all = || smaller.iter().chain(larger);
    let right = |border: f64| {
        smaller.iter().filter(|loss| **loss >= border).count()
            + larger.iter().filter(|loss| **loss < border).count()
    };
    let most = all().copied().chain([f64::INFINITY]).map(right).max().unwrap_or(0);
    most as f64 / all().count() as f64
}

fn by_classes(records: &Records) -> Result<String, Failure> {
    let classes = records.classes();
    let settings = Settings::default();
    let mut lines = Vec::new();
    let mut gains = Vec::new();
    for (count, published) in PUBLISHED {
        let found = Accuracy::measure(records, &classes[..count], None, &settings)?;
        let mut others = Vec::new();
        for some in choices(&classes, count) {
            others.push(mean(&Accuracy::measure(records, &some, None, &settings)?.machines));
        }
        others.sort_by(f64::total_cmp);
        let gain = found.gain();
        lines.push(vec![
            count.to_string(),
            share(published),
            percent(&found.machines),
            percent(&found.nearest),
            gain.text(),
            share(1.0 / count as f64),
            format!("{} to {}", share(others[0]), share(others[others.len() - 1])),
            yes(mean(&found.machines) >= published),
        ]);
        gains.push((count, gain));
    }
    let mut out = String::from(
        "\n### By the number of classes\n\nClasses are the smallest buffers; the last but one column has all other choices of as many. *Nearest \
         mean* is no machine: it takes the buffer whose mean loss is nearest. *Chance* is the paper's \"naive lower bound\".\n",
    );
    let head = [
        "classes",
        "published",
        "measured",
        "nearest mean",
        "C-SVC ahead by, points",
        "chance",
        "any choice of classes",
        "as good as published",
    ];
    out.push_str(&table(&head, 0, &lines));
    let of = |counts: Vec<usize>| match counts[..] {
        [] => "none".to_owned(),
        _ => counts.iter().map(usize::to_string).collect::<Vec<String>>().join(", "),
    };
    let ahead = gains.iter().filter(|(_, gain)| gain.above(0.0)).map(|(count, _)| *count).collect();
    let behind = gains.iter().filter(|(_, gain)| gain.below(0.0)).map(|(count, _)| *count).collect();
    writeln!(
        out,
        "Numbers of classes for which C-SVC is ahead of the nearest mean by more than the interval: {}; for which it is behind: {}.",
        of(ahead),
        of(behind)
    )
    .expect("memory takes all");
    Ok(out)
}

fn by_records(records: &Records) -> Result<String, Failure> {
    let classes = records.classes();
    let settings = Settings::default();
    let mut lines = Vec::new();
    let mut last = Vec::new();
    for (count, _) in PUBLISHED {
        let most = Split::of(records, &classes[..count], 1).most();
        let mut line = vec![count.to_string()];
        last.clear();
        for trained in TRAINED {
            if trained > most {
                line.push("-".to_owned());
                continue;
            }
            let found = Accuracy::measure(records, &classes[..count], Some(trained), &settings)?;
            line.push(percent(&found.machines));
            last.push((trained, found));
        }
        lines.push(line);
    }
    let mut out = String::from(
        "\n### By the number of training records\n\nAs many of each class. The same records test, however many train; there are not more for fewer classes.\n",
    );
    let heads: Vec<String> = TRAINED.iter().map(|trained| format!("{trained} records")).collect();
    let mut head = vec!["classes"];
    head.extend(heads.iter().map(String::as_str));
    out.push_str(&table(&head, 0, &lines));
    let at =
        |wanted: usize| last.iter().find(|(trained, _)| *trained == wanted).map(|(_, found)| &found.machines);
    if let Some((few, all)) = at(100).zip(at(300)) {
        let lost =
            Spread::of(&all.iter().zip(few).map(|(all, few)| 100.0 * (all - few)).collect::<Vec<f64>>());
        writeln!(
            out,
            "\"One hundred records for the training are large enough, which suffer only 3% accuracy loss\": {}, with {} classes they lose {} \
             points against three hundred.",
            yes(lost.mean <= LOST),
            classes.len(),
            lost.text()
        )
        .expect("memory takes all");
    }
    Ok(out)
}

fn by_parameters(records: &Records) -> Result<String, Failure> {
    let mut lines = Vec::new();
    for c in PARAMETERS {
        let mut line = vec![n(c)];
        for gamma in PARAMETERS {
            let settings = Settings::new(c, gamma).expect("they are in its range");
            line.push(percent(&Accuracy::measure(records, &records.classes(), None, &settings)?.machines));
        }
        lines.push(line);
    }
    let heads: Vec<String> = PARAMETERS.iter().map(|gamma| format!("gamma = {gamma}")).collect();
    let mut head = vec!["C"];
    head.extend(heads.iter().map(String::as_str));
    let mut out = format!(
        "\n### By the parameters of C-SVC\n\nThe paper names none. With all {} classes; LibSVM's are C = 1, gamma = 1.\n",
        records.classes().len()
    );
    out.push_str(&table(&head, 0, &lines));
    Ok(out)
}

fn times(records: &Records, timing: bool) -> Result<String, Failure> {
    let mut out = String::from(
        "\n### The time it takes\n\nProcessor time of one thread, by a clock, so by the machine; everything else in this section is the same \
         wherever it is made but for the last digits of the platform's exponential. Medians over the divisions.\n",
    );
    let (mut all, mut one) = (Vec::new(), Vec::new());
    for seed in 1..=SPLITS {
        let split = Split::of(records, &records.classes(), seed);
        let before = spent();
        let predictor =
            Predictor::train(split.train(split.most()), &Settings::default()).map_err(Failure::undone)?;
        let trained = spent();
        // Looked at, so that it is done.
        let right = predictor.right(split.test());
        let tested = spent();
        assert!(right <= split.test().len(), "of those that were tested");
        all.push(1e3 * (tested - before).as_secs_f64());
        one.push(1e6 * (tested - trained).as_secs_f64() / split.test().len() as f64);
    }
    let line = |what: &str, published: f64, values: &[f64]| {
        let measured = percentile(values, 50.0);
        let (shown, within) =
            if timing { (n(measured), yes(measured <= published)) } else { ("-".to_owned(), "-".to_owned()) };
        vec![what.to_owned(), n(published), shown, within]
    };
    let lines = [line("training and testing, ms", TOOK[0], &all), line("one estimate, us", TOOK[1], &one)];
    out.push_str(&table(&["", "published", "measured", "no longer than published"], 1, &lines));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_predict::Loss;

    #[test]
    fn the_nearest_mean_is_by_hand() {
        let record = |buffer, loss| Record { buffer, loss: Loss::new(loss).unwrap() };
        let nearest = Nearest::train(&[record(50, 0.4), record(100, 0.1), record(50, 0.2)]);
        assert_eq!(nearest.0.iter().map(|(buffer, _)| *buffer).collect::<Vec<_>>(), [50, 100]);
        // The border is at 0.2, halfway between 0.3 and 0.1.
        let asked = [record(50, 0.21), record(100, 0.19), record(100, 0.21), record(50, 0.9)];
        assert_eq!(nearest.right(&asked), 3);
    }

    #[test]
    fn the_best_border_is_by_hand() {
        assert_eq!(border(&[0.3, 0.4], &[0.1, 0.2]), 1.0);
        // At 0.3: one of the smaller is below it, and none of the larger above.
        assert_eq!(border(&[0.3, 0.4, 0.15], &[0.1, 0.2, 0.2]), 5.0 / 6.0);
        // The wrong way round, all on one side are half.
        assert_eq!(border(&[0.1], &[0.2]), 0.5);
    }

    #[test]
    fn choices_are_all_there_are() {
        assert_eq!(choices(&[1, 2, 3], 2), [vec![1, 2], vec![1, 3], vec![2, 3]]);
        assert_eq!(choices(&[1, 2, 3, 4, 5], 5), [vec![1, 2, 3, 4, 5]]);
    }

    #[test]
    fn what_tests_does_not_train() {
        let records = data::read_from(CLASSES.as_bytes(), NAME).unwrap();
        let split = Split::of(&records, &records.classes(), 1);
        assert_eq!(split.train(split.most()).len() + split.test().len(), records.all().len());
        assert_eq!(split.test().len(), records.all().len() / 4);
    }
}
