//! Tests that the files in `deploy/` match the program and this repository, and that the agent needs exactly
//! the capabilities of its unit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::assert_known_command;

/// The path of the installed program.
const INSTALLED: &str = "/usr/local/bin/weir";

const UNITS: [&str; 3] = ["weir-coordinator.service", "weir-agent.service", "weir-relay.service"];

fn root() -> PathBuf {
    fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).unwrap()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join("deploy").join(path)).unwrap()
}

/// A file's lines, with continuation lines joined.
fn lines(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    joined.lines().map(|line| line.trim().to_owned()).collect()
}

/// The values of a key in a unit.
fn values(unit: &str, key: &str) -> Vec<String> {
    let value = |line: &String| line.strip_prefix(key)?.strip_prefix('=').map(str::to_owned);
    lines(unit).iter().filter_map(value).collect()
}

#[test]
fn systemd_units_run_existing_commands() {
    let mut found = 0;
    for name in UNITS {
        let unit = read(&format!("systemd/{name}"));
        for key in ["ExecStart", "ExecStartPre", "ExecReload"] {
            for command in values(&unit, key) {
                let words: Vec<&str> = command.split_whitespace().collect();
                if words[0] == INSTALLED {
                    assert_known_command(&words[1..]);
                    found += 1;
                }
            }
        }
        // The shipped environment file defines every variable of the unit.
        let environment = values(&unit, "EnvironmentFile").pop();
        let environment = environment.map_or(String::new(), |path| {
            read(&format!("systemd/{}", path.strip_prefix("/etc/weir/").unwrap()))
        });
        let variables = unit.split('$').skip(1).map(|rest| {
            rest.trim_start_matches('{')
                .split(|c: char| !(c.is_ascii_uppercase() || c == '_'))
                .next()
                .unwrap()
        });
        // The service manager sets these.
        for variable in variables.filter(|variable| !["CREDENTIALS_DIRECTORY", "MAINPID"].contains(variable))
        {
            assert!(
                lines(&environment).iter().any(|line| line.starts_with(&format!("{variable}="))),
                "{variable}"
            );
        }
    }
    assert_eq!(found, 5);
}

#[test]
fn systemd_analyze_accepts_the_units() {
    let probe = Command::new("systemd-analyze").arg("--version").output();
    if !probe.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("systemd_analyze_accepts_the_units skips, since systemd-analyze is missing: {probe:?}");
        return;
    }
    // `systemd-analyze` checks that programs exist; use the built program in place of the installed one.
    let folder = tempfile::tempdir().unwrap();
    for name in UNITS {
        let unit = read(&format!("systemd/{name}")).replace(INSTALLED, env!("CARGO_BIN_EXE_weir"));
        fs::write(folder.path().join(name), unit).unwrap();
    }
    let verify = |name: &str| {
        let path = folder.path().join(name);
        let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(path).output().unwrap();
        // Ignore messages about units of this machine.
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let lines_about_weir = stderr.lines().filter(|line| line.contains("weir")).map(str::to_owned);
        lines_about_weir.collect::<Vec<String>>()
    };
    for name in UNITS {
        assert_eq!(verify(name), Vec::<String>::new());
    }
    // `systemd-analyze` reports errors of a wrong unit.
    fs::write(folder.path().join("weir-wrong.service"), "[Service]\nExecStart=/nowhere\nWrong=1\n").unwrap();
    assert!(verify("weir-wrong.service").len() >= 2);
}

#[test]
fn dockerfile_copies_existing_files_and_runs_an_existing_command() {
    let file = read("Dockerfile");
    let (mut copied, mut run) = (Vec::new(), Vec::new());
    for line in lines(&file) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["COPY", "--from=build", from, to] => {
                assert_eq!((from, to), ("/weir/target/release/weir", INSTALLED));
            }
            ["COPY", ref from @ .., _] => copied.extend(from.iter().map(|from| (*from).to_owned())),
            ["FROM", image, "AS", "build"] => {
                let toolchain = fs::read_to_string(root().join("rust-toolchain.toml")).unwrap();
                let version = toolchain.split('"').nth(1).unwrap();
                assert_eq!(image, format!("docker.io/library/rust:{version}-slim-bookworm"));
            }
            [kind @ ("ENTRYPOINT" | "CMD"), ..] => {
                let list: Vec<String> = serde_json::from_str(line[kind.len()..].trim()).unwrap();
                run.extend(list);
            }
            _ => {}
        }
    }
    let ignored = fs::read_to_string(root().join(".dockerignore")).unwrap();
    for from in [".cargo", "Cargo.toml", "Cargo.lock", "bpf", "crates", "examples"] {
        assert!(copied.iter().any(|copied| copied == from), "{from} is not copied");
    }
    for from in &copied {
        assert!(root().join(from).exists(), "{from} does not exist");
        assert!(
            ignored.lines().any(|line| line.strip_prefix('!') == Some(from)),
            "{from} is not sent to the build"
        );
    }
    assert_eq!(run[0], INSTALLED);
    assert_known_command(&run[1..].iter().map(String::as_str).collect::<Vec<&str>>());
}

#[test]
fn agent_without_root_needs_exactly_its_units_capabilities() {
    let test = "agent_without_root_needs_exactly_its_units_capabilities";
    let unit = read("systemd/weir-agent.service");
    let [capabilities] = &values(&unit, "AmbientCapabilities")[..] else { panic!() };
    assert_eq!(values(&unit, "CapabilityBoundingSet").join(" "), *capabilities);
    let capabilities: Vec<String> = capabilities
        .split(' ')
        .map(|name| format!("+{}", name.trim_start_matches("CAP_").to_lowercase()))
        .collect();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let group =
        mounts.lines().find(|line| line.contains(" - cgroup2 ")).and_then(|line| line.split(' ').nth(4));
    let group = format!("{}/weir-test-{}-capabilities", group.unwrap_or("/"), std::process::id());
    let probe = Command::new("unshare")
        .args([
            "-nm",
            "sh",
            "-c",
            "tc -V && setpriv --version && mount -t bpf bpf /sys/fs/bpf && mkdir \"$0\"",
            &group,
        ])
        .output();
    if !probe.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("{test} skips, since this machine cannot create namespaces or cgroups: {probe:?}");
        return;
    }
    // The environment that systemd creates for the service: a folder below /run and a BPF file system, in
    // temporary namespaces.
    let script = "
        exec 2>&1
        ip link add e0 type veth peer name e1
        ip link set e0 up
        ip link set e1 up
        mkdir -p /run/weir
        mount -t tmpfs -o mode=0750,uid=65534,gid=65534 tmpfs /run/weir
        touch /run/weir/program
        # The program is mounted here, since user 65534 may have no access to the build folder.
        mount --bind \"$BUILT\" /run/weir/program
        mount -t bpf bpf /sys/fs/bpf
        install -d -o 65534 -g 65534 -m 0700 /sys/fs/bpf/weir
        with() {
            echo setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs \
                --inh-caps=-all$1 --ambient-caps=-all$1 --bounding-set=-all$1 /run/weir/program agent
        }
        queues='queues --interface e0 --rate 1Gbit --weights 1:3'
        traffic=\"traffic --interface e0 --application web=$GROUP:1\"
        $(with $CAPABILITIES) $queues; echo \"queues $?\"
        $(with $CAPABILITIES) cleanup; echo \"cleanup $?\"
        $(with $CAPABILITIES) $traffic & follower=$!
        for _ in $(seq 200); do
            ls /sys/fs/bpf/weir/*/*-mark > /dev/null 2>&1 && echo marks && break
            kill -0 $follower 2>/dev/null || break
            sleep 0.05
        done
        kill $follower 2>/dev/null; wait $follower; echo \"traffic $?\"
        $(with ,+net_admin,+bpf) cleanup; echo \"cleanup $?\"
        timeout -s INT 1 $(with ,+net_admin,+bpf) $traffic; echo \"without CAP_PERFMON $?\"
        run='run --name a --rate 1Gbit --coordinator 127.0.0.1:9 --socket /run/weir/agent.sock'
        timeout -s INT 1 $(with $CAPABILITIES) $run; echo \"run $?\"
        $(with ,+net_admin) $traffic; echo \"without CAP_BPF $?\"
        $(with ,+bpf) $queues; echo \"without CAP_NET_ADMIN $?\"
    ";
    let output = Command::new("unshare")
        .args(["-nm", "timeout", "60", "bash", "-c", script])
        .env("BUILT", env!("CARGO_BIN_EXE_weir"))
        .env("GROUP", &group)
        .env("CAPABILITIES", capabilities.iter().map(|name| format!(",{name}")).collect::<String>())
        .output()
        .unwrap();
    fs::remove_dir(&group).unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.starts_with("e0: 2 queues, "), "{stdout}");
    assert!(stdout.contains("\nqueues 0\ne0: restored\ncleanup 0\n"), "{stdout}");
    assert!(stdout.ends_with("without CAP_NET_ADMIN 1\n"), "{stdout}");
    if stdout.contains("was built without") {
        eprintln!("{test} skips traffic: {stdout}");
        return;
    }
    assert!(stdout.contains("marks\ntraffic 0\n"), "{stdout}");
    // The program stops cleanly at the signal of `timeout`, which then returns 124.
    assert!(stdout.contains("without CAP_PERFMON 124\n") && stdout.contains("run 124\n"), "{stdout}");
    let has_types = Path::new("/sys/kernel/btf/vmlinux").exists();
    assert!(!has_types || !stdout.contains("cannot pause sockets"), "{stdout}");
    assert!(
        stdout.contains("Operation not permitted") && stdout.contains("\nwithout CAP_BPF 1\n"),
        "{stdout}"
    );
}
