//! Tests that `weir profile` refuses hosts of a cluster that it cannot limit. Tests of limited hosts need namespaces.

use std::fs;

use crate::common::TestDir;
use crate::common::serving::CoordinatorProcess;

const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"saath\"\n\
                      [listen]\nagents = \"127.0.0.1:0\"\napi = \"127.0.0.1:0\"\n\
                      [host]\na = \"1Gbit\"\nb = \"1Gbit\"\n";

#[test]
fn profile_refuses_unknown_hosts_and_hosts_without_an_agent() {
    let dir = TestDir::new();
    dir.write("serve.toml", CONFIG);
    let coordinator = CoordinatorProcess::start(&dir.path("serve.toml"));
    let address = &coordinator.api_address;
    for (hosts, code, message) in [
        (
            "--hosts a,c",
            2,
            "--hosts: `c` is unknown or repeated; expected hosts of `weir ctl hosts`, each once",
        ),
        ("--hosts a,a", 2, "--hosts: `a` is unknown or repeated"),
        ("--hosts a", 1, "host a: its agent is not connected; help: `weir ctl hosts`"),
        ("", 2, "--hosts <NAMES>"),
        ("--hosts a --bed bed", 2, "cannot be used with"),
        ("--hosts a --interface eth0 --rate 1Gbit", 2, "cannot be used with"),
    ] {
        let line = format!("profile --coordinator {address} {hosts} --out table.toml -- touch started");
        let message_shown = dir.stderr_of(&line, code);
        assert!(message_shown.contains(message), "{line}: {message_shown}");
    }
    let message = dir.stderr_of("profile --coordinator 192.0.2.1:7701 --hosts a -- true", 2);
    assert!(message.contains("expected --certificate, --key and --authority"), "{message}");
    assert!(!fs::exists(dir.path("started")).unwrap() && !fs::exists(dir.path("table.toml")).unwrap());
}
