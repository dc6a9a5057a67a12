//! Measurements: accepted files, errors with their places, and the split into parts.

use weir_predict::data::{self, MAX_CLASSES, MAX_DATA_BYTES, MAX_RECORDS};
use weir_predict::{Loss, Records};

const HEAD: &str = "buffer_packets,connections,bytes,run,loss\n";

fn read(text: &str) -> Result<Records, String> {
    data::read_from(text.as_bytes(), "d.csv").map_err(|error| error.to_string())
}

fn error(lines: &str) -> String {
    read(&format!("{HEAD}{lines}")).unwrap_err()
}

#[test]
fn predictor_data_columns_are_found_by_name_in_any_order() {
    let one = read(
        "buffer_packets,connections,bytes,run,loss,mean_s\n100,200,64000,1,0.125,1\n50,200,64000,1,0.5,2\n",
    )
    .unwrap();
    let other =
        read("loss,bytes,other,connections,buffer_packets\r\n5e-1,64000,x,200,50\r\n.125,64000,,200,100\r\n")
            .unwrap();
    assert_eq!(one, other);
    assert_eq!((one.conditions().connections, one.conditions().bytes_per_connection), (Some(200), 64_000));
    assert_eq!(one.classes(), [50, 100]);
    assert_eq!(one.as_slice().iter().map(|record| record.loss.get()).collect::<Vec<_>>(), [0.5, 0.125]);
}

#[test]
fn predictor_data_requires_one_congestion_control_per_file() {
    let head = "buffer_packets,connections,bytes,congestion,marks_packets,loss\n50,1,1,reno,20,0.5\n";
    let conditions =
        |line: &str| read(&format!("{head}{line}\n")).map(|records| records.conditions().clone());
    let one = conditions("100,1,1,reno,20,0.1").unwrap();
    assert_eq!((one.congestion_control.as_deref(), one.marking_threshold_packets), (Some("reno"), Some(20)));
    for (line, expected) in [
        ("100,1,1,cubic,20,0.1", "d.csv:3: field `congestion`: `cubic`: expected reno, as in the first line"),
        ("100,1,1,,20,0.1", "d.csv:3: field `congestion`: ``: expected 1 to 15 letters, digits"),
        ("100,1,1,reno,,0.1", "d.csv:3: field `marks_packets`: ``: expected 20, as in the first line"),
        ("100,1,1,reno,0,0.1", "d.csv:3: field `marks_packets`: `0`: expected a whole number from 1"),
    ] {
        let error = conditions(line).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn predictor_data_errors_name_the_line() {
    let good = "50,200,64000,1,0.5\n";
    let loss = |cell: &str| error(&format!("{good}100,200,64000,1,{cell}\n"));
    for cell in ["-0.1", "1.1", "nan", "inf", "", "12 %"] {
        let expected =
            format!("d.csv:3: field `loss`: `{cell}`: expected a fraction of the packets, from 0 to 1");
        assert_eq!(loss(cell), expected);
    }
    for buffer in ["0", "-50", "65537", "1.5", ""] {
        let expected =
            format!("d.csv:3: field `buffer_packets`: `{buffer}`: expected a whole number from 1 to 65536");
        assert_eq!(error(&format!("{good}{buffer},200,64000,1,0.1\n")), expected);
    }
    let cases = [
        ("100,0,64000,1,0.1\n", "d.csv:3: field `connections`: `0`: expected a whole number from 1"),
        ("100,200,1000,1,0.1\n", "d.csv:3: field `bytes`: `1000`: expected 64000, as in the first line"),
        ("100,200,0,1,0.1\n", "d.csv:3: field `bytes`: `0`: expected a whole number from 1"),
        ("100,200,64000,1\n", "d.csv:3: field `line`"),
        ("100,200,64000,1,0.1,7\n", "d.csv:3: field `line`"),
        (
            "50,200,64000,2,0.1\n",
            "field `buffer_packets`: `1 in all lines`: expected 2 to 16 different buffers",
        ),
    ];
    for (line, expected) in cases {
        let error = error(&format!("{good}{line}"));
        assert!(error.contains(expected), "{line}: {error}");
    }
    // A blank line is not a record, but counts as a line.
    assert!(error(&format!("{good}\n100,200,64000,1,2\n")).starts_with("d.csv:4: "));
    assert!(error("").contains("`no records`: expected a line for each run"));
    assert!(read("").unwrap_err().contains("expected a column `buffer_packets`"));
    let lacks = read("buffer_packets,connections,bytes,lost\n1,1,1,1\n").unwrap_err();
    assert!(
        lacks.starts_with("d.csv:1: field `columns`") && lacks.ends_with("expected a column `loss`"),
        "{lacks}"
    );
    let binary = data::read_from(&b"buffer_packets\xff"[..], "d.csv").unwrap_err().to_string();
    assert!(binary.contains("expected UTF-8"), "{binary}");
    assert!(
        data::read("/none/d.csv".as_ref())
            .unwrap_err()
            .to_string()
            .starts_with("/none/d.csv: cannot be read")
    );
}

#[test]
fn predictor_data_leaves_out_runs_without_loss_of_several_numbers_of_connections() {
    let lines = "50,10,1,1,0\n50,20,1,1,0.3\n50,40,1,1,0.5\n100,20,1,1,0.0\n100,40,1,1,0.2\n";
    let records = read(&format!("{HEAD}{lines}")).unwrap();
    assert_eq!((records.conditions().connections, records.left_out()), (None, 2));
    let known: Vec<_> = records.as_slice().iter().map(|record| (record.buffer, record.connections)).collect();
    assert_eq!(known, [(50, 20), (50, 40), (100, 40)]);
    // Of one number of connections, runs without loss are those of the largest buffers.
    let one = read(&format!("{HEAD}50,20,1,1,0.3\n100,20,1,1,0\n")).unwrap();
    assert_eq!((one.conditions().connections, one.left_out()), (Some(20), 0));
    let few = error("50,20,1,1,0.3\n50,40,1,1,0.5\n100,20,1,1,0\n");
    assert!(few.contains("`1 in the lines with loss`: expected 2 to 16 different buffers"), "{few}");
    // All runs with loss have the same number.
    let same = read(&format!("{HEAD}50,10,1,1,0\n50,40,1,1,0.5\n100,40,1,1,0.2\n")).unwrap();
    assert_eq!((same.conditions().connections, same.left_out()), (Some(40), 1));
}

#[test]
fn predictor_data_limits_are_enforced() {
    let line = |buffer: usize| format!("{buffer},200,64000,1,0.1\n");
    let many = |count: usize| (0..count).map(|at| line(50 + at % 2)).collect::<String>();
    assert_eq!(read(&format!("{HEAD}{}", many(MAX_RECORDS))).unwrap().as_slice().len(), MAX_RECORDS);
    assert!(error(&many(MAX_RECORDS + 1)).starts_with(&format!("d.csv:{}: field `file`", MAX_RECORDS + 2)));
    let classes = (1..=MAX_CLASSES + 1).map(line).collect::<String>();
    assert!(error(&classes).contains("`17 in all lines`"), "{}", error(&classes));
    let endless = std::io::Read::take(std::io::repeat(b'1'), 1 << 40);
    let error = data::read_from(endless, "d.csv").unwrap_err().to_string();
    assert!(error.contains(&format!("at most {MAX_DATA_BYTES} bytes")), "{error}");
}

#[test]
fn loss_accepts_fractions_from_zero_to_one() {
    assert_eq!("0.12".parse::<Loss>().unwrap().get(), 0.12);
    for text in ["-0", "0", "1"] {
        assert!(text.parse::<Loss>().is_ok(), "{text}");
    }
    let error = "12".parse::<Loss>().unwrap_err().to_string();
    assert_eq!(error, "`12`: expected a fraction of the packets, from 0 to 1");
}

#[test]
fn every_prefix_of_the_shuffle_is_stratified_by_class() {
    // Twice as many records at 50 as at 100, and four times as many as at 150.
    let lines =
        |buffer, runs| (0..runs).map(move |run| format!("{buffer},200,64000,{run},0.{buffer}{run:02}\n"));
    let all: Vec<String> = lines(50, 40).chain(lines(100, 20)).chain(lines(150, 10)).collect();
    let records = read(&format!("{HEAD}{}", all.concat())).unwrap();
    let order = records.shuffled(&records.classes(), 1);
    assert_eq!(order.len(), 70);
    for first in 1..=order.len() {
        for (class, part) in [(50, 4.0 / 7.0), (100, 2.0 / 7.0), (150, 1.0 / 7.0)] {
            let found = order[..first].iter().filter(|record| record.buffer == class).count();
            assert!((found as f64 - part * first as f64).abs() <= 1.5, "{found} of {first} at {class}");
        }
    }
    let by_loss = |records: &[weir_predict::Record]| {
        let mut losses: Vec<f64> = records.iter().map(|record| record.loss.get()).collect();
        losses.sort_by(f64::total_cmp);
        losses
    };
    assert_eq!(by_loss(&order), by_loss(records.as_slice()));
    assert_ne!(order, records.shuffled(&records.classes(), 2));
    // The order of the file and unselected classes have no effect.
    let mut reversed = all.clone();
    reversed.reverse();
    let reversed = read(&format!("{HEAD}{}", reversed.concat())).unwrap();
    assert_eq!(reversed.shuffled(&records.classes(), 1), order);
    let some: Vec<_> = order.iter().copied().filter(|record| record.buffer != 100).collect();
    assert_eq!(records.shuffled(&[50, 150], 1), some);
}
