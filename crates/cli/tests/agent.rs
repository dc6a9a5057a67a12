//! `weir agent`. Without the privileges that queues need, the test that makes some says so and skips.

#![cfg(target_os = "linux")]

use std::process::Command;

#[test]
fn queues_come_change_and_go() {
    let able = Command::new("unshare")
        .args(["-n", "sh", "-c", "tc -V && ip link add e0 type veth peer name e1"])
        .output();
    if !able.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("queues_come_change_and_go skips, since this machine makes no namespaces: {able:?}");
        return;
    }
    // In a namespace that goes away with the shell.
    let script = "
        set -e
        ip link add e0 type veth peer name e1
        ip link set e0 up
        ip link set e1 up
        agent() { \"$WEIR\" agent \"$@\"; }
        tc qdisc show dev e0
        agent queues --interface e0 --rate 1Gbit --weights 1:3 --dry-run | sh -e
        agent queues --interface e0 --rate 1Gbit --weights 1:3
        agent queues --interface e0 --rate 1Gbit --weights 3:1 --dry-run | cut -d' ' -f1-9,11-12
        agent queues --interface e0 --rate 1Gbit --weights 3:1
        agent cleanup
        tc qdisc show dev e0
        agent cleanup
        agent queues --interface e2 --rate 1Gbit --weights 3:1 2>&1 || echo \"code $?\"
        agent queues --interface e0 --rate 1Gbit --weights 3:0 2>&1 || echo \"code $?\"
    ";
    let output = Command::new("unshare")
        .args(["-n", "sh", "-c", script])
        .env("WEIR", env!("CARGO_BIN_EXE_weir"))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let expected = "\
qdisc noqueue 0: root refcnt 2 
e0: 2 queues, 0 changes
tc class change dev e0 parent 7765:1 classid 7765:100 rate 750000000bit
tc class change dev e0 parent 7765:1 classid 7765:101 rate 250000000bit
e0: 2 queues, 2 changes
e0: as it was
qdisc noqueue 0: root refcnt 2 
no queues of Weir's were there
weir: ip: `-d -j link show dev e2`: Device \"e2\" does not exist.
code 1
weir: weight 0 of queue 1: expected a finite number above zero, and at most 1e6 times the least
code 2
";
    assert_eq!(said, expected, "{}", String::from_utf8_lossy(&output.stderr));
}
