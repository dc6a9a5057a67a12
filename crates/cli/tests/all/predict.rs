//! Tests `weir predict`.

use std::fs;

use crate::common::TestDir;

/// Losses at three buffer sizes; they decrease with the buffer and do not overlap.
fn test_dir_with_measurements() -> TestDir {
    let dir = TestDir::new();
    let mut text = String::from("buffer_packets,connections,bytes,run,loss\n");
    for buffer in [50, 100, 150] {
        for run in 1..=8 {
            text.push_str(&format!(
                "{buffer},200,64000,{run},{}\n",
                f64::from(500 - 3 * buffer + run) / 1000.0
            ));
        }
    }
    dir.write("runs.csv", &text);
    dir
}

#[test]
fn predict_connections_prints_the_connection_count_and_policy() {
    let dir = test_dir_with_measurements();
    let text = dir.stdout_of("predict train runs.csv --out model.toml");
    assert!(
        text.starts_with("runs.csv: 200 connections of 64000 bytes each. Seed 1, C = 1, gamma = 1:"),
        "{text}"
    );
    assert!(text.lines().last().unwrap().ends_with("18         6      6   100.0 %"), "{text}");
    // (500 - 3 * 100 + 4) / 1000: a loss of the buffer of 100 packets.
    let answer = dir.json_of("predict connections model.toml --loss 0.204 --threshold 20 --format json");
    assert_eq!(answer["buffer_packets"], 100);
    assert_eq!(answer["connections"], 80);
    assert_eq!(answer["within_training"], true);
    let policy = answer["policy"].as_str().unwrap();
    assert_eq!(policy, "django:connections=80");
    let output = dir.stdout_of(&format!("compare trace.txt --policies {policy} --no-timing --format csv"));
    assert!(output.contains(policy), "{output}");
    let text = dir.stdout_of("predict connections model.toml --loss 0.204 --threshold 20");
    assert!(text.contains("2 of 2") && text.contains(policy), "{text}");
    assert!(text.contains("(runs.csv); right about 6 of 6 records held out (100.0 %)"), "{text}");
    assert!(!text.contains("nearest end") && !text.contains("one connection loses the fewest"), "{text}");
}

#[test]
fn predict_reports_losses_outside_the_training_range() {
    let dir = test_dir_with_measurements();
    dir.stdout_of("predict train runs.csv --out model.toml");
    let text = dir.stdout_of("predict connections model.toml --loss 0.9 --threshold 65");
    assert!(
        text.contains("uses the nearest end of the range") && text.contains("django:connections=1"),
        "{text}"
    );
    assert!(
        text.contains("any number of connections loses packets; one connection loses the fewest"),
        "{text}"
    );
    let csv = dir.stdout_of("predict connections model.toml --loss 0.9 --threshold 65 --format csv");
    assert!(csv.contains("\n0.9,false,50,2,65,1,true,django:connections=1,1.0\n"), "{csv}");
}

#[test]
fn predict_train_is_deterministic_for_a_seed() {
    let dir = test_dir_with_measurements();
    dir.stdout_of("predict train runs.csv --out one.toml");
    dir.stdout_of("predict train runs.csv --seed 1 --out two.toml");
    assert_eq!(dir.read("one.toml"), dir.read("two.toml"));
    dir.stdout_of("predict train runs.csv --seed 2 --c 10 --gamma 0.5 --out other.toml");
    let other = dir.read("other.toml");
    assert!(
        other.starts_with("# Made by `weir predict train runs.csv --seed 2 --c 10 --gamma 0.5`."),
        "{other}"
    );
    assert_ne!(dir.read("one.toml"), other);
}

#[test]
fn predict_train_reports_accuracy_by_buffer() {
    let dir = test_dir_with_measurements();
    let classes = dir.json_of("predict train runs.csv --seed 3 --format json");
    let column = |name: &str| -> Vec<u64> {
        classes.as_array().unwrap().iter().map(|class| class[name].as_u64().unwrap()).collect()
    };
    assert_eq!(column("buffer_packets"), [50, 100, 150]);
    assert_eq!(column("trained").iter().sum::<u64>(), 18);
    assert_eq!(column("held_out"), column("right"));
    assert_eq!((classes[0]["accuracy"].as_f64(), classes[0]["seed"].as_u64()), (Some(1.0), Some(3)));
    // Without --out, no file is written.
    assert!(!dir.files().iter().any(|file| file.ends_with(".toml")));
}

#[test]
fn invalid_predict_options_are_exit_2() {
    let dir = test_dir_with_measurements();
    dir.stdout_of("predict train runs.csv --out model.toml");
    dir.write("one.csv", "buffer_packets,connections,bytes,loss\n50,1,1,0.1\n50,1,1,0.2\n");
    let same = "50,1,1,0.1\n100,1,1,0.1\n".repeat(4);
    dir.write("same.csv", &format!("buffer_packets,connections,bytes,loss\n{same}"));
    dir.write("rtt.toml", &dir.read("model.toml").replace("[\"loss\"]", "[\"rtt\"]"));
    let cases = [
        ("predict train runs.csv --out runs.csv", "expected another file than that of the input"),
        ("predict train none.csv --out m.toml", "none.csv: cannot be read"),
        ("predict train one.csv --out m.toml", "one.csv:4: field `buffer_packets`: `1 in all lines`"),
        ("predict train same.csv --out m.toml", "same.csv: all records have the same loss"),
        ("predict train runs.csv --c 0", "`0` is out of range; expected a number above 0 and up to 1e3"),
        ("predict train runs.csv --gamma nan", "`nan` is out of range; expected a number above 0"),
        ("predict train runs.csv --seed=-1", "--seed"),
        (
            "predict connections runs.csv --loss 0.1 --threshold 20",
            "runs.csv: this is a file of incast measurements",
        ),
        (
            "predict connections rtt.toml --loss 0.1 --threshold 20",
            "rtt.toml:3: field `features`: `[\"rtt\"]`",
        ),
        (
            "predict connections model.toml --loss 12 --threshold 20",
            "`12`: expected a fraction of the packets, from 0 to 1",
        ),
        (
            "predict connections model.toml --loss=-0.1 --threshold 20",
            "`-0.1`: expected a fraction of the packets, from 0 to 1",
        ),
        ("predict connections model.toml --loss 0.1", "--threshold"),
        (
            "predict connections model.toml --loss 0.1 --threshold 20 --connections 9",
            "--connections 9: the model model.toml was trained on 200 connections only; help: omit --connections",
        ),
        (
            "predict connections model.toml --loss 0.1 --threshold 1 --out model.toml",
            "than that of the input",
        ),
    ];
    for (line, message) in cases {
        let error = dir.stderr_of(line, 2);
        assert!(error.contains(message), "{line}: {error}");
    }
    assert!(!dir.files().contains(&"m.toml".to_owned()));
}

#[test]
fn predict_connections_requires_the_number_of_connections_of_models_with_several() {
    let dir = TestDir::new();
    let mut text = String::from("buffer_packets,connections,bytes,run,loss\n");
    for (buffer, connections) in [(50, 60), (50, 120), (100, 120), (100, 240)] {
        for run in 1..=4 {
            let loss = 1.0 - f64::from(buffer - run) / f64::from(connections);
            text.push_str(&format!("{buffer},{connections},64000,{run},{loss}\n"));
        }
    }
    text.push_str("100,60,64000,1,0\n");
    dir.write("runs.csv", &text);
    let text = dir.stdout_of("predict train runs.csv --gamma 4 --c 100 --out model.toml");
    assert!(text.starts_with("runs.csv: 60 to 240 connections of 64000 bytes each."), "{text}");
    assert!(text.contains("\nLeft out: 1 run without loss.\n"), "{text}");
    let options = "predict connections model.toml --loss 0.6 --threshold 20";
    let error = dir.stderr_of(options, 2);
    assert!(error.contains("trained on 60 to 240 connections, and --connections is missing"), "{error}");
    for (connections, buffer) in [(120, 50), (240, 100)] {
        let answer = dir.json_of(&format!("{options} --connections {connections} --format json"));
        assert_eq!((&answer["buffer_packets"], &answer["within_training"]), (&buffer.into(), &true.into()));
    }
    let text = dir.stdout_of(&format!("{options} --connections 2"));
    assert!(text.contains("number of connections is outside the trained range, 60 to 240;"), "{text}");
}

#[test]
fn example_incast_models_match_their_commands() {
    for (data, model) in [("classes.csv", "model.toml"), ("steady-dctcp.csv", "steady-model.toml")] {
        check_example_model(data, model);
    }
}

fn check_example_model(data: &str, model: &str) {
    let dir = TestDir::new();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/incast");
    fs::copy(format!("{folder}/{data}"), dir.path(data)).unwrap();
    let shipped = fs::read_to_string(format!("{folder}/{model}")).unwrap();
    let command = shipped.lines().next().unwrap().split('`').nth(1).unwrap();
    dir.stdout_of(&format!("{} --out model.toml", command.strip_prefix("weir ").unwrap()));
    // Compare up to the machines: their last digits depend on the platform.
    let without_machines = |text: &str| text.split("[[machine]]").next().unwrap().to_owned();
    assert_eq!(without_machines(&dir.read("model.toml")), without_machines(&shipped));
}
