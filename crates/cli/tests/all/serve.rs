//! `weir serve` and `weir ctl`, as processes on loopback.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::serving::{Serving, weir};
use serde_json::Value;

const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"netshare\"\n\
                      [listen]\nagents = \"127.0.0.1:0\"\napi = \"127.0.0.1:0\"\n\
                      [host]\na = \"1Gbit\"\nb = \"1Gbit\"\n[service.ads]\napplications = [\"sort\"]\n";

#[test]
fn a_coordinator_is_asked_and_ends_when_told() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serve.toml");
    fs::write(&config, CONFIG).unwrap();
    let mut serving = Serving::start(&config);
    let (code, text) = serving.ctl(&["hosts"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.lines().nth(2).unwrap().starts_with("a     false    -"), "{text}");
    assert_eq!(serving.ctl(&["policy", "get"]), (Some(0), "netshare\n".to_owned()));
    assert_eq!(serving.ctl(&["weight", "ads", "3"]), (Some(0), String::new()));
    let (_, text) = serving.ctl(&["services", "--format", "csv"]);
    assert_eq!(text, "name,weight,excess,in_force,applications\nads,3.0,,true,default sort\n");
    assert_eq!(serving.ctl(&["policy", "set", "saath:d=4"]), (Some(0), String::new()));
    assert_eq!(serving.ctl(&["policy", "get"]).1, "saath:d=4\n");
    let (code, text) = serving.ctl(&["policy", "set", "none"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("422") && text.contains("`none`"), "{text}");
    let mut socket = TcpStream::connect(&serving.api).unwrap();
    let body = r#"{"service": "ads", "flows": [{"from": "a", "to": "b"}]}"#;
    let head = format!("PUT /v1/coflows/c1 HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(body.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "HTTP/1.1 200 OK");
    let (_, text) = serving.ctl(&["coflows", "--format", "json"]);
    let coflows: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&coflows[0]["id"], &coflows[0]["flows"]), (&"c1".into(), &1.into()));
    assert_eq!(serving.ctl(&["allocation", "--format", "json"]).1.trim(), "[]");
    // SIGTERM, by the shell's own kill.
    let asked = Command::new("kill").arg(serving.child.id().to_string()).status().unwrap();
    assert!(asked.success());
    let began = Instant::now();
    let status = serving.child.wait().unwrap();
    assert!(status.success() && began.elapsed() < Duration::from_secs(8), "{status} {:?}", began.elapsed());
    let last = serving.log.by_ref().lines().map_while(Result::ok).last().unwrap();
    assert!(last.contains("stopped"), "{last}");
    // What was set is there again.
    let again = Serving::start(&config);
    assert_eq!(again.ctl(&["policy", "get"]).1, "saath:d=4\n");
    assert!(again.ctl(&["coflows"]).1.contains("c1"));
}

#[test]
fn configurations_are_checked() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/serve.toml");
    let output = weir(&["serve", "--check", example.to_str().unwrap()]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("host      node-1: 10Gbit"));
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serve.toml");
    fs::write(&config, CONFIG.replace("[host]", "[hosts]")).unwrap();
    for option in ["--check", "--config"] {
        let output = weir(&["serve", option, config.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("serve.toml:7: field `key`: `hosts`: expected one of"), "{said}");
    }
    // Plain text does not leave the host.
    let output = weir(&["ctl", "hosts", "--coordinator", "192.0.2.1:7701"]);
    assert_eq!(output.status.code(), Some(2));
}
