//! Tests `weir agent`. Tests that configure queues or mark traffic skip without the privileges.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::common::{Process, TestDir, wait_for};

/// The output of a shell script in a network namespace, which is deleted when the shell exits. The script runs `weir agent` as `agent`, on
/// the interface `e0`. Returns `None`, and prints a message, if this machine cannot create namespaces.
fn run_in_namespace(test: &str, script: &str) -> Option<String> {
    let probe = Command::new("unshare")
        .args(["-n", "sh", "-c", "tc -V && setpriv --version && ip link add e0 type veth peer name e1"])
        .output();
    if !probe.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("{test} skips, since this machine cannot create namespaces: {probe:?}");
        return None;
    }
    let head = "
        set -e
        ip link add e0 type veth peer name e1
        ip link set e0 up
        ip link set e1 up
        agent() { \"$WEIR\" agent \"$@\"; }
    ";
    let output = Command::new("unshare")
        .args(["-n", "sh", "-c", &format!("{head}{script}")])
        .env("WEIR", env!("CARGO_BIN_EXE_weir"))
        .output()
        .unwrap();
    // A failure of the script shows in its output.
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn agent_queues_adds_and_changes_classes_and_cleanup_removes_them() {
    let test = "agent_queues_adds_and_changes_classes_and_cleanup_removes_them";
    let script = "
        tc qdisc show dev e0
        agent queues --interface e0 --rate 1Gbit --weights 1:3 --dry-run | sh -e
        agent queues --interface e0 --rate 1Gbit --weights 1:3
        agent queues --interface e0 --rate 1Gbit --weights 3:1 --dry-run | cut -d' ' -f1-9,11-12
        agent queues --interface e0 --rate 1Gbit --weights 3:1
        exec 3<\"$WEIR\"
        setpriv --reuid 65534 --regid 65534 --clear-groups /proc/self/fd/3 agent cleanup 2>&1 | grep -o 'help: .*'
        agent cleanup
        tc qdisc show dev e0
        agent cleanup
        agent queues --interface e2 --rate 1Gbit --weights 3:1 2>&1 || echo \"code $?\"
        agent queues --interface e0 --rate 1Gbit --weights 3:0 2>&1 || echo \"code $?\"
    ";
    let Some(stdout) = run_in_namespace(test, script) else { return };
    let expected = "\
qdisc noqueue 0: root refcnt 2 
e0: 2 queues, 0 changes
tc class change dev e0 parent 7765:1 classid 7765:100 rate 698321000bit
tc class change dev e0 parent 7765:1 classid 7765:101 rate 232773000bit
e0: 2 queues, 2 changes
help: run the command as root
e0: restored
qdisc noqueue 0: root refcnt 2 
nothing to remove
weir: ip: `-d -j link show dev e2`: Device \"e2\" does not exist.
code 1
weir: weight 0 of queue 1 is invalid; expected a finite number above zero, and at most 1e6 times the lowest weight
code 2
";
    assert_eq!(stdout, expected);
}

/// The process that an agent starts at SIGTERM removes that agent's queues, not those that an administrator has configured meanwhile.
#[test]
fn cleanup_if_unused_keeps_queues_configured_by_hand_and_their_record() {
    let test = "cleanup_if_unused_keeps_queues_configured_by_hand_and_their_record";
    // The printed commands leave no mark, as an agent's queues.
    let script = "
        tc qdisc replace dev e0 root handle 5: pfifo limit 77
        agent queues --interface e0 --rate 1Gbit --weights 1:3 --dry-run | sh -e
        agent cleanup --if-unused
        tc qdisc replace dev e0 root handle 5: pfifo limit 77
        agent queues --interface e0 --rate 1Gbit --weights 1:3 > /dev/null
        agent cleanup --if-unused --after 1s
        tc class show dev e0 | wc -l
        agent cleanup
        tc qdisc show dev e0 | cut -d' ' -f1-4
        agent queues --interface e0 --rate 1Gbit --weights 1:3 --dry-run | sh -e
        agent cleanup --if-unused
    ";
    let Some(stdout) = run_in_namespace(test, script) else { return };
    assert_eq!(
        stdout,
        "e0: restored\nnothing to remove\n5\ne0: restored\nqdisc pfifo 5: root\ne0: restored\n"
    );
}

#[test]
fn repeated_interfaces_are_refused() {
    let dir = TestDir::new();
    let run = "agent run --name a --socket local_socket --coordinator 127.0.0.1:1";
    for (line, option) in [
        (format!("{run} --rate 1Gbit --interface lo --interface lo"), "--interface"),
        (
            "agent run --name a --coordinator 127.0.0.1:1 --port lo=1Gbit --port lo=2Gbit --dry-run"
                .to_owned(),
            "--port",
        ),
        ("agent traffic --interface lo --interface lo --application web=port/1".to_owned(), "--interface"),
    ] {
        assert_eq!(
            dir.stderr_of(&line, 2),
            format!("weir: {option} lo: the interface is repeated (as lo); expected each interface once\n")
        );
    }
}

#[test]
fn agent_continues_after_the_reader_of_its_log_has_exited() {
    let dir = TestDir::new();
    let coordinator = TcpListener::bind("127.0.0.1:0").unwrap();
    coordinator.set_nonblocking(true).unwrap();
    let address = coordinator.local_addr().unwrap();
    let line = format!("agent run --name a --rate 16Mbit --coordinator {address} --socket local_socket");
    let mut agent = Process(dir.command(&line).stderr(Stdio::piped()).spawn().unwrap());
    drop(agent.0.stderr.take());
    // The agent logs the end of its stream before it opens the next one.
    let mut streams = 0;
    wait_for("a second stream", || {
        if let Ok((mut connection, _)) = coordinator.accept() {
            // Another connection asks whether this is the address of an API.
            let mut start = [0; 3];
            streams += u32::from(connection.read_exact(&mut start).is_ok() && &start == b"PRI");
        }
        streams == 2
    });
    assert!(agent.stop());
}

#[test]
fn agent_traffic_prints_connections_and_refuses_a_second_agent() {
    let test = "agent_traffic_prints_connections_and_refuses_a_second_agent";
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let root =
        mounts.lines().find(|line| line.contains(" - cgroup2 ")).and_then(|line| line.split(' ').nth(4));
    let group = format!("{}/weir-test-{}-cli", root.unwrap_or("/"), std::process::id());
    let probe = Command::new("unshare").args(["-n", "mkdir", &group]).output();
    if !probe.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("{test} skips, since this machine cannot create namespaces or cgroups: {probe:?}");
        return;
    }
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|output| output.status.success()) {
        eprintln!("{test} skips, since python3 is missing");
        std::fs::remove_dir(&group).unwrap();
        return;
    }
    // The namespace is deleted when the shell exits. Both ends of the connection are local, so the agent
    // prints it twice.
    let script = "
        ip link set lo up
        follow() { exec \"$WEIR\" agent traffic --interface lo --application \"web=$GROUP:3\"; }
        marks() { \"$WEIR\" agent cleanup; }
        agent=
        trap 'kill -9 $agent 2>/dev/null; marks > /dev/null 2>&1' EXIT
        follow > \"$OUT\" 2>&1 & agent=$!
        for _ in $(seq 100); do [ -e /sys/fs/bpf/weir/$(stat -Lc %i /proc/self/ns/net)-2/1-mark ] && break; sleep 0.05; done
        grep -q 'was built without' \"$OUT\" && { cat \"$OUT\"; exit 0; }
        follow 2>&1 & wait $!
        echo \"code $?\"
        marks 2>&1 || echo \"code $?\"
        kill -9 $agent; wait $agent 2>/dev/null
        follow > \"$OUT\" 2>&1 & agent=$!
        sleep 1
        sh -c 'echo 0 > \"$GROUP/cgroup.procs\" && exec python3 -c \"$PROGRAM\"'
        for _ in $(seq 400); do [ $(wc -l < \"$OUT\") -ge 4 ] && break; sleep 0.05; done
        kill $agent; wait $agent
        echo \"code $?\"
        sed -E 's/:[0-9]{5}/:PORT/; s/after .*/after/' \"$OUT\" | sort
        marks
    ";
    let program = "
import socket
server = socket.create_server(('127.0.0.1', 7799))
client = socket.create_connection(('127.0.0.1', 7799))
answer, _ = server.accept()
client.sendall(b'hello\\n')
client.shutdown(socket.SHUT_WR)
while answer.recv(9):
    pass
answer.close()
client.recv(1)
client.close()
";
    let out = format!("{}/agent-traffic-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let output = Command::new("unshare")
        .args(["-n", "bash", "-c", script])
        .env("WEIR", env!("CARGO_BIN_EXE_weir"))
        .env("GROUP", &group)
        .env("OUT", &out)
        .env("PROGRAM", program)
        .output()
        .unwrap();
    std::fs::remove_dir(&group).unwrap();
    let _ = std::fs::remove_file(&out);
    let stdout = String::from_utf8(output.stdout).unwrap();
    if stdout.contains("was built without") {
        eprintln!("{test} skips: {stdout}");
        return;
    }
    let expected = "\
weir: another agent runs in this network namespace; help: stop it first
code 1
weir: another agent runs in this network namespace; help: stop it first
code 1
code 0
web closed 127.0.0.1:7799 127.0.0.1:PORT sent 0 received 7 after
web closed 127.0.0.1:PORT 127.0.0.1:7799 sent 6 received 1 after
web opened 127.0.0.1:7799 127.0.0.1:PORT
web opened 127.0.0.1:PORT 127.0.0.1:7799
nothing to remove
";
    assert_eq!(stdout, expected, "{}", String::from_utf8_lossy(&output.stderr));
}
