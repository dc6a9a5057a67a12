//! Tests results of commands, and their output formats.

use crate::common::TestDir;
use serde_json::Value;

const COMPARE: &str = "compare trace.txt --policies fifo,saath,varys --no-timing";

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn compare_prints_an_object_for_each_policy() {
    let dir = TestDir::new();
    let results = dir.json_of("compare trace.txt --policies fifo,saath --format json");
    let results = results.as_array().unwrap();
    assert_eq!(results.len(), 2);
    for name in [
        "policy",
        "coflows",
        "flows",
        "mean_cct_s",
        "p50_cct_s",
        "p90_cct_s",
        "p95_cct_s",
        "p99_cct_s",
        "makespan_s",
        "schedules",
        "schedule_mean_us",
        "schedule_p90_us",
        "schedule_p99_us",
        "wall_s",
        "processor_s",
        "speedup_p10",
        "speedup_p50",
        "speedup_p90",
        "speedup_mean",
        "lower_bound_mean_cct_s",
        "over_bound",
        "out_of_sync_p50",
        "out_of_sync_p90",
        "utilization_mean",
        "utilization_max",
        "port_rate",
        "interval_s",
        "trace_unit",
        "trace",
    ] {
        for one in results {
            assert!(keys(one).contains(&name), "{name}");
        }
    }
    let first = &results[0];
    assert_eq!(
        (&first["policy"], &first["coflows"], &first["flows"]),
        (&"fifo".into(), &3.into(), &7.into())
    );
    assert_eq!((&first["port_rate"], &first["interval_s"]), (&"1Gbit".into(), &0.008.into()));
    assert_eq!((&first["trace_unit"], &first["trace"]), (&"MB".into(), &"trace.txt".into()));
    let [wall, processor] = ["wall_s", "processor_s"].map(|name| first[name].as_f64().unwrap());
    // A thread uses at most one processor.
    assert!(0.0 < processor && processor <= wall + 1e-3, "{processor} of {wall} s");
    assert!(keys(first).iter().all(|name| !name.starts_with("deadline") && *name != "mean_jct_s"));
}

#[test]
fn speedups_are_relative_to_the_baseline() {
    let dir = TestDir::new();
    let results = dir.json_of("compare trace.txt --policies saath,fifo --baseline fifo --format json");
    assert_eq!(results[1]["speedup_mean"], 1.0);
    assert_eq!(results[0]["baseline"], "fifo");
    // A baseline outside the list of policies is replayed as well, and comes first.
    let results = dir.json_of("compare trace.txt --policies saath --baseline fifo --format json");
    assert_eq!((&results[0]["policy"], &results[1]["policy"]), (&"fifo".into(), &"saath".into()));
    let results = dir.json_of("compare trace.txt --policies saath,fifo --format json");
    assert_eq!(results[1]["baseline"], "saath");
}

#[test]
fn compare_without_policies_runs_all_that_apply_to_the_trace() {
    let dir = TestDir::new();
    let results = dir.json_of("compare trace.txt --format json");
    let policy_list = dir.json_of("policies --format json");
    let policies = policy_list.as_array().unwrap().iter();
    let mut expected: Vec<&str> = policies.map(|policy| policy["policy"].as_str().unwrap()).collect();
    expected.dedup();
    // The trace has one application, so policies that share between applications are excluded. Those of Siphon's evaluation are
    // compared between regions only.
    expected.retain(|policy| !["netshare", "saba", "siphon", "mrtf"].contains(policy));
    let compared: Vec<&str> =
        results.as_array().unwrap().iter().map(|p| p["policy"].as_str().unwrap()).collect();
    assert_eq!(compared, expected);
}

#[test]
fn sim_reports_deadlines_and_job_completion_times() {
    let dir = TestDir::new();
    let results = dir.json_of("sim own.weir --policy saath --interval 0 --format json");
    assert_eq!((&results["deadlines"], &results["deadlines_met"]), (&1.into(), &1.into()));
    assert_eq!(results["trace_unit"], Value::Null);
    // 0.2 s at full rate and 0.4 s at half rate, 0.1 s of computation, and 0.08 s for the second coflow.
    assert!((results["mean_jct_s"].as_f64().unwrap() - 0.78).abs() < 1e-9);
    assert!(dir.stdout_of("sim own.weir --policy saath").contains("in time"));
}

#[test]
fn sim_of_one_flow_equals_bytes_over_rate() {
    let dir = TestDir::new();
    dir.write("one.txt", "2 1\n5 0 1 0 1 1:25.0\n");
    let results = dir.json_of("sim one.txt --policy saath --interval 0 --format json");
    assert_eq!((&results["mean_cct_s"], &results["lower_bound_mean_cct_s"]), (&0.2.into(), &0.2.into()));
    let results = dir.json_of("sim one.txt --policy saath --port-rate 100Mbit --interval 0 --format json");
    assert_eq!(results["mean_cct_s"], 2.0);
    let results = dir.json_of("sim one.txt --policy saath --trace-unit MiB --interval 0 --format json");
    assert_eq!(results["mean_cct_s"], 0.2 * 1.048_576);
}

#[test]
fn csv_has_the_documented_columns() {
    let dir = TestDir::new();
    dir.stdout_of(&format!("{COMPARE} --per-coflow c.csv --per-flow f.csv"));
    let coflows = dir.read("c.csv");
    let mut lines = coflows.lines();
    assert_eq!(
        lines.next(),
        Some(
            "policy,coflow,job,stage,arrival_s,released_s,width,bytes,dropped_bytes,cct_s,end_s,alone_s,slowdown,service,application,\
             weight,deadline_s,deadline"
        )
    );
    assert!(lines.next().unwrap().starts_with("fifo,1,,,0.0,0.0,2,15000000.0,0.0,0.1"));
    assert_eq!(coflows.lines().count(), 1 + 3 * 3);
    let flows = dir.read("f.csv");
    assert_eq!(
        flows.lines().next(),
        Some(
            "policy,coflow,flow,src,dst,bytes,fct_s,start_s,end_s,alone_s,slowdown,service,application,weight,deadline_s,deadline,path"
        )
    );
    assert_eq!(flows.lines().count(), 1 + 3 * 7);
    // A flow without bytes completes when it is released.
    assert!(flows.contains("\nsaath,7,1,1,3,0.0,0.0,0.25,0.25,0.0,1.0,default,"), "{flows}");
    let table = dir.stdout_of(&format!("{COMPARE} --format csv"));
    assert!(table.starts_with("policy,coflows,flows,mean_cct_s,"), "{table}");
    assert_eq!(table.lines().count(), 4);
}

#[test]
fn table_names_trace_and_settings() {
    let dir = TestDir::new();
    let table = dir.stdout_of(COMPARE);
    let head = "trace.txt: 3 coflows, 7 flows, 24.00 MB on 4 ports (coflow-benchmark format, MB = 1000000 bytes)\n\
                Ports of 1Gbit, a schedule every 8ms.\n";
    assert!(table.starts_with(head), "{table}");
    assert!(
        dir.stdout_of(&format!("{COMPARE} --interval 0")).contains("a schedule whenever something happens")
    );
}

/// The words of a table's header, and of the first line of a policy.
fn header_and_row<'a>(text: &'a str, policy: &str) -> [Vec<&'a str>; 2] {
    let line = |first: &str| {
        let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines.find(|words| words.first() == Some(&first)).unwrap_or_else(|| panic!("no {first} in {text}"))
    };
    [line("policy"), line(policy)]
}

#[test]
fn compare_table_has_six_columns_with_the_json_values() {
    let dir = TestDir::new();
    let text = dir.stdout_of(COMPARE);
    let [head, saath] = header_and_row(&text, "saath");
    assert_eq!(head, ["policy", "mean", "P50", "P90", "P99", "speedup", "/bound"]);
    let results = &dir.json_of(&format!("{COMPARE} --format json"))[1];
    let names = ["mean_cct_s", "p50_cct_s", "p90_cct_s", "p99_cct_s", "speedup_p50", "over_bound"];
    for (cell, name) in saath[1..].iter().zip(names) {
        let (shown, exact) = (cell.parse::<f64>().unwrap(), results[name].as_f64().unwrap());
        let exact = if name.ends_with("_s") { 1e3 * exact } else { exact };
        assert!((shown - exact).abs() < 1e-3 * exact, "{name}: {shown} is not {exact}");
    }
    assert!(text.contains("Coflow completion times in milliseconds."), "{text}");
    assert!(text.contains("speedup: median over coflows of the time under `fifo` divided by"), "{text}");
    let bound = results["lower_bound_mean_cct_s"].as_f64().unwrap() * 1e3;
    let caption = format!("/bound: mean divided by {bound:.2} ms, the lower bound of the mean.");
    assert!(text.contains(&caption), "{text} lacks {caption}");
    assert!(text.ends_with('\n') && text.lines().last().unwrap().starts_with("varys "), "{text}");
}

#[test]
fn compare_adds_columns_for_deadlines_and_jobs() {
    let dir = TestDir::new();
    let text = dir.stdout_of("compare own.weir --policies saath,fair --interval 0 --no-timing");
    let [head, saath] = header_and_row(&text, "saath");
    // One deadline, which is met. The job takes 0.78 s.
    assert_eq!(head.join(" "), "policy mean P50 P90 P99 speedup /bound in time mean JCT");
    assert_eq!(saath[7..], ["1/1", "780.0"]);
    assert!(text.contains("in time: coflows that met their deadlines."), "{text}");
    assert!(text.contains("mean JCT: mean job completion time in milliseconds."), "{text}");
    assert!(!dir.stdout_of(COMPARE).contains("mean JCT"));
}

/// Flows of 1.6 us and 120 us: in seconds, three decimals would hide them.
#[test]
fn times_in_tables_have_the_unit_of_the_shortest_mean() {
    let dir = TestDir::new();
    dir.write("rpc.weir", "weir-trace 1\nports 4\ncoflow 1\nflow 0 1 20kB\ncoflow 2\nflow 2 3 1500kB\n");
    let options = "--policies fair,pfp --port-rate 100Gbit --interval 0 --no-timing";
    for line in [
        format!("compare rpc.weir {options}"),
        format!("compare rpc.weir {options} --wide"),
        format!("sweep rpc.weir {options} --vary arrival=1"),
    ] {
        let text = dir.stdout_of(&line);
        assert!(text.contains("Coflow completion times in microseconds"), "{text}");
        let words: Vec<&str> = text.split_whitespace().collect();
        // The mean and the median of both.
        assert!(words.windows(3).any(|row| row == ["pfp", "60.80", "60.80"]), "{line}: {text}");
    }
    let text = dir.stdout_of("explain rpc.weir --policy fair --coflow 1 --port-rate 100Gbit --interval 0");
    assert!(text.contains("Time line, in microseconds") && text.contains("0.0000  1.6000  full"), "{text}");
}

#[test]
fn wide_changes_the_table_but_not_json_or_csv() {
    let dir = TestDir::new();
    let text = dir.stdout_of(&format!("{COMPARE} --wide"));
    for title in ["P95", "makespan", "| P10", "out of sync P50", "ports busy", "schedules", "replay s"] {
        assert!(text.contains(title), "{title}: {text}");
    }
    assert_eq!(text.lines().filter(|line| line.starts_with("saath ")).count(), 2, "{text}");
    let text = dir.stdout_of("compare own.weir --policies saath --interval 0 --no-timing --wide");
    assert!(text.contains("in time") && text.contains("mean JCT"), "{text}");
    for format in ["json", "csv"] {
        let line = format!("{COMPARE} --format {format}");
        assert_eq!(dir.stdout_of(&line), dir.stdout_of(&format!("{line} --wide")));
    }
}

#[test]
fn output_does_not_depend_on_runs_or_threads() {
    let dir = TestDir::new();
    for format in ["table", "json", "csv"] {
        let line = format!("{COMPARE} --format {format} --per-coflow c.csv");
        let first = (dir.stdout_of(&line), dir.read("c.csv"));
        assert_eq!((dir.stdout_of(&line), dir.read("c.csv")), first);
        assert_eq!((dir.stdout_of(&format!("{line} --jobs 3")), dir.read("c.csv")), first);
    }
    let sweep = "sweep trace.txt --policies saath,fifo --vary interval=0,8ms --no-timing --format json";
    assert_eq!(dir.stdout_of(sweep), dir.stdout_of(&format!("{sweep} --jobs 2")));
}

#[test]
fn arrival_speedup_scales_stage_release_times() {
    let dir = TestDir::new();
    let text = "weir-trace 1\nports 2\ncoflow 1 job=1 stage=0\nflow 0 1 125MB\ncoflow 2 arrival=8s job=1 stage=0\nflow 0 1 125MB\n";
    dir.write("stage.weir", text);
    let results = dir.json_of(
        "sweep stage.weir --per-stage --policies saath --vary arrival=1,4 --no-timing --format json",
    );
    // The second coflow's data is available after 8 s, and after 2 s with arrivals four times as fast.
    assert_eq!((&results[0]["mean_cct_s"], &results[1]["mean_cct_s"]), (&9.0.into(), &3.0.into()));
}

#[test]
fn sweep_replays_all_combinations_of_values() {
    let dir = TestDir::new();
    let line = "sweep trace.txt --policies saath,fifo --baseline fifo --vary start=1MB,10MB --vary arrival=1,2,4 \
                --no-timing --format json";
    let results = dir.json_of(line);
    let results = results.as_array().unwrap();
    assert_eq!(results.len(), 2 * 3 * 2);
    let last = &results[10];
    assert_eq!((&last["vary_start"], &last["vary_arrival"]), (&"10MB".into(), &"4".into()));
    assert_eq!(last["policy"], "saath:start=10MB");
    assert_eq!((&results[11]["policy"], &results[11]["speedup_mean"]), (&"fifo".into(), &1.0.into()));
    // A parameter that needs another, in any order.
    let turns = "sweep trace.txt --policies aalo --vary turn=1ms,2ms --vary sharing=strict,turns";
    let turns = dir.json_of(&format!("{turns} --format json"));
    let policies: Vec<&Value> = (0..4).map(|index| &turns[index]["policy"]).collect();
    let with_turn = |turn: &str| format!("aalo:turn={turn}:sharing=turns");
    assert_eq!(
        policies,
        ["aalo:sharing=strict", &*with_turn("1ms"), "aalo:sharing=strict", &*with_turn("2ms")]
    );
    let error = dir.stderr_of("sweep trace.txt --policies aalo --vary turn=1ms", 2);
    assert!(error.contains("`turn` has an effect only with `sharing=turns`; expected both"), "{error}");
    // A parameter of one policy.
    let scoped =
        dir.json_of("sweep trace.txt --policies aalo,saath --vary saath:start=1MB,2MB --format json");
    let policies: Vec<&Value> = (0..4).map(|index| &scoped[index]["policy"]).collect();
    assert_eq!(policies, ["aalo", "saath:start=1MB", "aalo", "saath:start=2MB"]);
    assert_eq!(scoped[1]["vary_saath:start"], "1MB");
    // The values of several traces are samples.
    dir.write("slow.txt", "2 1\n1 0 1 0 1 1:50.0\n");
    dir.write("fast.txt", "2 1\n1 0 1 0 1 1:25.0\n");
    let line = "sweep slow.txt fast.txt --policies saath --interval 0 --vary arrival=1,2 --no-timing";
    let each = dir.json_of(&format!("{line} --format json"));
    let expected = [("slow.txt", 0.4), ("slow.txt", 0.4), ("fast.txt", 0.2), ("fast.txt", 0.2)];
    for (at, (trace, time)) in expected.into_iter().enumerate() {
        assert_eq!((&each[at]["trace"], &each[at]["mean_cct_s"]), (&trace.into(), &time.into()));
    }
    let combined = dir.json_of(&format!("{line} --confidence --format json"));
    assert_eq!(combined.as_array().unwrap().len(), 2);
    assert_eq!((&combined[0]["samples"], &combined[1]["vary_arrival"]), (&2.into(), &"2".into()));
    assert_eq!((&combined[0]["clusters"], &combined[0]["clustered_by"]), (&2.into(), &"trace".into()));
    // Student's t with one degree of freedom is 12.706, and the standard error is 0.1.
    let [mean, width] = ["mean_cct_s", "mean_cct_s_ci95"].map(|name| combined[0][name].as_f64().unwrap());
    assert!((mean - 0.3).abs() < 1e-9 && (width - 1.270_620_473_6).abs() < 1e-9, "{combined}");
    let text = dir.stdout_of(&format!("{line} --confidence"));
    assert!(text.contains("300.0 ± 1271") && text.contains("slow.txt: 1 coflow"), "{text}");
    // A fixed baseline without varied parameters is equal for all values.
    let sweep_command =
        |vary: &str| format!("sweep trace.txt --policies fifo --fixed-baseline --no-timing --vary {vary}");
    let fixed = dir.json_of(&format!("{} --format json", sweep_command("arrival=1,4")));
    assert_eq!(fixed[0]["speedup_mean"], 1.0);
    let ccts = [0, 1].map(|index| fixed[index]["p99_cct_s"].as_f64().unwrap());
    assert!(ccts[1] > ccts[0] && fixed[1]["speedup_mean"].as_f64().unwrap() < 1.0, "{fixed}");
    let text = dir.stdout_of(&sweep_command("interval=0,8ms"));
    assert!(
        text.contains("a schedule every `interval`.")
            && text.contains("over `fifo` with unvaried parameters"),
        "{text}"
    );
    let rates = dir.json_of("sweep trace.txt --policies saath --vary port-rate=1Gbit,10Gbit --format json");
    assert_eq!(rates[1]["port_rate"], "10Gbit");
    assert!(rates[1]["mean_cct_s"].as_f64() < rates[0]["mean_cct_s"].as_f64());
}

#[test]
fn explain_divides_the_cct_into_waiting_and_sending() {
    let dir = TestDir::new();
    let results = dir.json_of("explain trace.txt --policy fifo --coflow 2 --interval 0 --format json");
    let number = |name: &str| results[name].as_f64().unwrap();
    // The first coflow takes 120 ms, 20 ms of them after the second's arrival.
    assert!((number("waiting_s") - 0.02).abs() < 1e-9 && (number("full_s") - 0.008).abs() < 1e-9);
    assert!((number("cct_s") - 0.028).abs() < 1e-9 && (number("slowdown") - 3.5).abs() < 1e-6);
    assert_eq!(
        (&results["by_cause"][0]["port"], &results["by_cause"][0]["side"]),
        (&0.into(), &"send".into())
    );
    assert_eq!(results["by_coflow"][0]["coflow"], 1);
    assert_eq!(results["segments"][0]["held_up_by"], 1);
    let text = dir.stdout_of("explain trace.txt --policy fifo --coflow 2 --interval 0");
    assert!(text.contains("`pace` is the progress relative to running alone; `sent` counts"), "{text}");
    assert!(text.contains("port 0 (sending)") && text.contains("coflow 1"), "{text}");
    // The coflow arrives at 100 ms.
    assert_eq!(
        (&results["segments"][0]["from_s"], &results["segments"][0]["since_release_s"]),
        (&0.1.into(), &0.0.into())
    );
    let second = &results["segments"][1];
    let after = second["from_s"].as_f64().unwrap() - second["since_release_s"].as_f64().unwrap();
    assert!((after - 0.1).abs() < 1e-12, "{second}");
    assert!(text.contains("in milliseconds since the release:\n\n  from      to  "), "{text}");
    assert!(text.lines().any(|line| line.starts_with(" 0.000  20.000  waiting")), "{text}");
    let csv = dir.stdout_of("explain trace.txt --policy fifo --coflow 2 --format csv --all");
    assert!(
        csv.lines().next().unwrap().ends_with(
            ",segments,since_release_s,trunk,held_up_by_leaf,estimated_s,estimated_from_flows,attained_s,\
             held_up_by_estimated_s,held_up_by_attained_s,leaf,leaf_policy,rejected_needed_s,rejected_left_s"
        ),
        "{csv}"
    );
    assert!(
        csv.starts_with(
            "from_s,to_s,state,pace,bytes,queue,contention,overdue,rule,cause,port,side,held_up_by,"
        ),
        "{csv}"
    );
}

/// A port at a tenth of its rate, which two coflows of 1 s share.
#[test]
fn explain_charges_a_slow_port_to_no_coflow() {
    let dir = TestDir::new();
    let coflows = "coflow 1\nflow 0 1 1MB\ncoflow 2\nflow 0 2 1MB\n";
    dir.write("slow.weir", &format!("weir-trace 1\nports 3\n{coflows}event 0s port=0 side=both rate=0.1\n"));
    for policy in ["fair", "netshare", "saba"] {
        let line = format!("explain slow.weir --policy {policy} --coflow 1 --interval 0 --port-rate 8Mbit");
        let found = dir.json_of(&format!("{line} --format json"));
        let number = |value: &serde_json::Value| (value.as_f64().unwrap() * 1e9).round() / 1e9;
        assert_eq!((number(&found["cct_s"]), number(&found["alone_s"])), (20.0, 1.0), "{policy}");
        let causes = found["by_cause"].as_array().unwrap().iter();
        let causes: Vec<_> =
            causes.map(|found| (found["cause"].as_str().unwrap(), number(&found["lost_s"]))).collect();
        assert_eq!(causes, [("port", 10.0), ("slow-port", 9.0)], "{policy}");
        let coflows = found["by_coflow"].as_array().unwrap();
        assert_eq!((coflows.len(), number(&coflows[0]["lost_s"])), (1, 10.0), "{policy}");
        let text = dir.stdout_of(&line);
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.windows(4).any(|row| row == ["coflow", "2", "10.00", "s"]), "{text}");
    }
}

/// The second flow of coflow 1 has data after 1.1 s, when the first one has ended. Coflow 2 arrives at that time, with unknown sizes.
#[test]
fn explain_shows_the_estimates_that_decided_the_order() {
    let dir = TestDir::new();
    let coflows =
        "coflow 1\nflow 0 1 1MB\nflow 0 1 1MB release=1100ms\ncoflow 2 arrival=1100ms\nflow 0 2 500kB\n";
    dir.write("two.weir", &format!("weir-trace 1\nports 3\n{coflows}"));
    let line = "explain two.weir --policy weir:turns=0:pilots=9s --coflow 1 --interval 0 --port-rate 8Mbit";
    let found = dir.json_of(&format!("{line} --format json"));
    let [first, _, waiting, last] = &found["segments"].as_array().unwrap()[..] else { panic!("{found}") };
    let number = |value: &serde_json::Value| value.as_f64().map(|number| (number * 1e6).round() / 1e6);
    assert_eq!(first["state"], "full");
    assert!(first["estimated_from_flows"] == 0 && first["attained_s"].is_number(), "{first}");
    // A byte took 1 us. The other coflow has been served for less time than this estimate when it ends.
    assert_eq!((&waiting["state"], number(&waiting["to_s"])), (&"waiting".into(), Some(1.6)));
    assert_eq!((number(&waiting["estimated_s"]), &waiting["estimated_from_flows"]), (Some(1.0), &1.into()));
    assert_eq!(&waiting["held_up_by"], 2);
    // The last level below 0.5 s: 16 ms x 1.25^15. Without sizes of earlier coflows, ln 1.25 / 0.2 times that is expected.
    assert_eq!(number(&waiting["held_up_by_attained_s"]), Some(0.454747));
    assert_eq!(number(&waiting["held_up_by_estimated_s"]), Some(0.50737));
    assert_eq!((&last["state"], number(&last["estimated_s"])), (&"full".into(), Some(1.0)));
    let text = dir.stdout_of(line);
    assert!(
        text.contains("estimated 1.000 s from 1 flow")
            && text.contains("2 (estimated 507.4 ms, attained 454.7 ms, 100.0 %)"),
        "{text}"
    );
}

#[test]
fn policies_are_listed_with_their_parameters() {
    let dir = TestDir::new();
    let all = dir.stdout_of("policies");
    let one = dir.stdout_of("policies saath");
    assert!(all.contains("saath") && all.contains("fifo"));
    assert!(one.contains("start=10MB") && !one.contains("fifo  "), "{one}");
}

#[test]
fn trace_check_and_describe_count_coflows_and_flows() {
    let dir = TestDir::new();
    assert_eq!(
        dir.stdout_of("trace check trace.txt"),
        "ok: trace.txt: coflow-benchmark format, MB = 1000000 bytes; 4 ports, 3 coflows, 7 flows, 24.00 MB, 0 events, \
         arrivals until 250.0 ms\n"
    );
    assert!(dir.stdout_of("trace check own.weir").starts_with("ok: own.weir: Weir's format"));
    let results = dir.json_of("trace describe trace.txt --format json");
    assert_eq!((&results["coflows"], &results["empty_flows"]), (&3.into(), &2.into()));
    assert_eq!(results["deviations"].as_array().unwrap().last().unwrap()["share"], 1.0);
    assert!(dir.stdout_of("trace describe trace.txt").contains("Table 1"));
    assert_eq!(dir.stdout_of("trace describe trace.txt --format csv").lines().count(), 2);
}

#[test]
fn explain_slowest_lists_the_coflows_with_the_longest_times() {
    let dir = TestDir::new();
    let line = "explain trace.txt --policy fifo --interval 0";
    let list = dir.json_of(&format!("{line} --slowest 2 --format json"));
    let list = list.as_array().unwrap();
    let lines = dir.stdout_of("sim trace.txt --policy fifo --interval 0 --out sim.txt --per-coflow -");
    let mut ccts: Vec<(f64, u64)> = lines
        .lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            (fields[9].parse().unwrap(), fields[1].parse().unwrap())
        })
        .collect();
    ccts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let found: Vec<(f64, u64)> = list
        .iter()
        .map(|explained| (explained["cct_s"].as_f64().unwrap(), explained["coflow"].as_u64().unwrap()))
        .collect();
    assert_eq!(found, ccts[..2]);
    let id = ccts[0].1;
    assert_eq!(list[0], dir.json_of(&format!("{line} --coflow {id} --format json")));
    let text = dir.stdout_of(&format!("{line} --slowest 9"));
    assert_eq!(text.matches(" under fifo: ").count(), 3, "{text}");
    let csv = dir.stdout_of(&format!("{line} --slowest 2 --format csv"));
    assert!(
        csv.starts_with("coflow,from_s,") && csv.lines().nth(1).unwrap().starts_with(&format!("{id},")),
        "{csv}"
    );
}

#[test]
fn seeds_and_ranges_contain_both_ends() {
    let dir = TestDir::new();
    dir.stdout_of("fabric generate leaf-spine --spines 2 --leaves 2 --hosts 2 --rate 1Gbit --oversubscription 1 --out two.toml");
    let options = "--policies fair,saath --fabric two.toml --no-timing --format json";
    let by_seeds = dir.json_of(&format!("sweep trace.txt {options} --seeds 1..3 --vary interval=0,8ms"));
    let listed =
        dir.json_of(&format!("sweep trace.txt {options} --vary interval=0,8ms --vary path-seed=1,2,3"));
    assert_eq!((by_seeds.as_array().unwrap().len(), &by_seeds), (12, &listed));
    let list = dir.json_of(&format!("sweep trace.txt {options} --seeds 1,2,3 --vary interval=0,8ms"));
    assert_eq!(list, by_seeds);
    let range = dir.json_of("sweep trace.txt --policies saath --vary d=2..4 --no-timing --format json");
    let values: Vec<&str> =
        range.as_array().unwrap().iter().map(|row| row["vary_d"].as_str().unwrap()).collect();
    assert_eq!(values, ["2", "3", "4"]);
}

/// Seeds of one trace are not independent samples of traces, so an interval counts traces.
#[test]
fn confidence_intervals_are_over_traces_whose_seeds_are_averaged_first() {
    let dir = TestDir::new();
    dir.stdout_of("fabric generate leaf-spine --spines 2 --leaves 2 --hosts 2 --rate 1Gbit --oversubscription 1 --out two.toml");
    for seed in 1..=3 {
        let widths = "--ports 4 --coflows 6 --mappers constant:2 --reducers constant:1";
        dir.stdout_of(&format!("trace generate {widths} --arrival burst --seed {seed} --out {seed}.txt"));
    }
    let options = "--fabric two.toml --policies fair --vary path-seed=1,2,3 --no-timing";
    let line = format!("sweep 1.txt 2.txt 3.txt {options}");
    let each = dir.json_of(&format!("{line} --format json"));
    let of_traces: Vec<f64> =
        each.as_array().unwrap().iter().map(|row| row["mean_cct_s"].as_f64().unwrap()).collect();
    assert!(of_traces.windows(2).any(|pair| pair[0] != pair[1]), "seeds matter: {of_traces:?}");
    let means: Vec<f64> = of_traces.chunks(3).map(|seeds| seeds.iter().sum::<f64>() / 3.0).collect();
    let mean = means.iter().sum::<f64>() / 3.0;
    let variance = means.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 2.0;

    let combined = &dir.json_of(&format!("{line} --confidence --format json"))[0];
    assert_eq!((&combined["samples"], &combined["clusters"]), (&9.into(), &3.into()));
    assert!((combined["mean_cct_s"].as_f64().unwrap() / mean - 1.0).abs() < 1e-12, "{combined}");
    // Student's t with two degrees of freedom.
    let half_width = 4.302_652_729_9 * (variance / 3.0).sqrt();
    assert!((combined["mean_cct_s_ci95"].as_f64().unwrap() / half_width - 1.0).abs() < 1e-9, "{combined}");

    let of_one = format!("sweep 1.txt {options} --confidence");
    let row = &dir.json_of(&format!("{of_one} --format json"))[0];
    assert_eq!((&row["clusters"], &row["clustered_by"]), (&3.into(), &"seed".into()));
    let table = dir.stdout_of(&of_one);
    assert!(table.contains("over seeds of one trace") && table.contains("seeds"), "{table}");
}

/// A trace whose coflows differ in all keys that only some policies use.
const KEYED_TRACE: &str = "\
weir-trace 1
ports 3
coflow 1 weight=2 deadline=1s service=ads application=sort
flow 0 1 50MB
coflow 2 service=ads application=join
flow 0 1 10MB
coflow 3 service=web
flow 1 2 10MB
";

#[test]
fn keys_that_policies_do_not_use_are_named_once() {
    let dir = TestDir::new();
    dir.write("keyed.weir", KEYED_TRACE);
    let line = "compare keyed.weir --policies fifo,sincronia,varys:deadlines=on,netshare,saba --no-timing";
    let records = dir.json_of(&format!("{line} --format json"));
    let unused: Vec<String> = (0..5).map(|at| records[at]["unused_keys"].to_string()).collect();
    let expected = [
        r#"["weight","deadline","service","application"]"#,
        r#"["deadline","service","application"]"#,
        r#"["weight","service","application"]"#,
        r#"["weight","deadline","application"]"#,
        r#"["weight","deadline"]"#,
    ];
    assert_eq!(unused, expected);
    let table = dir.stdout_of(line);
    let notes: Vec<&str> = table.lines().filter(|line| line.contains("not used by")).collect();
    assert_eq!(
        notes,
        [
            "The key `weight` is not used by fifo, varys:deadlines=on, netshare, saba.",
            "The key `deadline` is not used by fifo, sincronia, netshare, saba.",
            "The key `service` is not used by fifo, sincronia, varys:deadlines=on.",
            "The key `application` is not used by fifo, sincronia, varys:deadlines=on, netshare.",
        ]
    );
    assert!(dir.stdout_of(&format!("{line} --format csv")).contains(",weight deadline service application,"));
    // Parameters of a sweep decide whether a key is used.
    let sweep = "sweep keyed.weir --policies varys,fair --vary deadlines=off,on --no-timing";
    let table = dir.stdout_of(sweep);
    assert_eq!(
        table.matches("The key `deadline` is not used by varys:deadlines=off, fair.").count(),
        1,
        "{table}"
    );
    // All coflows of this trace have the defaults.
    let plain = dir.json_of("sim trace.txt --policy fifo --format json");
    assert_eq!(plain["unused_keys"], serde_json::json!([]));
}

/// A flow of 8 us at a Unix time. Its port has half of its rate from 4 us on.
const UNIX_TIME_TRACE: &str = "\
weir-trace 1
ports 4
coflow 1 arrival=1700000000s
flow 0 2 1kB
coflow 2 arrival=1700000000.5s
flow 0 2 1kB
event 1700000000.500004s port=0 side=send rate=0.5
";

#[test]
fn unix_times_are_shifted_by_a_multiple_of_the_interval() {
    let dir = TestDir::new();
    dir.write("unix.weir", UNIX_TIME_TRACE);
    let line = "sim unix.weir --policy fair --port-rate 1Gbit --no-timing --per-coflow coflows.csv";
    let table = dir.stdout_of(&format!("{line} --interval 0"));
    assert!(table.contains("times are 1700000000s earlier, --keep-arrivals keeps them"), "{table}");
    let ccts: Vec<f64> = dir
        .read("coflows.csv")
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(9).unwrap().parse().unwrap())
        .collect();
    assert!((ccts[0] - 8e-6).abs() < 1e-12 && (ccts[1] - 12e-6).abs() < 1e-12, "{ccts:?}");
    assert_eq!(dir.json_of(&format!("{line} --interval 7ms --format json"))["time_shift_s"], 1_699_999_994.0);
    let error = dir.stderr_of(&format!("{line} --keep-arrivals"), 2);
    assert!(
        error.contains("unix.weir:3: field `arrival`: `1700000000s`: expected a time of at most 1e9 seconds"),
        "{error}"
    );
    assert!(dir.stdout_of("trace check unix.weir").contains("arrivals until 500.0 ms"));
    // Cable events of a fabric are shifted, too: here to 4 us after the second arrival.
    dir.write("plain.weir", UNIX_TIME_TRACE.split("event").next().unwrap());
    dir.stdout_of("fabric generate leaf-spine --spines 1 --leaves 2 --hosts 2 --rate 1Gbit --oversubscription 1 --out plain.toml");
    let event = "\n[[event]]\nat = \"1700000000.500004s\"\ncable = [\"h0\", \"leaf0\"]\nchange = \"rate\"\nrate = \"500Mbit\"\n";
    dir.write("event.toml", &(dir.read("plain.toml") + event));
    let results = dir
        .json_of("sim plain.weir --fabric event.toml --policy fair --interval 0 --no-timing --format json");
    // A binary64 represents the event's time to 0.2 us.
    assert!((results["mean_cct_s"].as_f64().unwrap() - 10e-6).abs() < 0.2e-6, "{results}");
}

#[test]
fn trace_generate_is_deterministic_and_describe_reads_its_output() {
    let dir = TestDir::new();
    let first = dir.stdout_of("trace generate --preset small --seed 3");
    assert_eq!(dir.stdout_of("trace generate --seed 3"), first);
    assert_ne!(dir.stdout_of("trace generate --seed 4"), first);
    dir.stdout_of(
        "trace generate --ports 6 --coflows 5 --mappers constant:2 --size uniform:1,3 --skew zipf:1.1 --arrival burst \
         --to weir --out made.weir",
    );
    let results = dir.json_of("trace describe made.weir --format json");
    assert_eq!(
        (&results["ports"], &results["coflows"], &results["last_arrival_s"]),
        (&6.into(), &5.into(), &0.0.into())
    );
}

#[test]
fn generated_sizes_and_arrivals_are_rounded_to_bytes_and_nanoseconds() {
    let dir = TestDir::new();
    for file in ["tiny.weir", "tiny.txt"] {
        let widths = "--ports 6 --coflows 100 --mappers constant:2 --reducers constant:1";
        dir.stdout_of(&format!(
            "trace generate {widths} --size constant:0.02 --arrival every:12345ns --out {file}"
        ));
        let results = dir.json_of(&format!("trace describe {file} --format json"));
        assert_eq!(results["bytes"], 2e6, "{file}");
        let last = results["last_arrival_s"].as_f64().unwrap();
        assert!((last - 99.0 * 12_345e-9).abs() < 1e-15, "{file}: {last}");
    }
    // A preset's arrivals are whole milliseconds, but not those of an option.
    dir.stdout_of("trace generate --preset small --coflows 2 --arrival every:12345ns --out preset.weir");
    assert_eq!(dir.json_of("trace describe preset.weir --format json")["last_arrival_s"], 12_345e-9);
}

#[test]
fn trace_conversion_round_trip_is_lossless() {
    let dir = TestDir::new();
    let stdout = dir.stdout_of("trace convert trace.txt made.weir");
    assert!(stdout.starts_with("wrote made.weir: ") && stdout.contains("(Weir's own format)"), "{stdout}");
    assert_eq!(dir.stdout_of("trace convert made.weir - --to coflow-benchmark"), crate::common::TRACE);
    dir.stdout_of("trace convert own.weir own2.weir --to weir --per-stage");
    // Both coflows of the job are in one stage, so they become one coflow, which does not depend on itself.
    assert_eq!(dir.json_of("trace describe own2.weir --format json")["coflows"], 1);
}

#[cfg(feature = "docs")]
#[test]
fn completions_and_man_pages_are_generated() {
    let dir = TestDir::new();
    assert!(dir.stdout_of("completions bash").contains("complete -F _weir"));
    assert!(dir.stdout_of("man").contains(".TH weir 1"));
    dir.stdout_of("man --out pages");
    assert!(dir.read("pages/weir-trace-generate.1").contains("preset"));
    assert!(dir.read("pages/weir-compare.1").contains("baseline"));
}

#[test]
fn coflow_without_bytes_takes_no_time_and_uses_no_port() {
    let dir = TestDir::new();
    dir.write("empty.txt", "4 1\n1 0 1 0 1 1:0.0\n");
    let results = dir.json_of("sim empty.txt --policy saath --format json");
    assert_eq!((&results["mean_cct_s"], &results["lower_bound_mean_cct_s"]), (&0.0.into(), &0.0.into()));
    assert_eq!((&results["utilization_mean"], &results["out_of_sync_p90"]), (&Value::Null, &Value::Null));
}

#[test]
fn counts_of_one_are_printed_in_the_singular() {
    let dir = TestDir::new();
    dir.write(
        "one.weir",
        "weir-trace 1\nports 1\ncoflow 1\nflow 0 0 1MB\nevent 1s port=0 side=send rate=1\n",
    );
    let checked = dir.stdout_of("trace check one.weir");
    assert!(checked.contains("; 1 port, 1 coflow, 1 flow, 1.000 MB, 1 event, arrivals"), "{checked}");
    let explained = dir.stdout_of("explain one.weir --policy saath --coflow 1");
    assert!(explained.contains("one.weir: 1 coflow, 1 flow, 1.000 MB on 1 port ("), "{explained}");
    assert!(explained.contains("Coflow 1 under saath: 1 flow, "), "{explained}");
    assert!(dir.stdout_of("trace convert one.weir two.weir").contains(": 1 coflow, 1 flow ("));
    assert!(dir.stdout_of("trace describe one.weir").contains("1, of 1 application in all"));
}

#[test]
fn groups_of_coflows_have_their_own_statistics() {
    let dir = TestDir::new();
    // 1 MB and 3 MB at 1 MB/s over separate ports, of weights 3 and 1.
    dir.write(
        "two.weir",
        "weir-trace 1\nports 4\ncoflow 1 weight=3 service=ads application=sort deadline=2s\nflow 0 1 1MB\n\
         coflow 2 service=web deadline=2s\nflow 2 3 3MB\n",
    );
    let line =
        "sim two.weir --policy fair --interval 0 --port-rate 8Mbit --quiet --per-group g.csv --format json";
    assert_eq!(dir.json_of(line)["weighted_mean_cct_s"], (3.0 * 1.0 + 3.0) / 4.0);
    let groups = dir.read("g.csv");
    let expected = "policy,kind,group,coflows,bytes,mean_cct_s,p50_cct_s,p90_cct_s,p95_cct_s,p99_cct_s\n\
                    fair,service,ads,1,1000000.0,1.0,1.0,1.0,1.0,1.0\n\
                    fair,service,web,1,3000000.0,3.0,3.0,3.0,3.0,3.0\n\
                    fair,application,ads/sort,1,1000000.0,1.0,1.0,1.0,1.0,1.0\n\
                    fair,application,web/default,1,3000000.0,3.0,3.0,3.0,3.0,3.0\n\
                    fair,weight,1,1,3000000.0,3.0,3.0,3.0,3.0,3.0\n\
                    fair,weight,3,1,1000000.0,1.0,1.0,1.0,1.0,1.0\n\
                    fair,deadline,met,1,1000000.0,1.0,1.0,1.0,1.0,1.0\n\
                    fair,deadline,missed,1,3000000.0,3.0,3.0,3.0,3.0,3.0\n";
    assert_eq!(groups, expected);
}

#[test]
fn short_flow_on_a_fast_link_takes_the_same_time_under_every_policy() {
    let dir = TestDir::new();
    // 25,800 bytes at 100 Gbit/s take 2.064 us.
    dir.write("one.weir", "weir-trace 1\nports 2\ncoflow 1 arrival=20088081ns\nflow 0 1 25800B\n");
    let results = dir.json_of("compare one.weir --port-rate 100Gbit --interval 0 --quiet --format json");
    let results = results.as_array().unwrap();
    assert!(results.iter().any(|row| row["policy"] == "weir"));
    for row in results {
        let (cct, shift) = (row["mean_cct_s"].as_f64().unwrap(), row["time_shift_s"].as_f64().unwrap());
        // As exact as the time of the end.
        let end = 0.020_088_081 - shift + 2.064e-6;
        assert!((cct - 2.064e-6).abs() <= 4.0 * f64::EPSILON * end, "{}: {cct}", row["policy"]);
    }
}
