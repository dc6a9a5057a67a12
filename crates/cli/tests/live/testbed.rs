//! `weir testbed`. Tests that need a testbed skip without the privileges for one.

use std::fmt;
use std::fs;
use std::ops::Deref;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Place, Ran, await_heed, wait_for};
use crate::turn::{self, Turn};

const FABRIC: &str = "weir-fabric = 1\nkind = \"leaf-spine\"\nspines = 2\nleaves = 5\nhosts = 10\nrate = \"100Mbit\"\noversubscription = 1.0\n";

const SCENARIO: &str = "\
weir-scenario = 1
end = \"3s\"
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
active = [[\"1s\", \"3s\"]]
";

pub fn place() -> Place {
    let place = Place::new();
    place.write("f.toml", FABRIC);
    place.write("s.toml", SCENARIO);
    place
}

/// The name of a testbed, and the turn of its test.
pub struct Name(String, #[allow(dead_code, reason = "it is kept until the test ends")] Turn);

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// A name for a testbed; none if this machine cannot run one.
pub fn name(place: &Place, test: &str) -> Option<Name> {
    let turn = turn::take();
    let check = place.run("testbed check");
    if check.code != Some(0) {
        eprintln!("{test} skips: {}{}", check.out, check.err);
        return None;
    }
    Some(Name(format!("{test}{}", std::process::id()), turn))
}

/// The namespaces and files of a testbed.
pub fn left(name: &str) -> Vec<String> {
    let places = [("/run/netns", format!("weir-{name}-")), ("/run/weir", format!("{name}."))];
    let mut found = Vec::new();
    for (folder, prefix) in places {
        let entries = fs::read_dir(folder).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        found.extend(names.filter(|name| name.starts_with(&prefix)));
    }
    found
}

#[test]
fn testbed_dry_run_prints_a_valid_script_and_creates_nothing() {
    let place = place();
    let script = place.print("testbed up f.toml --name x --dry-run");
    assert_eq!(script.lines().filter(|line| line.starts_with("netns add weir-x-")).count(), 57);
    assert_eq!(script.lines().filter(|line| line.starts_with("link add ")).count(), 60);
    assert!(script.contains("\nip -n weir-x-h7 -batch - <<'END'\n"), "{script}");
    let syntax = Command::new("sh").arg("-n").stdin(Stdio::piped()).spawn().and_then(|mut shell| {
        std::io::Write::write_all(&mut shell.stdin.take().unwrap(), script.as_bytes())?;
        shell.wait()
    });
    assert!(syntax.unwrap().success());
    assert_eq!(left("x"), Vec::<String>::new());
}

/// The routes, addresses and forwarding settings of a host and of two switches of a testbed.
fn routes(name: &str) -> String {
    let of = |node: &str| {
        let space = format!("weir-{name}-{node}");
        let ip = |what: &[&str]| Command::new("ip").args(["-n", &space]).args(what).output().unwrap().stdout;
        let forwards =
            ["cat", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/fib_multipath_hash_policy"];
        let place = format!("--net=/run/netns/{space}");
        let forwards = Command::new("nsenter").arg(place).args(forwards).output().unwrap().stdout;
        [ip(&["route"]), ip(&["-o", "-4", "addr"]), forwards]
            .map(|text| String::from_utf8(text).unwrap())
            .concat()
    };
    ["h7", "leaf3", "spine1"].map(of).concat()
}

#[test]
fn testbed_script_creates_the_same_routes_as_up() {
    let place = place();
    let Some(name) = name(&place, "script") else { return };
    place.write("up.sh", &place.print(&format!("testbed up f.toml --name {name} --dry-run")));
    let ran = Ran::new(Command::new("sh").arg("-e").arg(place.path("up.sh")).output().unwrap());
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(0), "", ""));
    let by_script = routes(&name);
    assert_eq!(left(&name).len(), 57);
    // The script writes no state file, so `up` regards the testbed as unfinished and recreates it.
    place.print(&format!("testbed up f.toml --name {name}"));
    assert_eq!(routes(&name), by_script);
    assert!(by_script.contains("default via 169.254.0.1 dev eth0 src 10.0.0.8 onlink"), "{by_script}");
    place.print(&format!("testbed down --name {name}"));
    assert_eq!(left(&name), Vec::<String>::new());
}

#[test]
fn wrong_testbed_usage_is_exit_2() {
    let place = place();
    place.write("slow.toml", &FABRIC.replace("100Mbit", "1kbit"));
    let services: String = (0..64).map(|i| format!("{{ name = \"s{i}\", weight = 1 }}, ")).collect();
    let from = SCENARIO.find("service = [").unwrap();
    let many = SCENARIO.lines().find(|line| line.starts_with("service = [")).unwrap().len();
    let many = format!(
        "{}service = [{services}{{ name = \"light\", weight = 1 }}, {{ name = \"heavy\", weight = 4 }}]{}",
        &SCENARIO[..from],
        &SCENARIO[from + many..]
    );
    place.write("many.toml", &many);
    let event = "[[event]]\nat = \"1s\"\ncable = [\"h0\", \"switch\"]\nchange = \"down\"\n";
    place.write("event.toml", &format!("{SCENARIO}{event}"));
    for (line, message) in [
        ("testbed up none.toml", "none.toml: cannot be read"),
        ("testbed up slow.toml --dry-run", "on a bed, expected 8kbit to 100Gbit"),
        ("testbed up f.toml --name a-b", "`a-b` is no name of a bed"),
        ("testbed run s.toml --mechanism central", "`central` is not a mechanism of the testbed"),
        ("testbed run event.toml", "event: 1 of them: expected none"),
        ("testbed run many.toml", "queues: 66 services: expected at most 63"),
        ("testbed run s.toml --out s.toml", "expected another file than that of the input"),
    ] {
        let ran = place.run(line);
        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
        assert!(ran.err.contains(message), "{line}: {}", ran.err);
    }
}

#[test]
fn testbed_without_privileges_names_the_missing_ones() {
    let place = place();
    let Some(_turn) = name(&place, "nobody") else { return };
    // User 65534 needs permission to run the program: copy it to a shared folder.
    let weir = std::env::temp_dir().join(format!("weir-{}", std::process::id()));
    fs::copy(env!("CARGO_BIN_EXE_weir"), &weir).unwrap();
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new(&weir);
        command.args(words).uid(65534).gid(65534).current_dir("/");
        command.stdin(fs::File::open(place.path("f.toml")).unwrap());
        Ran::new(command.output().unwrap())
    };
    let up = as_nobody(&["testbed", "up", "-"]);
    let check = as_nobody(&["testbed", "check"]);
    let dry = as_nobody(&["testbed", "up", "-", "--dry-run"]);
    let bare = place.command("testbed check").env("PATH", place.path("")).output().unwrap();
    // On most systems, an unprivileged user can be root in a user namespace.
    let script = "mount -t tmpfs none /run && $0 testbed up - --name user && $0 testbed down --name user";
    let unshare = |command: &[&str], input| {
        let mut unshare = Command::new("unshare");
        unshare.args(["-Urnm"]).args(command).uid(65534).gid(65534).current_dir("/").stdin(input);
        unshare.output().map(Ran::new)
    };
    if unshare(&["true"], Stdio::null()).is_ok_and(|ran| ran.code == Some(0)) {
        let input = fs::File::open(place.path("f.toml")).unwrap();
        let ran = unshare(&["sh", "-c", script, weir.to_str().unwrap()], input.into()).unwrap();
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
        assert_eq!(ran.out, "up: user: 50 hosts, 7 switches, 60 cables\ndown: user\n");
    } else {
        eprintln!("no user namespaces here: not tried");
    }
    fs::remove_file(&weir).unwrap();
    assert_eq!(up.code, Some(1), "{up:?}");
    for part in
        ["missing: root, or CAP_NET_ADMIN and CAP_SYS_ADMIN", "still works: `weir testbed up --dry-run`"]
    {
        assert!(up.err.contains(part), "{}", up.err);
    }
    assert_eq!(check.code, Some(1));
    assert!(check.out.contains("missing  root, or CAP_NET_ADMIN"), "{}", check.out);
    assert_eq!((dry.code, dry.err.as_str()), (Some(0), ""));
    let bare = Ran::new(bare);
    assert_eq!(bare.code, Some(1));
    assert!(bare.out.contains("missing  iproute2 (ip, tc): ip cannot be run"), "{}", bare.out);
}

#[test]
fn testbed_run_measures_the_simulated_rates() {
    let place = place();
    let Some(name) = name(&place, "run") else { return };
    let expected = [("light", 0.0, 50e6), ("light", 1.0, 10e6), ("heavy", 1.0, 40e6)];
    let fits = || {
        let found = place.json(&format!("testbed run s.toml --name {name} --mechanism queues --format json"));
        eprintln!("{found}");
        let lines = found.as_array().unwrap();
        assert_eq!(lines.len(), expected.len());
        let fits = lines.iter().zip(expected).map(|(line, (service, from, rate))| {
            assert_eq!((&line["service"], &line["from_s"]), (&service.into(), &from.into()));
            let [simulated, measured] =
                ["simulated_bit_per_s", "second_half_bit_per_s"].map(|key| line[key].as_f64().unwrap());
            assert!((simulated / rate - 1.0).abs() < 1e-9, "{line}");
            (measured - rate).abs() < 0.05 * 50e6
        });
        let fits = fits.filter(|fits| *fits).count() == expected.len();
        assert_eq!(left(&name), Vec::<String>::new());
        fits
    };
    // The measurement lasts half a second, and a busy machine may disturb it, so the test tries three times.
    // Wrong weights fail all three.
    assert!((0..3).any(|_| fits()), "three times it was not as expected");
    // `testbed run` refuses an existing testbed of another network, and leaves it unchanged.
    assert!(place.print(&format!("testbed up f.toml --name {name}")).starts_with("up: "));
    let other = place.run(&format!("testbed run s.toml --name {name}"));
    assert_eq!(other.code, Some(2), "{other:?}");
    assert!(other.err.contains("has another network"), "{}", other.err);
    assert!(place.print(&format!("testbed list --name {name}")).contains(&format!("weir-{name}-leaf4")));
    place.print(&format!("testbed down --name {name}"));
    assert_eq!(left(&name), Vec::<String>::new());
}

fn start(place: &Place, line: &str) -> Child {
    let mut child = place.command(line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    await_heed(&mut child);
    child
}

/// Sends a signal to a process, and waits for its exit.
fn end(mut child: Child, signal: &str) -> Option<i32> {
    // The process may have exited before the signal.
    let _ = Command::new("kill").args([signal, &child.id().to_string()]).stderr(Stdio::null()).status();
    child.wait().unwrap().code()
}

/// Starts a command, sends a signal some time after it handles signals, and waits for its exit.
pub fn signalled(place: &Place, line: &str, after: Duration, signal: &str) -> Option<i32> {
    let child = start(place, line);
    thread::sleep(after);
    end(child, signal)
}

/// Removes a testbed. Waits while children of a killed process still use it.
fn down(place: &Place, name: &str) {
    let began = Instant::now();
    loop {
        let ran = place.run(&format!("testbed down --name {name}"));
        if ran.code == Some(0) {
            assert_eq!(ran.err, "");
            return;
        }
        let waits = ran.err.contains("is in use by another process");
        assert!(waits && began.elapsed() < Duration::from_secs(60), "{ran:?}");
    }
}

#[test]
fn interrupted_testbed_removes_itself_and_down_removes_a_killed_one() {
    let place = place();
    let Some(name) = name(&place, "signal") else { return };
    let nothing = Vec::<String>::new();
    for after in [20, 60, 120, 200] {
        let line = format!("testbed up f.toml --name {name}");
        match signalled(&place, &line, Duration::from_millis(after), "-INT") {
            Some(130) => assert_eq!(left(&name), nothing, "after {after} ms"),
            // `up` completed before the signal.
            Some(0) => down(&place, &name),
            other => panic!("{other:?} after {after} ms"),
        }
        // SIGKILL can leave any part of a testbed behind; `down` removes it.
        signalled(&place, &line, Duration::from_millis(after), "-KILL");
        down(&place, &name);
        assert_eq!(left(&name), nothing, "after {after} ms");
    }
    let line = format!("testbed run s.toml --name {name}");
    assert_eq!(signalled(&place, &line, Duration::from_secs(1), "-INT"), Some(130));
    assert_eq!(left(&name), nothing);
    let child = start(&place, &line);
    wait_for("four namespaces and two files", || left(&name).len() == 6);
    assert_eq!(end(child, "-KILL"), None);
    assert_eq!(left(&name).len(), 6, "four namespaces and two files");
    down(&place, &name);
    assert_eq!(left(&name), nothing);
}

#[test]
fn small_buffer_drops_more_packets_than_a_large_one() {
    let place = place();
    let Some(name) = name(&place, "incast") else { return };
    let ran = place.run(&format!(
        "testbed incast --name {name} --senders 8 --buffers 10,400 --connections 16 --runs 2 --quiet --format json"
    ));
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let runs: Vec<serde_json::Value> = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(runs.len(), 4);
    let loss = |at: usize| runs[at]["loss"].as_f64().unwrap();
    // Sixteen initial windows of ten packets overflow a buffer of 10 packets. A buffer of 400 packets drops
    // fewer.
    assert!(loss(0) > 0.02 && loss(1) > 0.02, "{}", ran.out);
    assert!(loss(2) < loss(0) && loss(3) < loss(1), "{}", ran.out);
    for run in &runs {
        // 1 MB over 100 Mbit/s takes 0.08 s; a burst of 16 KiB is not delayed.
        let last = run["last_s"].as_f64().unwrap();
        assert!(last > 0.07 && run["mean_s"].as_f64().unwrap() <= last, "{run}");
    }
    assert_eq!(left(&name), [""; 0]);
}

/// Each shipped network carries a connection attempt from its first host to its last, which refuses it.
#[test]
fn example_fabrics_connect_their_first_and_last_hosts() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fabrics");
    for (file, count) in
        [("netshare-fig6", 12), ("netshare-fig7", 12), ("leaf-spine-16", 16), ("five-regions", 15)]
    {
        let place = place();
        let Some(name) = name(&place, "ships") else { return };
        let path = folder.join(file).with_extension("toml");
        place.print(&format!("testbed up {} --name {name}", path.display()));
        let spaces = left(&name);
        let of_host = |number: usize| {
            let address = format!("inet 10.0.0.{number}/");
            let has = |space: &&String| {
                let words = ["-n", space, "-o", "-4", "addr", "show", "dev", "lo"];
                let output = Command::new("ip").args(words).output().unwrap();
                String::from_utf8_lossy(&output.stdout).contains(&address)
            };
            spaces.iter().filter(|space| space.starts_with("weir-")).find(has)
        };
        let first = of_host(1).expect("there is a first host");
        assert!(of_host(count).is_some() && of_host(count + 1).is_none(), "{file}: {spaces:?}");
        let mut asked = Command::new("timeout");
        asked.arg("5").arg("nsenter").arg(format!("--net=/run/netns/{first}"));
        asked.args(["bash", "-c", &format!("echo > /dev/tcp/10.0.0.{count}/9")]);
        let said = asked.output().unwrap().stderr;
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("refused"), "{file}: {said}");
        place.print(&format!("testbed down --name {name}"));
        assert_eq!(left(&name), Vec::<String>::new());
    }
}
