//! Tests `weir profile`. Tests that need a testbed skip without the privileges for one.

use std::ops::Deref;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::bed::Bed;
use crate::common::{CommandOutput, TestDir, wait_within};
use crate::host_pair::HostPair;

const FABRIC: &str = "weir-fabric = 1\nkind = \"big-switch\"\nhosts = 3\nrate = \"100Mbit\"\n";

const TABLE_OF_OTHER: &str = "version = 1\n[[application]]\nname = \"other\"\ncoefficients = [2.0, -1.0]\n";

/// A testbed of three hosts, with the commands of these tests.
struct ProfileTestbed(Bed);

impl Deref for ProfileTestbed {
    type Target = Bed;

    fn deref(&self) -> &Bed {
        &self.0
    }
}

fn profile_testbed(test: &str) -> Option<ProfileTestbed> {
    Bed::with_fabric(test, 3, FABRIC).map(ProfileTestbed)
}

impl ProfileTestbed {
    fn run_profile(&self, line: &str) -> CommandOutput {
        self.dir.run(&format!("profile --bed {} {line}", self.name))
    }

    /// The rate of a node's port, as `tc` prints it.
    fn port_rate(&self, node: &str, port: &str) -> String {
        let namespace = format!("{}{node}", self.prefix());
        let output = Command::new("tc").args(["-n", &namespace, "class", "show", "dev", port]).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        text.split_once(" rate ").unwrap().1.split(' ').next().unwrap().to_owned()
    }

    fn port_rates(&self) -> Vec<String> {
        [
            ("h0", "eth0"),
            ("h1", "eth0"),
            ("h2", "eth0"),
            ("switch", "eth0"),
            ("switch", "eth1"),
            ("switch", "eth2"),
        ]
        .map(|(node, port)| self.port_rate(node, port))
        .into()
    }
}

#[test]
fn wrong_profile_usage_is_exit_2() {
    let dir = TestDir::new();
    dir.write("t.toml", TABLE_OF_OTHER);
    dir.write("x.toml", "version = 2\n");
    for (line, message) in [
        ("profile -- true", "--bed <NAME>"),
        ("profile --bed b", "<COMMAND>"),
        ("profile --bed a-b -- true", "bed name `a-b` is invalid"),
        ("profile --bed b --interface eth0 --rate 1Gbit -- true", "cannot be used with"),
        ("profile --interface eth0 -- true", "--rate <RATE>"),
        ("profile --interface eth0 --rate 100 -- true", "invalid value '100' for '--rate <RATE>'"),
        (
            "profile --interface lo --rate 100kbit -- true",
            "--rate: 5 % of the rate: link rate 5kbit is out of range; expected 8kbit",
        ),
        ("profile --interface nowhere0 --rate 1Gbit --hosts h0 -- true", "cannot be used with"),
        ("profile --bed b --runs 0 -- true", "0 is not in 1..=100"),
        ("profile --bed b --timeout 5 -- true", "invalid value '5' for '--timeout <TIME>'"),
        ("profile --bed b --name= -- true", "expected 1 to 100 bytes without control characters"),
        (
            "profile --bed b -- /",
            "COMMAND: ``: expected 1 to 100 bytes without control characters; help: use --name",
        ),
        ("profile --bed b --out x.toml -- true", "x.toml:1: field `version`: `2`: expected 1"),
        ("profile --bed b --out t.toml --samples t.toml -- true", "expected another file than that of --out"),
    ] {
        let ran = dir.run(line);
        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
        assert!(ran.stderr.contains(message), "{line}: {}", ran.stderr);
    }
    assert_eq!(dir.read("t.toml"), TABLE_OF_OTHER);
}

/// The job prints the rate of its host's link at each run, and takes longer at lower rates.
#[test]
fn profile_runs_its_command_at_decreasing_rates() {
    let Some(bed) = profile_testbed("less") else { return };
    let dir = &bed.dir;
    let before = bed.port_rates();
    assert_eq!(before, ["100Mbit"; 6]);
    dir.write("t.toml", TABLE_OF_OTHER);
    dir.write(
        "job.sh",
        "rate=$(tc class show dev eth0 | grep -o 'rate [0-9]*' | cut -d' ' -f2)\n\
         echo $rate\nsleep 600 &\nsleep $(awk \"BEGIN { print 0.1 + 3 / $rate }\")\n",
    );
    let start_time = Instant::now();
    let ran = bed
        .run_profile("--hosts h1,h2 --runs 3 --name job --out t.toml --samples s.csv --log log -- sh job.sh");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert!(
        start_time.elapsed() < Duration::from_secs(100),
        "the profile does not wait for background processes of the job"
    );
    let log = [90, 75, 50, 25, 10, 5].map(|rate| format!("{rate}\n").repeat(3)).concat();
    assert_eq!(dir.read("log"), "100\n".repeat(4) + &log);
    assert_eq!(bed.port_rates(), before);
    let table = weir_trace::sensitivity::read(&dir.path("t.toml")).unwrap();
    let names: Vec<&str> = table.rows().iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["other", "job"]);
    let samples = &table.rows()[1].samples;
    let bandwidths: Vec<f64> = samples.iter().map(|(part, _)| part.get()).collect();
    assert_eq!(bandwidths, [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0]);
    // The job takes 0.1 s and 3 s divided by the rate in Mbit/s: 0.7 s at 5 %, 0.13 s at 100 %. The assertion
    // allows for slow process starts; times are medians of three runs.
    assert!(samples[0].1 > samples[2].1 && samples[0].1 > 1.2, "{samples:?}");
    let points = dir.read("s.csv");
    assert!(points.starts_with("application,kind,bandwidth,time_s,slowdown\njob,run,0.05,"), "{points}");
    let count_lines =
        |kind: &str| points.lines().filter(|line| line.starts_with(&format!("job,{kind},"))).count();
    assert_eq!(["run", "median", "k1", "k2", "k3"].map(count_lines), [21, 7, 96, 96, 96]);
    // A second profile with the same name replaces the first.
    let ran = bed.run_profile("--runs 1 --name job --out t.toml --format json -- true");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let record: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&record[0]["workload"], &record[0]["slowdown_1"]), (&"job".into(), &1.0.into()));
    assert_eq!(weir_trace::sensitivity::read(&dir.path("t.toml")).unwrap().rows().len(), 2);
}

#[test]
fn failed_profile_leaves_files_and_rates_unchanged() {
    let Some(bed) = profile_testbed("fails") else { return };
    let dir = &bed.dir;
    let (before, files) = (bed.port_rates(), dir.files());
    // The job fails below the full bandwidth.
    let failing_below_full = "--runs 1 --out t.toml --samples s.csv -- sh -c tc${IFS}class${IFS}show${IFS}dev${IFS}eth0|grep${IFS}-q${IFS}100Mbit";
    for (line, code, message) in [
        ("-- /nonexistent/job", 2, "job, the warm-up run: `/nonexistent/job` cannot be run: No such file"),
        ("--hosts h0,h7 -- true", 2, "--hosts: `h7` is unknown or repeated; expected hosts of bed"),
        ("--hosts h0,h0 -- true", 2, "--hosts: `h0` is unknown or repeated; expected hosts of bed"),
        (
            failing_below_full,
            1,
            "sh, run 1 at 90 % of the bandwidth: exit status: 1; help: --log FILE keeps its output",
        ),
        (
            "--out t.toml --timeout 200ms -- sleep 60",
            1,
            "sleep, the warm-up run: not completed within 0.2 s (--timeout)",
        ),
    ] {
        let ran = bed.run_profile(line);
        assert_eq!(ran.code, Some(code), "{line}: {ran:?}");
        assert!(ran.stderr.contains(message), "{line}: {}", ran.stderr);
        assert_eq!((bed.port_rates(), dir.files()), (before.clone(), files.clone()), "{line}");
    }
    let no_bed = dir.run("profile --bed absent -- true");
    assert_eq!((no_bed.code, no_bed.stderr.as_str()), (Some(1), "weir: testbed `absent` does not exist\n"));
}

#[test]
fn profile_of_an_interface_restores_its_queues() {
    let Some(bed) = profile_testbed("face") else { return };
    let dir = &bed.dir;
    let namespace = bed.namespace(0);
    let profile_in_namespace = |line: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespace, env!("CARGO_BIN_EXE_weir"), "profile"]);
        CommandOutput::new(command.args(line.split_whitespace()).current_dir(dir.path("")).output().unwrap())
    };
    let queues = || {
        let output = Command::new("tc").args(["-n", &namespace, "qdisc", "show"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let before = queues();
    dir.write("job.sh", "tc class show dev lo | grep 'htb 7765:1 ' | grep -o 'rate [^ ]*' | cut -d' ' -f2");
    let ran = profile_in_namespace("--interface lo --rate 100Mbit --runs 1 --log log -- sh job.sh");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let rates = [100, 100, 90, 75, 50, 25, 10, 5].map(|mbit| format!("{mbit}Mbit\n"));
    assert_eq!(dir.read("log"), rates.concat());
    assert_eq!(queues(), before);
    for (line, message) in [
        ("--interface lo --rate 100Mbit -- false", "the warm-up run: exit status: 1"),
        ("--interface eth0 --rate 100Mbit -- true", "eth0 has a root queue `htb` of another process"),
        ("--interface nowhere0 --rate 100Mbit -- true", "nowhere0"),
    ] {
        let ran = profile_in_namespace(line);
        assert_eq!(ran.code, Some(1), "{line}: {ran:?}");
        assert!(ran.stderr.contains(message), "{line}: {}", ran.stderr);
        assert_eq!(queues(), before, "{line}");
    }
}

#[test]
fn interrupted_profile_restores_port_rates() {
    let Some(bed) = profile_testbed("stops") else { return };
    let before = bed.port_rates();
    let line = format!("profile --bed {} --runs 1 --out t.toml -- sleep 0.5", bed.name);
    let mut command = bed.dir.command(&line);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Ports are changed concurrently, so their rates can differ for a moment.
    let is_throttled = || {
        let (host_rate, switch_rate) = (bed.port_rate("h2", "eth0"), bed.port_rate("switch", "eth2"));
        bed.port_rate("h0", "eth0") != before[0] && host_rate != before[2] && host_rate == switch_rate
    };
    wait_within(Duration::from_secs(60), "throttled ports", is_throttled);
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let ran = CommandOutput::new(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(ran.stderr.ends_with("of the bandwidth: interrupted; nothing was written\n"), "{ran:?}");
    assert_eq!(bed.port_rates(), before);
    assert!(!bed.dir.files().contains(&"t.toml".to_owned()));
}

const CLUSTER: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\n\
                       [listen]\nagents = \"127.0.0.1:7700\"\napi = \"127.0.0.1:7701\"\n\
                       [host]\na = \"40Mbit\"\nb = \"40Mbit\"\n";

/// The documented time until hosts have their full rates after `kill -9` is 10 s, and a second for the change of the queues.
const LAPSE_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts a profile of the first host, through its agent.
fn start_profile(hosts: &HostPair, dir: &TestDir, line: &str) -> Child {
    let mut command = hosts.command_on_host(env!("CARGO_BIN_EXE_weir"));
    command.args(["profile", "--coordinator", "127.0.0.1:7701", "--hosts", "a"]).args(line.split(' '));
    command.current_dir(dir.path("")).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The rate of the first host's link, as `tc` prints it; none without queues of the agent.
fn link_rate(hosts: &HostPair) -> Option<String> {
    let text = hosts.tc("class");
    let line = text.lines().find(|line| line.starts_with("class htb 7765:1 "))?;
    Some(line.split_once("rate ")?.1.split(' ').next()?.to_owned())
}

#[test]
fn profile_of_a_cluster_limits_hosts_through_their_agents() {
    let Some(hosts) = HostPair::up("cluster") else { return };
    let dir = TestDir::new();
    dir.write("serve.toml", CLUSTER);
    let _coordinator = hosts.start_coordinator(&dir.path("serve.toml"));
    let _agent = hosts.start_agent(&dir.path("local_socket"), std::iter::empty());
    let ctl_hosts = || hosts.request("GET", "/v1/hosts", "");
    wait_within(Duration::from_secs(20), "the agent", || ctl_hosts().contains("\"present\":true"));
    let start = |line: &str| start_profile(&hosts, &dir, line);
    let link_rate = || link_rate(&hosts);
    dir.write("job.sh", "tc class show dev e0 | grep 'htb 7765:1 ' | grep -o ' rate [^ ]*' | cut -d' ' -f3");
    let ran = CommandOutput::new(start("--runs 1 --log log -- sh job.sh").wait_with_output().unwrap());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    // Fractions of 40 Mbit/s, without a margin of 1 %.
    let rates = [39600, 39600, 35640, 29700, 19800, 9900, 3960, 1980].map(|kbit| format!("{kbit}Kbit\n"));
    assert_eq!(dir.read("log"), rates.concat());
    assert_eq!(link_rate().as_deref(), Some("39600Kbit"));
    assert!(!ctl_hosts().contains("bandwidth_fraction"), "{}", ctl_hosts());

    // Ctrl-C restores the rates at once, and a killed profile after its lease.
    dir.write("slow.sh", "tc class show dev e0 | grep -q 39600Kbit || sleep 60");
    for (signal, code) in [("-INT", Some(130)), ("-KILL", None)] {
        let child = start("--runs 1 -- sh slow.sh");
        wait_within(Duration::from_secs(60), "a limit", || link_rate().as_deref() == Some("35640Kbit"));
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let began = Instant::now();
        let ran = CommandOutput::new(child.wait_with_output().unwrap());
        assert_eq!(ran.code, code, "{ran:?}");
        if code.is_some() {
            assert_eq!(link_rate().as_deref(), Some("39600Kbit"), "after {signal}");
        }
        wait_within(LAPSE_TIMEOUT, "the full rate", || link_rate().as_deref() == Some("39600Kbit"));
        eprintln!("full rate {:.1} s after {signal}", began.elapsed().as_secs_f64());
    }
}

/// No order names queues for the host, so only the queues that the killed agent has left have the rate of the limit.
#[test]
fn next_agent_ends_a_limit_that_lapsed_while_no_agent_ran() {
    let Some(hosts) = HostPair::up("lapsed") else { return };
    let dir = TestDir::new();
    dir.write("serve.toml", CLUSTER);
    let _coordinator = hosts.start_coordinator(&dir.path("serve.toml"));
    let mut agent = hosts.start_agent(&dir.path("first"), std::iter::empty());
    let ctl_hosts = || hosts.request("GET", "/v1/hosts", "");
    wait_within(Duration::from_secs(20), "the agent", || ctl_hosts().contains("\"present\":true"));
    let before = hosts.tc("qdisc");
    dir.write("slow.sh", "tc class show dev e0 | grep -q 39600Kbit || sleep 60");
    let mut profile = start_profile(&hosts, &dir, "--runs 1 -- sh slow.sh");
    wait_within(Duration::from_secs(60), "a limit", || link_rate(&hosts).as_deref() == Some("35640Kbit"));
    agent.kill();
    profile.kill().unwrap();
    profile.wait().unwrap();
    wait_within(LAPSE_TIMEOUT, "the end of the limit", || !ctl_hosts().contains("\"bandwidth_fraction\""));
    assert_eq!(link_rate(&hosts).as_deref(), Some("35640Kbit"));
    let mut agent = hosts.start_agent(&dir.path("second"), std::iter::empty());
    let has_full_rate = || link_rate(&hosts).as_deref() == Some("39600Kbit");
    wait_within(Duration::from_secs(20), "the full rate", has_full_rate);
    agent.interrupt();
    assert_eq!(hosts.tc("qdisc"), before);
}

/// The example jobs complete on hosts of a testbed, and find the same data at all hosts.
#[test]
fn example_jobs_complete_on_testbed_hosts() {
    let Some(bed) = profile_testbed("jobs") else { return };
    if Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("example_jobs_complete_on_testbed_hosts skips, since python3 is missing");
        return;
    }
    let namespaces = [0, 1, 2].map(|host| bed.namespace(host));
    for job in ["shuffle", "rounds", "derive"] {
        let script = format!("{}/../../examples/jobs/{job}.py", env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespaces[0], "python3", &script]).args(&namespaces);
        let ran = CommandOutput::new(command.env("WEIR_DSCP", "3").output().unwrap());
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "", ""), "{job}");
    }
    // If one host cannot start, the job ends at once.
    let script = format!("{}/../../examples/jobs/rounds.py", env!("CARGO_MANIFEST_DIR"));
    let mut unreachable = Command::new("ip");
    unreachable
        .args(["netns", "exec", &namespaces[0], "python3", &script])
        .args([&namespaces[0], "weir-no-such-namespace"]);
    let ran = CommandOutput::new(unreachable.output().unwrap());
    assert!(
        ran.code == Some(1) && ran.stderr.contains("a process on another host exited before it connected"),
        "{ran:?}"
    );
    let without_hosts = Command::new("python3")
        .arg(format!("{}/../../examples/jobs/shuffle.py", env!("CARGO_MANIFEST_DIR")))
        .output()
        .unwrap();
    assert!(!without_hosts.status.success());
}
