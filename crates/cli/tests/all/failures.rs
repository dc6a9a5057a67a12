//! Tests failures: exit codes, error messages, and no partial output files.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use crate::common::{CommandOutput, TestDir, wait_for, wait_for_sigint_handler};

const INPUT_FILES: [&str; 2] = ["own.weir", "trace.txt"];

fn send_signal(signal: &str, process: u32) {
    assert!(Command::new("kill").args([signal, &process.to_string()]).status().unwrap().success());
}

/// Asserts that a command fails with `code` and a message that contains all `words`, and writes no file.
fn assert_refused(dir: &TestDir, line: &str, code: i32, words: &[&str]) {
    let files = dir.files();
    let ran = dir.run(line);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "weir {line}: {}", ran.stderr);
    for word in words {
        assert!(ran.stderr.contains(word), "weir {line}: no `{word}` in: {}", ran.stderr);
    }
    assert!(!ran.stderr.contains("panicked"));
    assert_eq!(dir.files(), files, "weir {line}");
}

#[test]
fn bad_traces_name_line_and_field() {
    let dir = TestDir::new();
    dir.write("cut.txt", "4 3\n1 0 1 0 2 1:10.0\n");
    dir.write("port.txt", "4 1\n1 0 1 9 1 1:10.0\n");
    dir.write(
        "cycle.weir",
        "weir-trace 1\nports 2\ncoflow 1 parents=2\nflow 0 1 1B\ncoflow 2 parents=1\nflow 0 1 1B\n",
    );
    for command in [
        "trace check F",
        "compare F --out o.txt",
        "sim F --policy saath --per-coflow c.csv",
        "trace describe F",
    ] {
        let with_file = |file: &str| command.replace('F', file);
        assert_refused(
            &dir,
            &with_file("cut.txt"),
            2,
            &["weir: cut.txt:2: field `reducer 2`: `end of line`: expected"],
        );
        assert_refused(
            &dir,
            &with_file("port.txt"),
            2,
            &["port.txt:2: field `mapper 1`: `9`: expected", "0 to 3"],
        );
        assert_refused(&dir, &with_file("cycle.weir"), 2, &["cycle.weir:"]);
        assert_refused(&dir, &with_file("none.txt"), 2, &["none.txt: cannot be read"]);
    }
    assert_refused(&dir, "trace check trace.txt --max-flows 3", 2, &["trace.txt:", "--max-flows"]);
}

#[test]
fn traces_with_many_ports_are_replayed() {
    let dir = TestDir::new();
    dir.write("wide.txt", "65536 1\n1 0 1 0 1 1:1\n");
    for policy in ["fair", "saath"] {
        let found = dir.stdout_of(&format!("sim wide.txt --policy {policy} --no-timing"));
        assert!(found.contains("8.000 ms"), "{policy}: {found}");
    }
}

#[test]
fn coflow_waits_for_the_next_tick_after_its_arrival() {
    let dir = TestDir::new();
    dir.write("late.weir", "weir-trace 1\nports 2\ncoflow 1 arrival=1ms\nflow 0 1 1MB\n");
    let results = dir.json_of("compare late.weir --policies saath,varys --interval 1h --format json");
    for policy in results.as_array().unwrap() {
        let cct = policy["mean_cct_s"].as_f64().unwrap();
        assert!((cct - 3600.007).abs() < 1e-6, "{cct}");
    }
}

#[test]
fn flow_ending_just_after_a_tick_completes() {
    let dir = TestDir::new();
    // The flow of 1,000,001 bytes ends a millionth of an interval after a tick, which is the largest
    // difference that counts as the same time.
    dir.write(
        "edge.weir",
        "weir-trace 1\nports 4\ncoflow 1 arrival=0.9485849526392044s\nflow 1 0 1000000B\nflow 1 3 1B\n",
    );
    for policy in ["fifo", "varys", "scf", "srtf"] {
        let results = dir.json_of(&format!("sim edge.weir --policy {policy} --format json"));
        let cct = results["mean_cct_s"].as_f64().unwrap();
        assert!((cct - (0.952 + 0.008_000_008 - 0.9485849526392044)).abs() < 1e-12, "{policy}: {cct}");
    }
}

#[test]
fn dash_as_output_file_is_standard_output() {
    let dir = TestDir::new();
    let files = dir.files();
    let plain = dir.stdout_of("sim trace.txt --policy saath --no-timing --format csv");
    assert_eq!(dir.stdout_of("sim trace.txt --policy saath --no-timing --format csv --out -"), plain);
    // One result only: two formats in one stream are of no use.
    for line in ["--per-coflow -", "--out - --per-flow -", "--out o.csv --per-flow - --per-link -"] {
        let ran = dir.run(&format!("sim trace.txt --policy saath --no-timing --format csv {line}"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{line}");
        assert!(ran.stderr.contains("is already written to the standard output"), "{}", ran.stderr);
        assert_eq!(
            ran.stderr.contains("help: add --out FILE for the result"),
            !line.contains("--out"),
            "{line}"
        );
    }
    // Only the trace is printed, so that another command can read it.
    let trace = dir.stdout_of("trace generate --coflows 3 --seed 1");
    assert_eq!(dir.stdout_of("trace generate --coflows 3 --seed 1 --out -"), trace);
    assert_eq!(dir.files(), files);
}

#[test]
fn errors_name_the_expected_value() {
    let dir = TestDir::new();
    let ran = dir.run("trace check none.txt");
    assert_eq!(ran.stderr, "weir: none.txt: cannot be read: No such file or directory (os error 2)\n");
    dir.write("neg.txt", "2 1\n1 0 1 0 1 1:-4.0\n");
    let ran = dir.run("sim neg.txt --policy saath");
    assert_eq!(
        ran.stderr,
        "weir: neg.txt:2: field `reducer 1 size`: `-4.0`: expected a size of 0 or more megabytes\n"
    );
    let ran = dir.run("explain trace.txt --policy saath --coflow 9");
    assert_eq!(
        ran.stderr,
        "weir: trace.txt: coflow 9 is not in the trace; expected one of its 3 ids, such as 1, 2, 7\n"
    );
}

#[test]
fn wrong_trace_and_replay_usage_is_exit_2() {
    let dir = TestDir::new();
    dir.write("own2.txt", crate::common::TRACE);
    let lines = [
        ("", "Usage"),
        ("fly", "unrecognized subcommand"),
        ("sim trace.txt", "--policy"),
        ("sim trace.txt --policy nope", "unknown policy `nope`; expected one of fair, "),
        ("sim trace.txt --policy nope", "saba, siphon, mrtf, tree:FILE"),
        ("sim trace.txt --policy sath", "tree:FILE; help: did you mean `saath`?"),
        ("sim trace.txt --policy saath:nope=1", "has no parameter `nope`"),
        ("sim trace.txt --policy saath:growht=1", "help: did you mean `growth`?"),
        ("compare trace.txt --policies saath,fifo:x=1", "has no parameter `x`"),
        (
            "sim trace.txt --policy saath --port-rate 1000",
            "expected a rate with a unit from 1bit to 8000Tbit",
        ),
        ("sim trace.txt --policy saath --port-rate 1Gbps", "`bps` is ambiguous"),
        ("sim trace.txt --policy saath --port-rate 0", "expected a rate with a unit from 1bit to 8000Tbit"),
        (
            "sim trace.txt --policy saath --port-rate 1e300Gbit",
            "expected a rate with a unit from 1bit to 8000Tbit",
        ),
        ("sim trace.txt --policy saath --interval 1e300s", "expected at most 1e9s"),
        ("trace check trace.txt --max-flows 99999999999", "1 to 100000000"),
        ("sim trace.txt --policy saath --interval 8", "is not a time"),
        (
            "sim trace.txt --policy saath --interval -8ms",
            "expected a number of 0 or more with one of the units",
        ),
        ("sim trace.txt --policy saath --port-rate -1Gbit", "expected a rate with a unit from 1bit"),
        (
            "sim own.weir --policy saath --trace-unit MiB",
            "own.weir is in Weir's format, whose sizes have units",
        ),
        ("trace check own.weir --trace-unit MB", "expected no --trace-unit"),
        ("compare trace.txt --policies saathaalo+", "help: write `saath,aalo+`"),
        ("compare trace.txt --policies saath:d=4,fifovarys", "help: write `fifo,varys`"),
        ("compare trace.txt --policies saath,d=4", "unknown policy `d=4`"),
        ("compare trace.txt --policies saath,d=4", "help: write `saath:d=4`"),
        ("compare trace.txt --policies saathd=4:growth=2,fifo", "help: write `saath:d=4:growth=2`"),
        (
            "compare trace.txt own2.txt",
            "both traces; expected at most one trace, one file of jobs and one of services; help: `weir sweep`",
        ),
        ("sim trace.txt --policy saath --trace-unit mb", "is not a trace unit"),
        ("compare trace.txt --jobs 0", "1 to 1024"),
        ("sweep trace.txt --policies saath --vary nope=1,2", "has a parameter `nope`"),
        (
            "sweep trace.txt --policies fifo,varys --vary start=1MB",
            "help: add one that has it: aalo, aalo+, saath",
        ),
        ("sweep trace.txt --policies saath --vary d=4..1", "`4..1`: expected a range from low to high"),
        ("sweep trace.txt --policies saath --vary d=1..4,2", "`2` is given twice"),
        (
            "sweep trace.txt --policies saath --seeds 1..3",
            "--seeds: one switch has no random choices; expected --fabric",
        ),
        ("explain trace.txt --policy saath", "--coflow <ID>"),
        ("explain trace.txt --policy saath --slowest 2 --coflow 1", "cannot be used with"),
        ("sweep trace.txt --policies saath --vary start=1MB,x", "is invalid"),
        ("sweep trace.txt --policies saath --vary arrival=0", "a factor from"),
        ("sweep trace.txt --policies saath --vary interval=1", "is not a time"),
        ("sweep trace.txt --policies saath --vary d=1 --vary d=2", "given twice"),
        ("sweep trace.txt --policies saath --vary d=1 --vary start=1MB --vary growth=2", "one or two"),
        ("sweep trace.txt --policies saath --vary d", "KEY=V1,V2"),
        (
            "compare trace.txt --policies aalo:turn=1s",
            "policy `aalo`: `turn` has an effect only with `sharing=turns`; expected both",
        ),
        (
            "sweep trace.txt --policies saath --vary aalo:start=1MB,2MB",
            "none of the policies has a parameter `aalo:start`; help: add one that has it: aalo,",
        ),
        ("sweep trace.txt trace.txt --policies saath", "trace.txt is given twice; expected each trace once"),
        (
            "sweep trace.txt --policies saath --vary d=1,2 --confidence",
            "--confidence: each policy has one sample",
        ),
        ("compare trace.txt --policies tree:a,b.toml", "quote a tree whose file has a comma in its name"),
        ("policies nope", "saba, siphon, mrtf, tree:FILE"),
        (
            "policies weir:sizes=known",
            "`weir:sizes=known` has parameters; expected only the name of a policy; help: `weir policies weir`",
        ),
        ("generate --ports 4", "similar subcommands exist: 'trace generate'"),
        (
            "compare trace.txt --policies saath,fifo,saath",
            "--policies: `saath` is repeated; expected each policy once",
        ),
        (
            "sweep trace.txt --policies fifo,fifo --vary interval=0",
            "`fifo` is repeated; expected each policy once",
        ),
        ("sweep trace.txt --policies saath --vary d=1,2,1", "`1` is given twice; expected each value once"),
        ("explain trace.txt --policy saath --coflow 3", "coflow 3 is not in the trace"),
        ("trace generate --mappers uniform:3,1", "MIN <= MAX"),
        ("trace generate --preset small --size constant:1", "cannot be used with"),
        ("trace generate --arrival poisson:2", "expected a time with a unit; help: write `poisson:2s`"),
        ("trace generate --arrival lognormal:3,1.2", "help: write `lognormal:3s,1.2`"),
        ("trace generate --ports 0 --out o.txt", "`ports`: `0`: expected 1 to"),
        ("compare trace.txt --out a.csv --per-coflow a.csv", "expected another file than that of --out"),
        ("compare trace.txt --out trace.txt", "expected another file than that of the input"),
        ("compare trace.txt --per-flow ./trace.txt", "expected another file than that of the input"),
    ];
    for (line, word) in lines {
        assert_refused(&dir, line, 2, &[word]);
    }
}

#[test]
fn outputs_in_missing_directories_are_exit_2() {
    let dir = TestDir::new();
    let words = ["no/such/folder.txt: cannot be written: directory no/such does not exist"];
    assert_refused(&dir, "compare trace.txt --out no/such/folder.txt", 2, &words);
    assert_refused(&dir, "compare trace.txt --per-flow no/such/folder.txt", 2, &words);
    assert_refused(&dir, "trace generate --out no/such/folder.txt", 2, &words);
    assert_refused(&dir, "compare trace.txt --out .", 2, &["cannot be written"]);
}

#[test]
fn empty_files_are_refused() {
    let dir = TestDir::new();
    dir.write("empty.txt", "");
    let empty = "empty.txt:1: field `file`: `empty file`: expected `<ports> <coflows>` or `weir-trace 1`";
    for line in ["sim empty.txt --policy fifo", "compare empty.txt", "trace check empty.txt"] {
        assert_refused(&dir, line, 2, &[empty]);
    }
}

/// A file of each kind, and its name in messages.
const FILES_BY_KIND: [(&str, &str, &str); 7] = [
    ("trace.txt", "a trace", "pass it as SOURCE"),
    ("own.weir", "a trace", "pass it as SOURCE"),
    ("jobs.toml", "a file of jobs", "pass it as SOURCE"),
    ("services.toml", "a scenario of services", "or to weir share"),
    ("fabric.toml", "a fabric", "pass it with --fabric"),
    ("tree.toml", "a policy tree", "pass it as a policy: tree:FILE"),
    ("table.toml", "a sensitivity table", "pass it to weir saba weights"),
];

#[test]
fn files_of_the_wrong_kind_are_named_for_every_option() {
    let dir = TestDir::new();
    dir.stdout_of(
        "fabric generate leaf-spine --spines 2 --leaves 2 --hosts 2 --rate 1Gbit --oversubscription 1 --out fabric.toml",
    );
    dir.stdout_of("saba profile --workload LR --out table.toml");
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    for (example, name) in
        [("jobs.toml", "jobs.toml"), ("services.toml", "services.toml"), ("tree.toml", "tree.toml")]
    {
        let text = fs::read_to_string(format!("{examples}/{example}")).unwrap();
        dir.write(name, &format!("# A comment.\n\n{text}"));
    }
    let options: [(&str, &[&str]); 8] = [
        ("sim FILE --policy fair", &["trace.txt", "own.weir", "jobs.toml", "services.toml"]),
        ("trace check FILE", &["trace.txt", "own.weir", "jobs.toml", "services.toml"]),
        ("sim trace.txt --policy fair --fabric FILE", &["fabric.toml"]),
        ("fabric check FILE", &["fabric.toml"]),
        ("sim trace.txt --policy fair --incast FILE --buffer 100", &[]),
        ("sim trace.txt --policy tree:FILE", &["tree.toml"]),
        ("share FILE", &["services.toml"]),
        ("saba weights FILE --apps LR", &["table.toml"]),
    ];
    for (line, accepted) in options {
        for (file, found, usage) in FILES_BY_KIND.iter().filter(|(file, ..)| !accepted.contains(file)) {
            let ran = dir.run(&line.replace("FILE", file));
            let expected = format!("{file}: this is {found}; expected ");
            assert!(
                ran.stderr.contains(&expected) && ran.stderr.contains(usage),
                "{line}: {file}: {}",
                ran.stderr
            );
            assert_eq!(ran.code, Some(2), "{line}: {file}");
        }
    }
}

#[test]
fn trace_with_events_is_not_converted_to_a_format_without_them() {
    let dir = TestDir::new();
    let convert = "trace convert own.weir made.txt --to coflow-benchmark";
    let words = ["the trace cannot be written in this format: it has events", "expected --to weir"];
    assert_refused(&dir, convert, 2, &words);
}

#[test]
fn traces_without_coflows_are_refused_with_their_name() {
    let dir = TestDir::new();
    dir.write("none.txt", "4 0\n");
    dir.write("none.weir", "weir-trace 1\nports 2\n");
    dir.write("zero.txt", "");
    for command in [
        "sim F --policy saath",
        "compare F",
        "sweep F --policies saath --vary interval=0,8ms",
        "explain F --policy saath --slowest 1",
        "trace check F",
        "trace describe F",
    ] {
        for file in ["none.txt", "none.weir"] {
            let expected = format!("weir: {file}: no coflows; expected at least one\n");
            assert_refused(&dir, &command.replace('F', file), 2, &[&expected]);
        }
        assert_refused(&dir, &command.replace('F', "zero.txt"), 2, &["weir: zero.txt:1: ", "`empty file`"]);
    }
}

#[test]
fn failed_command_keeps_existing_output_files() {
    let dir = TestDir::new();
    dir.write("o.json", "earlier contents\n");
    dir.write("bad.txt", "4 3\n");
    assert_eq!(dir.run("compare bad.txt --format json --out o.json").code, Some(2));
    assert_eq!(dir.read("o.json"), "earlier contents\n");
    assert_eq!(dir.files(), ["bad.txt", "o.json", INPUT_FILES[0], INPUT_FILES[1]]);
    dir.stdout_of("compare trace.txt --policies saath --format json --out o.json");
    assert!(dir.read("o.json").starts_with("[\n"));
}

#[test]
fn output_to_a_device_does_not_replace_it() {
    let dir = TestDir::new();
    let line = "compare trace.txt --policies saath --no-timing --out /dev/null --per-coflow /dev/stdout";
    let out = dir.stdout_of(line);
    assert!(out.starts_with("policy,coflow,job,"), "{out:?}");
}

#[test]
fn results_are_appended_when_standard_output_is_a_file() {
    let dir = TestDir::new();
    for name in ["-", "/dev/stdout"] {
        let line = format!(
            "sim trace.txt --policy fair --no-timing -q --format csv --out /dev/null --per-coflow {name}"
        );
        let out = fs::File::create(dir.path("out.csv")).unwrap();
        assert!(dir.command(&line).stdout(out).status().unwrap().success());
        assert_eq!(dir.read("out.csv"), dir.stdout_of(&line));
        let heads = dir.read("out.csv").lines().filter(|line| line.starts_with("policy,")).count();
        assert_eq!(heads, 1, "{name}");
    }
}

#[test]
fn closed_standard_output_is_exit_0() {
    let dir = TestDir::new();
    dir.stdout_of("trace generate --preset facebook --out big.txt");
    for line in [
        "trace convert big.txt - --to weir",
        "sim big.txt --policy fair -q --out /dev/null --per-flow -",
        "completions bash",
        "reference",
        "--help",
    ] {
        let mut child = dir.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""), "weir {line}");
    }
}

#[test]
fn commands_reading_standard_input_end_on_signals() {
    let dir = TestDir::new();
    let files = dir.files();
    for line in [
        "fabric describe - --out o.txt",
        "trace describe - --out o.txt",
        "trace convert - o.weir",
        "compare - --out o.txt --per-coflow c.csv",
    ] {
        // Not SIGINT: if the tests run as a background job of a shell, their processes ignore it.
        for (signal, number) in [("-TERM", 15), ("-KILL", 9)] {
            let mut child = dir.command(line).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
            // More bytes than a pipe holds: the write returns once the program reads. The program then waits
            // for the rest of the line.
            child.stdin.as_mut().unwrap().write_all(&[b' '; 100_000]).unwrap();
            send_signal(signal, child.id());
            assert_eq!(child.wait().unwrap().signal(), Some(number), "weir {line}");
            assert_eq!(dir.files(), files, "weir {line}");
        }
    }
}

/// Waits until a program handles signals and has used 50 ms of processor time, or has exited.
fn wait_for_processor_time(child: &mut Child) {
    wait_for_sigint_handler(child);
    // The kernel counts processor time in hundredths of a second.
    let user_ticks = |child: &Child| -> Option<u64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
        // The name, which may contain spaces, ends at the last parenthesis; user time is the 12th field after
        // it.
        stat.rsplit_once(')')?.1.split_whitespace().nth(11)?.parse().ok()
    };
    let before = user_ticks(child).unwrap_or_default();
    wait_for("50 ms of processor time", || {
        child.try_wait().unwrap().is_some() || user_ticks(child).is_none_or(|ticks| ticks >= before + 5)
    });
}

#[test]
fn killed_compare_leaves_no_files() {
    let dir = TestDir::new();
    dir.stdout_of("trace generate --preset facebook --out big.txt");
    let files = dir.files();
    let line =
        "compare big.txt --policies saath,varys,fifo,srtf --interval 1ms --out o.txt --per-coflow c.csv";
    let mut child = dir.command(line).stdout(Stdio::null()).spawn().unwrap();
    wait_for_processor_time(&mut child);
    send_signal("-KILL", child.id());
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert_eq!(dir.files(), files);
}

#[test]
fn interrupted_compare_leaves_no_files() {
    let dir = TestDir::new();
    dir.stdout_of("trace generate --preset facebook --out big.txt");
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut child = dir
            .command("compare big.txt --policies saath,varys,fifo,srtf --interval 1ms --out o.txt --jobs 2")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for_processor_time(&mut child);
        send_signal(signal, child.id());
        let ran = CommandOutput::new(child.wait_with_output().unwrap());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""));
        assert!(
            ran.stderr.contains("interrupted after ") && ran.stderr.contains(" of 526 coflows"),
            "{}",
            ran.stderr
        );
        assert_eq!(dir.files(), ["big.txt", INPUT_FILES[0], INPUT_FILES[1]]);
    }
}

#[test]
fn interrupted_compare_writes_the_policies_that_have_finished() {
    let dir = TestDir::new();
    dir.stdout_of("trace generate --preset facebook --coflows 60 --out big.txt");
    let interrupted = |options: &str, out: &str| {
        // The second policy takes hundreds of times as long as the first.
        let line = format!(
            "compare big.txt --policies scf,aalo:at=both --no-timing --resume {out}.kept {options} --out {out}"
        );
        let child = dir.command(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for("an outcome", || {
            fs::read_to_string(dir.path(&format!("{out}.kept"))).is_ok_and(|kept| kept.lines().count() == 2)
        });
        send_signal("-TERM", child.id());
        let ran = CommandOutput::new(child.wait_with_output().unwrap());
        assert_eq!(ran.code, Some(143), "{ran:?}");
        (dir.read(out), ran.stderr)
    };
    let (results, error) = interrupted("--format csv", "o.csv");
    let expected = "interrupted; the results lack 1 of 2 policies; help: for the others, repeat the command";
    assert!(error.contains(expected), "{error}");
    assert!(results.lines().count() == 2 && results.contains("\nscf,60,"), "{results}");
    assert!(results.lines().next().unwrap().ends_with(",missing_policies"), "{results}");
    // The baseline has not finished.
    let (results, error) = interrupted("--baseline aalo:at=both --format json --report r.html", "o.json");
    assert!(error.contains("and speedups, since the baseline `aalo:at=both` has not finished"), "{error}");
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    let [scf] = &results.as_array().unwrap()[..] else { panic!("{results}") };
    assert_eq!(scf["missing_policies"], serde_json::json!(["aalo:at=both"]));
    assert!(scf["mean_cct_s"].is_f64() && scf["speedup_p50"].is_null(), "{results}");
    assert_eq!(scf["baseline"], "aalo:at=both");
    assert!(dir.read("r.html").contains("The baseline has no results."));
}

#[test]
fn empty_parts_of_vary_are_refused_and_quotes_are_removed() {
    let dir = TestDir::new();
    for values in ["start=", "start=1MB,,2MB", "=1"] {
        let line = format!("sweep trace.txt --policies saath --vary {values}");
        assert_refused(&dir, &line, 2, &["without empty parts"]);
    }
    let sweep = |values: &str| {
        let line = "sweep trace.txt --policies saath --format csv --no-timing --vary";
        dir.stdout_of(&format!("{line} {values}"))
    };
    assert_eq!(sweep("start=1MB,\"2MB\""), sweep("start=1MB,2MB"));
}
