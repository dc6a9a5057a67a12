//! Tests `weir testbed`. Tests that need a testbed skip without the privileges for one.

use std::fmt;
use std::fs;
use std::ops::Deref;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{CommandOutput, TestDir, wait_for, wait_for_sigint_handler};
use crate::test_lock::{self, SharedLock};
use weir_testbed::namespace;

const FABRIC: &str = "weir-fabric = 1\nkind = \"leaf-spine\"\nspines = 2\nleaves = 5\nhosts = 10\nrate = \"100Mbit\"\noversubscription = 1.0\n";

const SCENARIO: &str = "\
weir-scenario = 1
end = \"10s\"
fabric = { kind = \"big-switch\", hosts = 3, rate = \"50Mbit\" }
service = [{ name = \"light\", weight = 1 }, { name = \"heavy\", weight = 4 }]
[[demand]]
service = \"light\"
from = \"h0\"
to = \"h2\"
sending = \"elastic\"
[[demand]]
service = \"heavy\"
from = \"h1\"
to = \"h2\"
sending = \"elastic\"
active = [[\"5s\", \"10s\"]]
";

pub fn test_dir_with_testbed() -> TestDir {
    let dir = TestDir::new();
    dir.write("f.toml", FABRIC);
    dir.write("s.toml", SCENARIO);
    dir
}

/// The name of a testbed, and the lock of its test.
pub struct TestbedName(String, #[allow(dead_code, reason = "held until the test ends")] SharedLock);

impl Deref for TestbedName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TestbedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// A name for a testbed of a test that overlaps with others; `None` if this machine cannot run testbeds.
pub fn testbed_name(dir: &TestDir, test: &str) -> Option<TestbedName> {
    let lock = test_lock::lock_shared();
    let check = dir.run("testbed check");
    if check.code != Some(0) {
        eprintln!("{test} skips: {}{}", check.stdout, check.stderr);
        return None;
    }
    Some(TestbedName(format!("{test}{}", std::process::id()), lock))
}

/// The namespaces and files of a testbed.
pub fn testbed_files(name: &str) -> Vec<String> {
    let folders = [("/run/netns", format!("weir-{name}-")), ("/run/weir", format!("{name}."))];
    let mut found = Vec::new();
    for (folder, prefix) in folders {
        let entries = fs::read_dir(folder).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        found.extend(names.filter(|name| name.starts_with(&prefix)));
    }
    found
}

#[test]
fn testbed_dry_run_prints_a_valid_script_and_creates_nothing() {
    let dir = test_dir_with_testbed();
    let script = dir.stdout_of("testbed up f.toml --name x --dry-run");
    assert_eq!(script.lines().filter(|line| line.starts_with("netns add weir-x-")).count(), 57);
    assert_eq!(script.lines().filter(|line| line.starts_with("link add ")).count(), 60);
    assert!(script.contains("\nip -n weir-x-h7 -batch - <<'END'\n"), "{script}");
    let syntax = Command::new("sh").arg("-n").stdin(Stdio::piped()).spawn().and_then(|mut shell| {
        std::io::Write::write_all(&mut shell.stdin.take().unwrap(), script.as_bytes())?;
        shell.wait()
    });
    assert!(syntax.unwrap().success());
    assert_eq!(testbed_files("x"), Vec::<String>::new());
}

/// The routes, addresses and forwarding settings of a host and of two switches of a testbed.
fn routes_and_addresses(name: &str) -> String {
    let routes_of_node = |node: &str| {
        let namespace = format!("weir-{name}-{node}");
        let ip =
            |words: &[&str]| Command::new("ip").args(["-n", &namespace]).args(words).output().unwrap().stdout;
        let files =
            ["ip_forward", "fib_multipath_hash_policy"].map(|file| format!("/proc/sys/net/ipv4/{file}"));
        let forwarding = namespace::command(&namespace, "cat").args(files).output().unwrap().stdout;
        [ip(&["route"]), ip(&["-o", "-4", "addr"]), forwarding]
            .map(|text| String::from_utf8(text).unwrap())
            .concat()
    };
    ["h7", "leaf3", "spine1"].map(routes_of_node).concat()
}

#[test]
fn testbed_script_creates_the_same_routes_as_up() {
    let dir = test_dir_with_testbed();
    let Some(name) = testbed_name(&dir, "script") else { return };
    dir.write("up.sh", &dir.stdout_of(&format!("testbed up f.toml --name {name} --dry-run")));
    let ran = CommandOutput::new(Command::new("sh").arg("-e").arg(dir.path("up.sh")).output().unwrap());
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "", ""));
    let script_routes = routes_and_addresses(&name);
    assert_eq!(testbed_files(&name).len(), 57);
    // The script writes no state file, so `up` regards the testbed as unfinished and recreates it.
    dir.stdout_of(&format!("testbed up f.toml --name {name}"));
    assert_eq!(routes_and_addresses(&name), script_routes);
    assert!(
        script_routes.contains("default via 169.254.0.1 dev eth0 src 10.0.0.8 onlink"),
        "{script_routes}"
    );
    dir.stdout_of(&format!("testbed down --name {name}"));
    assert_eq!(testbed_files(&name), Vec::<String>::new());
}

#[test]
fn wrong_testbed_usage_is_exit_2() {
    let dir = test_dir_with_testbed();
    dir.write("slow.toml", &FABRIC.replace("100Mbit", "1kbit"));
    let services: String = (0..64).map(|i| format!("{{ name = \"s{i}\", weight = 1 }}, ")).collect();
    let from = SCENARIO.find("service = [").unwrap();
    let service_line_length = SCENARIO.lines().find(|line| line.starts_with("service = [")).unwrap().len();
    let scenario_with_66_services = format!(
        "{}service = [{services}{{ name = \"light\", weight = 1 }}, {{ name = \"heavy\", weight = 4 }}]{}",
        &SCENARIO[..from],
        &SCENARIO[from + service_line_length..]
    );
    dir.write("many.toml", &scenario_with_66_services);
    let event = "[[event]]\nat = \"1s\"\ncable = [\"h0\", \"switch\"]\nchange = \"down\"\n";
    dir.write("event.toml", &format!("{SCENARIO}{event}"));
    for (line, message) in [
        ("testbed up none.toml", "none.toml: cannot be read"),
        ("testbed up slow.toml --dry-run", "expected 8kbit to 100Gbit on a bed"),
        ("testbed up f.toml --name a-b", "bed name `a-b` is invalid"),
        ("testbed run s.toml --mechanism central", "`central` is not a mechanism of the testbed"),
        ("testbed run event.toml", "the scenario has events (1); expected none"),
        ("testbed run many.toml", "the scenario has 66 services; expected at most 63"),
        ("testbed run s.toml --out s.toml", "expected another file than that of the input"),
    ] {
        let ran = dir.run(line);
        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
        assert!(ran.stderr.contains(message), "{line}: {}", ran.stderr);
    }
}

#[test]
fn testbed_without_privileges_names_the_missing_ones() {
    let dir = test_dir_with_testbed();
    let Some(_lock) = testbed_name(&dir, "unprivileged") else { return };
    // User 65534 needs permission to run the program: copy it to a shared folder.
    let weir = std::env::temp_dir().join(format!("weir-{}", std::process::id()));
    // By another process: a file that this one has open for writing cannot run while a child of another test holds a copy of it.
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_weir")).arg(&weir).status().unwrap().success());
    let run_unprivileged = |words: &[&str]| {
        let mut command = Command::new(&weir);
        command.args(words).uid(65534).gid(65534).current_dir("/");
        command.stdin(fs::File::open(dir.path("f.toml")).unwrap());
        CommandOutput::new(command.output().unwrap())
    };
    let up = run_unprivileged(&["testbed", "up", "-"]);
    let check = run_unprivileged(&["testbed", "check"]);
    let dry_run = run_unprivileged(&["testbed", "up", "-", "--dry-run"]);
    let without_tools = dir.command("testbed check").env("PATH", dir.path("")).output().unwrap();
    // On most systems, an unprivileged user can be root in a user namespace.
    let script = "mount -t tmpfs none /run && $0 testbed up - --name user && $0 testbed down --name user";
    let unshare = |command: &[&str], input| {
        let mut unshare = Command::new("unshare");
        unshare.args(["-Urnm"]).args(command).uid(65534).gid(65534).current_dir("/").stdin(input);
        unshare.output().map(CommandOutput::new)
    };
    if unshare(&["true"], Stdio::null()).is_ok_and(|ran| ran.code == Some(0)) {
        let input = fs::File::open(dir.path("f.toml")).unwrap();
        let ran = unshare(&["sh", "-c", script, weir.to_str().unwrap()], input.into()).unwrap();
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        assert_eq!(ran.stdout, "up: user: 50 hosts, 7 switches, 60 cables\ndown: user\n");
    } else {
        eprintln!("a part of the test skips, since this machine has no user namespaces");
    }
    fs::remove_file(&weir).unwrap();
    assert_eq!(up.code, Some(1), "{up:?}");
    for part in ["missing: root, or CAP_NET_ADMIN and CAP_SYS_ADMIN", "help: `weir testbed up --dry-run`"] {
        assert!(up.stderr.contains(part), "{}", up.stderr);
    }
    assert_eq!(check.code, Some(1));
    assert!(check.stdout.contains("missing  root, or CAP_NET_ADMIN"), "{}", check.stdout);
    assert_eq!((dry_run.code, dry_run.stderr.as_str()), (Some(0), ""));
    let without_tools = CommandOutput::new(without_tools);
    assert_eq!(without_tools.code, Some(1));
    assert!(
        without_tools.stdout.contains("missing  iproute2 (ip, tc): ip cannot be run"),
        "{}",
        without_tools.stdout
    );
}

#[test]
fn testbed_run_measures_the_simulated_rates() {
    let dir = test_dir_with_testbed();
    let Some(name) = testbed_name(&dir, "run") else { return };
    let expected = [("light", 0.0, 50e6), ("light", 5.0, 10e6), ("heavy", 5.0, 40e6)];
    let results = dir.json_of(&format!("testbed run s.toml --name {name} --mechanism queues --format json"));
    eprintln!("{results}");
    let lines = results.as_array().unwrap();
    assert_eq!(lines.len(), expected.len());
    for (line, (service, from, rate)) in lines.iter().zip(expected) {
        assert_eq!((&line["service"], &line["from_s"]), (&service.into(), &from.into()));
        let [simulated, measured] =
            ["simulated_bit_per_s", "second_half_bit_per_s"].map(|key| line[key].as_f64().unwrap());
        assert!((simulated / rate - 1.0).abs() < 1e-9, "{line}");
        assert!((measured - rate).abs() < 0.05 * 50e6, "{line}");
    }
    assert_eq!(testbed_files(&name), Vec::<String>::new());
    // `testbed run` refuses an existing testbed of another network, and leaves it unchanged.
    assert!(dir.stdout_of(&format!("testbed up f.toml --name {name}")).starts_with("up: "));
    let other_network = dir.run(&format!("testbed run s.toml --name {name}"));
    assert_eq!(other_network.code, Some(2), "{other_network:?}");
    assert!(other_network.stderr.contains("has another network"), "{}", other_network.stderr);
    assert!(dir.stdout_of(&format!("testbed list --name {name}")).contains(&format!("weir-{name}-leaf4")));
    dir.stdout_of(&format!("testbed down --name {name}"));
    assert_eq!(testbed_files(&name), Vec::<String>::new());
}

fn start_command(dir: &TestDir, line: &str) -> Child {
    let mut child = dir.command(line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for_sigint_handler(&mut child);
    child
}

/// Sends a signal to a process, and waits for its exit.
fn signal_and_wait(mut child: Child, signal: &str) -> Option<i32> {
    // The process may have exited before the signal.
    let _ = Command::new("kill").args([signal, &child.id().to_string()]).stderr(Stdio::null()).status();
    child.wait().unwrap().code()
}

/// Starts a command, sends a signal some time after it handles signals, and waits for its exit.
pub fn signal_after(dir: &TestDir, line: &str, delay: Duration, signal: &str) -> Option<i32> {
    let child = start_command(dir, line);
    thread::sleep(delay);
    signal_and_wait(child, signal)
}

/// Removes a testbed. Waits while children of a killed process still use it.
fn remove_testbed(dir: &TestDir, name: &str) {
    let start_time = Instant::now();
    loop {
        let ran = dir.run(&format!("testbed down --name {name}"));
        if ran.code == Some(0) {
            assert_eq!(ran.stderr, "");
            return;
        }
        let is_in_use = ran.stderr.contains("is in use by another process");
        assert!(is_in_use && start_time.elapsed() < Duration::from_secs(60), "{ran:?}");
    }
}

#[test]
fn interrupted_testbed_removes_itself_and_down_removes_a_killed_one() {
    let dir = test_dir_with_testbed();
    let Some(name) = testbed_name(&dir, "signal") else { return };
    let nothing = Vec::<String>::new();
    for after in [20, 60, 120, 200] {
        let line = format!("testbed up f.toml --name {name}");
        match signal_after(&dir, &line, Duration::from_millis(after), "-INT") {
            Some(130) => assert_eq!(testbed_files(&name), nothing, "after {after} ms"),
            // `up` completed before the signal.
            Some(0) => remove_testbed(&dir, &name),
            other => panic!("{other:?} after {after} ms"),
        }
        // SIGKILL can leave any part of a testbed behind; `down` removes it.
        signal_after(&dir, &line, Duration::from_millis(after), "-KILL");
        remove_testbed(&dir, &name);
        assert_eq!(testbed_files(&name), nothing, "after {after} ms");
    }
    let line = format!("testbed run s.toml --name {name}");
    assert_eq!(signal_after(&dir, &line, Duration::from_secs(1), "-INT"), Some(130));
    assert_eq!(testbed_files(&name), nothing);
    let child = start_command(&dir, &line);
    wait_for("four namespaces and two files", || testbed_files(&name).len() == 6);
    assert_eq!(signal_and_wait(child, "-KILL"), None);
    assert_eq!(testbed_files(&name).len(), 6, "four namespaces and two files");
    remove_testbed(&dir, &name);
    assert_eq!(testbed_files(&name), nothing);
}

#[test]
fn small_buffer_drops_more_packets_than_a_large_one() {
    let dir = test_dir_with_testbed();
    let Some(name) = testbed_name(&dir, "incast") else { return };
    let ran = dir.run(&format!(
        "testbed incast --name {name} --senders 8 --buffers 10,400 --connections 16 --runs 2 --quiet --format json"
    ));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let runs: Vec<serde_json::Value> = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(runs.len(), 4);
    let loss = |index: usize| runs[index]["loss"].as_f64().unwrap();
    // Sixteen initial windows of ten packets overflow a buffer of 10 packets. A buffer of 400 packets drops
    // fewer.
    assert!(loss(0) > 0.02 && loss(1) > 0.02, "{}", ran.stdout);
    assert!(loss(2) < loss(0) && loss(3) < loss(1), "{}", ran.stdout);
    for run in &runs {
        // 1 MB over 100 Mbit/s takes 0.08 s; a burst of 16 KiB is not delayed.
        let last = run["last_s"].as_f64().unwrap();
        assert!(last > 0.07 && run["mean_s"].as_f64().unwrap() <= last, "{run}");
    }
    assert_eq!(testbed_files(&name), [""; 0]);
}

/// Each shipped network carries a connection attempt from its first host to its last, which refuses it.
#[test]
fn example_fabrics_connect_their_first_and_last_hosts() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fabrics");
    for (file, count) in
        [("netshare-fig6", 12), ("netshare-fig7", 12), ("leaf-spine-16", 16), ("five-regions", 15)]
    {
        let dir = test_dir_with_testbed();
        let Some(name) = testbed_name(&dir, "ships") else { return };
        let path = folder.join(file).with_extension("toml");
        dir.stdout_of(&format!("testbed up {} --name {name}", path.display()));
        let files = testbed_files(&name);
        let namespace_of_host = |number: usize| {
            let address = format!("inet 10.0.0.{number}/");
            let has_address = |space: &&String| {
                let words = ["-n", space, "-o", "-4", "addr", "show", "dev", "lo"];
                let output = Command::new("ip").args(words).output().unwrap();
                String::from_utf8_lossy(&output.stdout).contains(&address)
            };
            files.iter().filter(|space| space.starts_with("weir-")).find(has_address)
        };
        let first = namespace_of_host(1).expect("the testbed has a first host");
        assert!(
            namespace_of_host(count).is_some() && namespace_of_host(count + 1).is_none(),
            "{file}: {files:?}"
        );
        let mut connect = namespace::command(first, "timeout");
        connect.args(["5", "bash", "-c", &format!("echo > /dev/tcp/10.0.0.{count}/9")]);
        let stderr = connect.output().unwrap().stderr;
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(stderr.contains("refused"), "{file}: {stderr}");
        dir.stdout_of(&format!("testbed down --name {name}"));
        assert_eq!(testbed_files(&name), Vec::<String>::new());
    }
}
