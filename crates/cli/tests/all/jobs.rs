//! Jobs as a source of replays: times and slowdowns of jobs, and refused combinations.

use crate::common::TestDir;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/jobs.toml");

/// The numbers of a column in a CSV file.
fn numbers(csv: &str, column: usize) -> Vec<f64> {
    csv.lines().skip(1).map(|line| line.split(',').nth(column).unwrap().parse().unwrap()).collect()
}

#[test]
fn compare_reports_every_job_under_every_policy() {
    let dir = TestDir::new();
    let table =
        dir.stdout_of(&format!("compare {EXAMPLE} --policies fair,saba,varys --quiet --per-job jobs.csv"));
    assert!(table.contains("40 coflows, 5292 flows, 3.304 TB on 16 ports (5 jobs)"), "{table}");
    assert!(table.contains("nightly  etl"), "{table}");
    let csv = dir.read("jobs.csv");
    assert!(csv.starts_with("policy,job,start_s,end_s,time_s,alone_s,slowdown\nfair,LR-1,0.0,"), "{csv}");
    assert_eq!(csv.lines().count(), 1 + 3 * 5);
    let [start, end, time, alone, slowdown] = [2, 3, 4, 5, 6].map(|column| numbers(&csv, column));
    for job in 0..time.len() {
        assert!((end[job] - start[job] - time[job]).abs() < 1e-9, "{csv}");
        assert!((slowdown[job] - time[job] / alone[job]).abs() < 1e-9, "{csv}");
    }
    // With other numbers of threads, and in JSON.
    let line = format!("compare {EXAMPLE} --policies fair,saba --quiet --no-timing --format json");
    let json = dir.stdout_of(&line);
    assert_eq!(dir.stdout_of(&format!("{line} --jobs 2")), json);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let mean = slowdown[5..10].iter().sum::<f64>() / 5.0;
    assert!((json[1]["mean_job_slowdown"].as_f64().unwrap() - mean).abs() < 1e-9, "{json}");
    assert_eq!(json[1]["jobs_file"], EXAMPLE);
}

#[test]
fn saba_gives_bandwidth_by_the_profiles_of_jobs() {
    // As in section 2.2, LR, which waits for most of its bytes, shares the network with a permanent PR, which hardly does.
    let dir = TestDir::new();
    dir.write(
        "jobs.toml",
        "weir-jobs = 1\nfabric = { kind = \"big-switch\", hosts = 8, rate = \"56Gbit\" }\n\
         [workload.permanent]\nstages = [{ bytes = \"10TB\" }]\n\
         [[job]]\nworkload = \"LR\"\nservers = \"*\"\n\
         [[job]]\nworkload = \"permanent\"\nmodel = \"PR\"\nservers = \"*\"\n",
    );
    dir.stdout_of("compare jobs.toml --policies fair,saba --quiet --interval 0 --per-job jobs.csv");
    let times = numbers(&dir.read("jobs.csv"), 4);
    assert!(times[2] < 0.9 * times[0], "{times:?}");
    // The models of jobs are also used with limits of queues. With one queue, all flows share as with TCP.
    let policies = "fair,saba,saba:queues=1,saba:queues=2,saba:slowdown=2";
    dir.stdout_of(&format!(
        "compare jobs.toml --policies {policies} --quiet --interval 0 --per-job jobs.csv"
    ));
    let times = numbers(&dir.read("jobs.csv"), 4);
    let lr: Vec<f64> = times.iter().copied().step_by(2).collect();
    let is_near = |a: f64, b: f64| (a - b).abs() < 1e-6 * b;
    assert!(is_near(lr[2], lr[0]) && is_near(lr[3], lr[1]) && !is_near(lr[4], lr[1]), "{times:?}");
}

#[test]
fn jobs_on_disjoint_links_have_no_slowdown() {
    let dir = TestDir::new();
    let head = "weir-jobs = 1\nfabric = { kind = \"leaf-spine\", spines = 2, leaves = 4, hosts = 2, rate = \"8Gbit\", oversubscription = 4.0 }\n\
                [workload.own]\nstages = [{ bytes = \"1GB\" }]\n";
    let job = |hosts: &str| format!("[[job]]\nworkload = \"own\"\nservers = [{hosts}]\n");
    let jobs = [job("\"h0\", \"h1\", \"h2\", \"h3\""), job("\"h4\", \"h5\", \"h6\", \"h7\"")].concat();
    dir.write("jobs.toml", &format!("{head}{jobs}"));
    let mut differ = false;
    for seed in 0..8 {
        dir.stdout_of(&format!(
            "sim jobs.toml --policy fair --quiet --interval 0 --path-seed {seed} --per-job jobs.csv"
        ));
        let csv = dir.read("jobs.csv");
        assert!(numbers(&csv, 6).iter().all(|slowdown| (slowdown - 1.0).abs() < 1e-9), "{csv}");
        differ |= numbers(&csv, 5)[0] != numbers(&csv, 5)[1];
    }
    assert!(differ, "with some seed, the two jobs have different times alone");
}

#[test]
fn jobs_and_a_trace_share_one_network() {
    let dir = TestDir::new();
    dir.write(
        "jobs.toml",
        "weir-jobs = 1\nfabric = { kind = \"big-switch\", hosts = 3, rate = \"8Gbit\" }\n\
         [workload.own]\nstages = [{ bytes = \"2GB\" }]\n[[job]]\nworkload = \"own\"\nservers = [\"h0\", \"h1\"]\n",
    );
    dir.write("t.weir", "weir-trace 1\nports 3\ncoflow 7 job=3\nflow 0 2 1GB\n");
    dir.stdout_of(
        "sim t.weir jobs.toml --policy fair --interval 0 --quiet --per-coflow c.csv --per-job j.csv",
    );
    // Both flows of port 0 have half of 1 GB/s until the coflow ends after 2 s; the job then needs 1 s.
    assert_eq!(
        dir.read("c.csv"),
        "policy,coflow,job,stage,arrival_s,released_s,width,bytes,dropped_bytes,cct_s,end_s,alone_s,slowdown,service,application,weight,\
         deadline_s,deadline\n\
         fair,7,3,,0.0,0.0,1,1000000000.0,0.0,2.0,2.0,1.0,2.0,default,default,1.0,,\n\
         fair,8,own-1,0,0.0,0.0,2,4000000000.0,0.0,3.0,3.0,2.0,1.5,jobs,own-1,1.0,,\n"
    );
    assert_eq!(
        dir.read("j.csv"),
        "policy,job,start_s,end_s,time_s,alone_s,slowdown\nfair,3,0.0,2.0,2.0,,\nfair,own-1,0.0,3.0,3.0,2.0,1.5\n"
    );
    dir.stdout_of("trace convert jobs.toml jobs.weir");
    assert!(dir.read("jobs.weir").contains("service=jobs application=own-1 job=0 stage=0"));
}

#[test]
fn explanation_states_bytes_beyond_the_limit() {
    let dir = TestDir::new();
    dir.write("t.weir", "weir-trace 1\nports 2\ncoflow 1 transfer-limit=3s\nflow 0 1 5MB\n");
    let line = "explain t.weir --policy saath --coflow 1 --interval 0 --port-rate 8Mbit -q";
    let text = dir.stdout_of(line);
    assert!(text.contains("It took 3.000 s; alone it takes 3.000 s: a slowdown of 1.000."), "{text}");
    assert!(text.contains("Its flows ended at their limit: 2.000 MB were not sent.\n"), "{text}");
    assert!(text.contains("100.0 %  3.000 MB"), "{text}");
    assert_eq!(dir.json_of(&format!("{line} --format json"))["dropped_bytes"], 2e6);
}

#[test]
fn dropped_bytes_are_part_of_the_summary() {
    let dir = TestDir::new();
    dir.write("t.weir", "weir-trace 1\nports 2\ncoflow 1 transfer-limit=3s\nflow 0 1 5MB\n");
    let line = "compare t.weir --policies fair,saath --interval 0 --port-rate 8Mbit -q";
    assert!(dir.stdout_of(line).contains("2.000 MB"));
    assert_eq!(dir.json_of(&format!("{line} --format json"))[1]["dropped_bytes"], 2e6);
}

#[test]
fn sweep_varies_the_seed_of_paths() {
    let dir = TestDir::new();
    let line = format!("sweep {EXAMPLE} --policies fair,saath --vary path-seed=0,1,2 -q --no-timing");
    let found = dir.json_of(&format!("{line} --format json"));
    let mean = |row: usize| found[row]["mean_jct_s"].as_f64().unwrap();
    assert_eq!((&found[2]["path_seed"], &found[2]["vary_path-seed"]), (&1.into(), &"1".into()));
    assert!(mean(0) != mean(2) && mean(2) != mean(4), "{found}");
    let seed = |seed: u32| format!("sim {EXAMPLE} --policy fair --path-seed {seed} -q --format json");
    assert_eq!(dir.json_of(&seed(1))["mean_jct_s"], found[2]["mean_jct_s"]);
    assert!(dir.stdout_of(&line).contains("by a hash with seed `path-seed`"));
    let refused = dir.run("sweep trace.txt --policies fair --vary path-seed=1,2");
    assert!(refused.stderr.contains("`path-seed` does not exist on this network"), "{}", refused.stderr);
}

#[test]
fn jobs_refuse_a_second_network_and_a_second_file() {
    let dir = TestDir::new();
    dir.write("t.weir", "weir-trace 1\nports 20\ncoflow 7\nflow 0 19 1GB\n");
    let head = "weir-jobs = 1\n[[job]]\nworkload = \"own\"\nservers = \"*\"\n";
    let fabric = "[fabric]\nkind = \"big-switch\"\nhosts = 2\nrate = \"8Gbit\"\n";
    let workload = |bytes: &str| format!("[workload.own]\nstages = [{{ bytes = \"{bytes}\" }}]\n");
    dir.write("huge.toml", &format!("{head}{}{fabric}", workload("9000TB")));
    let event = "event = [{ at = \"1s\", cable = [\"h0\", \"switch\"], change = \"down\" }]\n";
    dir.write("stalled.toml", &format!("{head}{}{fabric}{event}", workload("9GB")));
    for (line, expected) in [
        (format!("sim {EXAMPLE} --policy fair --fabric x.toml"), "contains a network; expected no --fabric"),
        (format!("sim {EXAMPLE} --policy fair --port-rate 1Gbit"), "expected no --port-rate"),
        (format!("sim {EXAMPLE} {EXAMPLE} --policy fair"), "are both jobs; expected at most one trace"),
        ("sim t.weir t.weir --policy fair".to_owned(), "are both traces; expected at most one trace"),
        (format!("sim t.weir {EXAMPLE} --policy fair"), "expected at most 16, one for each host of"),
        (format!("sim {EXAMPLE} --policy fair --max-flows 9"), "have more than 9 flows"),
        ("sim t.weir --policy fair --path-seed 1".to_owned(), "--path-seed: `1`: one switch has no links"),
        ("sim t.weir --policy fair --decide-over ports".to_owned(), "--decide-over: `ports`: one switch"),
        ("sim huge.toml --policy fair".to_owned(), "reaches 2^53 bytes with it; expected less data"),
        (format!("saba run {EXAMPLE} --sharing saba"), "expected `weir compare JOBS --policies"),
    ] {
        let ran = dir.run(&line);
        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
        assert!(ran.stderr.contains(expected), "{line}: {}", ran.stderr);
    }
    let ran = dir.run("compare stalled.toml --policies saath --quiet --format json");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stderr.contains("saath: 0 of 1 coflows completed; no flow can send after 1s"),
        "{}",
        ran.stderr
    );
    assert!(ran.stdout.contains("\"mean_job_slowdown\": null"), "{}", ran.stdout);
}

/// The slowdowns of two periodic jobs that share an uplink, the second one after `offset_ms`. Each computes for 100 ms and sends for
/// 100 ms alone, in 20 rounds.
fn periodic_job_slowdowns(offset_ms: u32, interval: &str, policy: &str) -> [f64; 2] {
    let dir = TestDir::new();
    dir.write(
        "jobs.toml",
        &format!(
            "weir-jobs = 1\nfabric = {{ kind = \"leaf-spine\", spines = 1, leaves = 2, hosts = 2, rate = \"100Gbit\", \
             oversubscription = 2.0 }}\n\
             [workload.train]\nrounds = 20\nstages = [{{ compute = \"100ms\", bytes = \"1250MB\" }}]\n\
             [[job]]\nname = \"a\"\nworkload = \"train\"\nservers = [\"h0\", \"h2\"]\n\
             [[job]]\nname = \"b\"\nstart = \"{offset_ms}ms\"\nworkload = \"train\"\nservers = [\"h1\", \"h3\"]\n"
        ),
    );
    let line =
        format!("compare jobs.toml --policies {policy} --quiet --interval {interval} --per-job jobs.csv");
    dir.stdout_of(&line);
    numbers(&dir.read("jobs.csv"), 6).try_into().unwrap()
}

#[test]
fn weir_keeps_periodic_jobs_apart() {
    // Half a period apart, each job sends while the other one computes.
    let apart = periodic_job_slowdowns(100, "0", "weir");
    assert!(apart.iter().all(|slowdown| (slowdown - 1.0).abs() < 5e-3), "{apart:?}");
    for (offset, interval) in [(100, "8ms"), (0, "0")] {
        let (weir, varys) = (
            periodic_job_slowdowns(offset, interval, "weir"),
            periodic_job_slowdowns(offset, interval, "varys"),
        );
        for job in 0..2 {
            assert!(weir[job] <= 1.04 * varys[job], "after {offset} ms, {interval}: {weir:?} and {varys:?}");
        }
    }
}
