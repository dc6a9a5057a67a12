//! Tests `weir serve` and `weir ctl` as processes on loopback.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::certificates::Authority;
use crate::common::serving::{CoordinatorProcess, run_weir};
use crate::common::{interrupt_and_wait, wait_for};
use serde_json::Value;

const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"netshare\"\n\
                      [listen]\nagents = \"127.0.0.1:0\"\napi = \"127.0.0.1:0\"\n\
                      [host]\na = \"1Gbit\"\nb = \"1Gbit\"\n[service.ads]\napplications = [\"sort\"]\n";

#[test]
fn coordinator_answers_ctl_stops_on_sigterm_and_keeps_its_state() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serve.toml");
    fs::write(&config, CONFIG).unwrap();
    let mut coordinator_process = CoordinatorProcess::start(&config);
    let (code, text) = coordinator_process.ctl(&["hosts"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.lines().nth(2).unwrap().starts_with("a     false    -"), "{text}");
    assert_eq!(coordinator_process.ctl(&["policy", "get"]), (Some(0), "netshare\n".to_owned()));
    assert_eq!(coordinator_process.ctl(&["weight", "ads", "3"]), (Some(0), String::new()));
    let (_, text) = coordinator_process.ctl(&["services", "--format", "csv"]);
    let columns =
        "name,weight,excess,min_bandwidth,max_bandwidth,min_bandwidth_per_host,max_bandwidth_per_host";
    assert_eq!(text, format!("{columns},weights_used,pause,applications\nads,3.0,,,,,,true,,default sort\n"));
    assert_eq!(coordinator_process.ctl(&["policy", "set", "saath:d=4"]), (Some(0), String::new()));
    assert_eq!(coordinator_process.ctl(&["policy", "get"]).1, "saath:d=4\n");
    let (code, text) = coordinator_process.ctl(&["policy", "set", "none"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("422") && text.contains("`none`"), "{text}");
    let mut socket = TcpStream::connect(&coordinator_process.api_address).unwrap();
    let body = r#"{"service": "ads", "flows": [{"from": "a", "to": "b"}]}"#;
    let head = format!("PUT /v1/coflows/c1 HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(body.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "HTTP/1.1 200 OK");
    let (_, text) = coordinator_process.ctl(&["coflows", "--format", "json"]);
    let coflows: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&coflows[0]["id"], &coflows[0]["flows"]), (&"c1".into(), &1.into()));
    assert_eq!(coordinator_process.ctl(&["allocation", "--format", "json"]).1.trim(), "[]");
    // Sends SIGTERM with `kill(1)`.
    let kill_status = Command::new("kill").arg(coordinator_process.child.id().to_string()).status().unwrap();
    assert!(kill_status.success());
    let mut status = None;
    wait_for("the coordinator's exit", || {
        status = coordinator_process.child.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    let log: Vec<String> = coordinator_process.log.by_ref().lines().map_while(Result::ok).collect();
    assert!(log.last().unwrap().contains("stopped"), "{log:?}");
    // Without a file, the audit log is part of the log, without registrations.
    let mut audited: Vec<Value> = log
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["target"] == "audit")
        .map(|line| serde_json::from_str(line["fields"]["message"].as_str().unwrap()).unwrap())
        .collect();
    audited.retain(|entry| entry["action"] != "start");
    let results: Vec<[&str; 3]> = audited
        .iter()
        .map(|entry| ["identity", "action", "result"].map(|field| entry[field].as_str().unwrap()))
        .collect();
    assert_eq!(
        results,
        [
            ["plain text", "set_service", "accepted"],
            ["plain text", "set_policy", "accepted"],
            ["plain text", "set_policy", "refused"],
        ]
    );
    // The next coordinator reads the policy and the coflow from the store.
    let again = CoordinatorProcess::start(&config);
    assert_eq!(again.ctl(&["policy", "get"]).1, "saath:d=4\n");
    assert!(again.ctl(&["coflows"]).1.contains("c1"));
}

#[test]
fn ctl_registers_applications_deregisters_coflows_and_follows_events() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serve.toml");
    fs::write(&config, CONFIG.replace("policy =", "queues = \"services\"\npolicy =")).unwrap();
    let coordinator_process = CoordinatorProcess::start(&config);
    let address = coordinator_process.api_address.clone();
    let follow = |format: &str, count: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["ctl", "events", "--coordinator", &address, "--format", format, "--count", count]);
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let followers = [follow("table", "3"), follow("json", "3"), follow("csv", "3")];
    // Until all of them receive events.
    wait_for("the streams of events", || {
        let connections = fs::read_to_string("/proc/net/tcp").unwrap();
        let port = format!(":{:04X} 0", address.rsplit_once(':').unwrap().1.parse::<u16>().unwrap());
        connections.lines().filter(|line| line.contains(&port) && line.contains(" 01 ")).count() >= 3
    });
    std::thread::sleep(std::time::Duration::from_millis(200));
    let ctl = |line: &str| coordinator_process.ctl(&line.split(' ').collect::<Vec<_>>());
    let done = (Some(0), String::new());
    assert_eq!(ctl("application register web --service ads"), done);
    let (_, text) = ctl("applications --format csv");
    assert_eq!(text, "id,service,model,level,traffic,hosts\nweb,ads,,0,,\n");
    let traffic = "--cgroup system.slice/web-*.service --slice web.slice --port 53 --port 80 --hosts a,b";
    assert_eq!(ctl(&format!("application register web --service ads {traffic}")), done);
    let (_, text) = ctl("applications --format csv");
    let expected = "web,ads,,0,system.slice/web-*.service web.slice port/53 port/80,a b\n";
    assert_eq!(text, format!("id,service,model,level,traffic,hosts\n{expected}"));
    let (code, text) = ctl("application register web --service ads --cgroup ../x");
    assert!(code == Some(1) && text.contains("/traffic/cgroups/0"), "{text}");
    let (code, text) = ctl("application register web --service ads --hosts a");
    assert!(code == Some(2) && text.contains("--hosts: no traffic is given"), "{text}");
    assert_eq!(ctl("application register web --service ads --no-traffic"), done);
    assert_eq!(ctl("applications --format csv").1, "id,service,model,level,traffic,hosts\nweb,ads,,0,,\n");
    assert_eq!(ctl("application deregister web"), done);
    assert_eq!(ctl("application deregister web").0, Some(1));
    let body = r#"{"service": "ads", "flows": [{"from": "a", "to": "b", "bytes": 1000}]}"#;
    assert!(put_coflow(&address, "c1", body));
    let (_, text) = ctl("coflow show c1 --format csv");
    assert_eq!(
        text,
        "flow,from,to,bytes,sent_bytes,done,rate,pause,shadow_rate\n0,a,b,1000.0,0.0,false,,,\n"
    );
    assert_eq!(ctl("coflow deregister c1"), done);
    let (code, text) = ctl("coflow show c1");
    assert!(code == Some(1) && text.contains("404"), "{text}");
    let texts = followers.map(|follower| {
        let output = follower.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    });
    let events =
        "application-registered web ads\napplication-deregistered web ads\ncoflow-registered c1 ads\n";
    assert_eq!(texts[0], events);
    assert_eq!(texts[2], format!("event,subject,service\n{}", events.replace(' ', ",")));
    let event: Value = serde_json::from_str(texts[1].lines().next().unwrap()).unwrap();
    assert_eq!(event["event"], "application-registered");
}

#[test]
fn ctl_loads_and_shows_the_sensitivity_table() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serve.toml");
    fs::write(&config, CONFIG).unwrap();
    let file = folder.path().join("table.toml");
    let table = |model: &str| {
        let text = "version = 1\n\n[[application]]\nname = \"sort\"\ncoefficients = [5, -4]\n\n[[application]]\nname = \"flat\"\n";
        fs::write(&file, format!("{text}coefficients = {model}\n")).unwrap();
    };
    table("[1.25, -0.25]");
    let path = file.to_str().unwrap();
    let coordinator_process = CoordinatorProcess::start(&config);
    let ctl = |args: &[&str]| coordinator_process.ctl(&[&["sensitivity"], args].concat());
    let done = (Some(0), String::new());
    assert_eq!(ctl(&["load", path]), done);
    let expected = "application,r2,c0,c1,c2,c3\nsort,,5.0,-4.0,,\nflat,,1.25,-0.25,,\n";
    assert_eq!(ctl(&["show", "--format", "csv"]).1, expected);
    // The printed table can be loaded again.
    let (_, text) = ctl(&["show"]);
    fs::write(&file, &text).unwrap();
    assert_eq!((ctl(&["load", path]), ctl(&["show"]).1), (done.clone(), text));

    // Queues of registered applications follow a new table at once.
    for name in ["sort", "flat"] {
        let register = ["application", "register", name, "--service", "ads", "--model", name];
        assert_eq!(coordinator_process.ctl(&register), done);
    }
    let connect = |id: &str, application: &str| {
        let body = format!(r#"{{"application": "{application}", "from": "a", "to": "b"}}"#);
        assert!(put(&coordinator_process.api_address, &format!("/v1/connections/{id}"), &body));
    };
    connect("x1", "sort");
    connect("x2", "flat");
    let before = coordinator_process.ctl(&["queues", "--format", "csv"]).1;
    // Both are equally sensitive now, so they share a level and its queue.
    table("[5, -4]");
    assert_eq!(ctl(&["load", path]), done);
    let after = coordinator_process.ctl(&["queues", "--format", "csv"]).1;
    assert_ne!(after, before);
    assert!(after.contains("a,out,1.0 0.0"), "{after}");

    // A table without a model in use is refused, and so is an invalid file, before it is sent.
    fs::write(&file, "version = 1\n").unwrap();
    let (code, text) = ctl(&["load", path]);
    assert!(code == Some(1) && text.contains("uses the model"), "{text}");
    fs::write(&file, "version = 2\n").unwrap();
    let (code, text) = ctl(&["load", path]);
    assert!(code == Some(2) && text.contains("table.toml:1"), "{text}");
    assert_eq!(coordinator_process.ctl(&["queues", "--format", "csv"]).1, after);
}

/// In URLs, IPv6 addresses have brackets, and in certificates none.
#[test]
fn ctl_connects_over_tls_to_an_ipv6_address() {
    if TcpListener::bind("[::1]:0").is_err() {
        eprintln!("ctl_connects_over_tls_to_an_ipv6_address skips, since this machine has no IPv6");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("authority");
    let server = authority.write_server_files(folder.path(), Ipv6Addr::LOCALHOST.into());
    let ann = authority.write_files(folder.path(), "weir://operator/ann");
    let tls = format!(
        "[tls]\ncertificate = {:?}\nkey = {:?}\nclients = {:?}\n[host]",
        server.certificate, server.key, server.clients
    );
    let text = CONFIG.replace("127.0.0.1:0", "[::1]:0").replace("[host]", &tls);
    fs::write(folder.path().join("serve.toml"), text).unwrap();
    let coordinator_process = CoordinatorProcess::start(&folder.path().join("serve.toml"));
    assert!(coordinator_process.api_address.starts_with("[::1]:"));
    let files = [ann.certificate, ann.key, ann.clients].map(|path| path.display().to_string());
    let options = ["--certificate", &files[0], "--key", &files[1], "--authority", &files[2]];
    let (code, text) = coordinator_process.ctl(&[&["hosts", "--format", "csv"], &options[..]].concat());
    assert!(code == Some(0) && text.contains("\na,false,"), "{text}");
}

#[test]
fn ipv6_addresses_without_brackets_are_refused_with_brackets() {
    for (address, help) in
        [("::1:7701", "[::1]:7701"), ("fd09::5:7701", "[fd09::5]:7701"), ("::1", "[::1]:1")]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["ctl", "hosts", "--coordinator", address])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            text.contains(&format!("expected an IPv6 address in brackets and a port; help: write {help}")),
            "{text}"
        );
    }
}

#[test]
fn ctl_lists_relays_routes_and_paths_of_an_overlay() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serve.toml");
    let relay = |name: &str, n: u8| {
        format!(
            "{name}-1 = {{ region = \"{name}\", address = \"10.{n}.0.2:7710\", networks = [\"10.{n}.0.0/16\"] }}\n"
        )
    };
    let hosts = CONFIG.find("[host]").unwrap();
    let overlay = format!(
        "[overlay]\npolicy = \"siphon\"\n[overlay.relay]\n{}{}[overlay.link]\neu.us = \"1Gbit\"\nus.eu = \"1Gbit\"\n",
        relay("eu", 1),
        relay("us", 2)
    );
    fs::write(&config, format!("{}{overlay}", &CONFIG[..hosts])).unwrap();
    let coordinator_process = CoordinatorProcess::start(&config);
    let body = r#"{"flows": [{"from": "10.1.0.9", "to": "us", "bytes": 1000}]}"#;
    assert!(put_coflow(&coordinator_process.api_address, "c1", body));
    // The next order to the relays contains the coflow.
    wait_for("the coflow is in the orders to the relays", || {
        let (_, text) = coordinator_process.ctl(&["relays", "--format", "csv"]);
        let mut lines = text.lines();
        lines.next().is_some_and(|header| header.starts_with("name,region,present,"))
            && lines.next().is_some_and(|row| row.starts_with("eu-1,eu,false,,0,0,1,"))
    });
    let (_, text) = coordinator_process.ctl(&["routes", "--format", "json"]);
    let routes: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&routes[0]["coflow"], &routes[0]["bytes"]), (&"c1".into(), &1000.into()));
    let (code, text) = coordinator_process.ctl(&["paths"]);
    assert!(code == Some(0) && text.starts_with("from  to  from_region"), "{text}");
    assert!(coordinator_process.ctl(&["coflows"]).1.contains("measured_seconds"));
}

#[test]
fn serve_check_accepts_the_example_and_names_wrong_keys() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/serve.toml");
    let output = run_weir(&["serve", "--check", example.to_str().unwrap()]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("host      node-1: 10Gbit") && text.ends_with("serve.toml: no error found\n"),
        "{text}"
    );
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serve.toml");
    fs::write(&config, CONFIG.replace("[host]", "[hosts]")).unwrap();
    for option in ["--check", "--config"] {
        let output = run_weir(&["serve", option, config.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains("serve.toml:7: field `key`: `hosts`: expected one of"), "{stderr}");
    }
    fs::write(&config, CONFIG.replace("policy = \"netshare\"", "polic = \"tree:none.toml\"")).unwrap();
    let stderr = String::from_utf8(run_weir(&["serve", "--check", config.to_str().unwrap()]).stderr).unwrap();
    assert!(stderr.contains("`polic`") && stderr.contains("help: did you mean `policy`?"), "{stderr}");
    fs::write(&config, CONFIG.replace("netshare", "tree:none.toml")).unwrap();
    let output = run_weir(&["serve", "--log", "json", "--config", config.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let line: Value = serde_json::from_slice(&output.stderr).unwrap();
    let message = line["fields"]["message"].as_str().unwrap();
    assert_eq!(line["level"], "ERROR");
    assert!(
        message
            .contains("serve.toml:3: field `policy`: `\"tree:none.toml\"`: expected a file that can be read"),
        "{message}"
    );
    assert!(message.contains("none.toml: cannot be read: No such file"), "{message}");
    // The client refuses to send plain text to another host.
    let output = run_weir(&["ctl", "hosts", "--coordinator", "192.0.2.1:7701"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn hosts_show_their_number_of_connections_under_django_with_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serve.toml");
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/incast/steady-model.toml");
    fs::copy(model, folder.path().join("steady-model.toml")).unwrap();
    let text = CONFIG.replace("netshare", "django:connections=7");
    fs::write(&config, format!("{text}[django]\nmodel = \"steady-model.toml\"\n")).unwrap();
    let coordinator_process = CoordinatorProcess::start(&config);
    let shown = || {
        let (_, hosts) = coordinator_process.ctl(&["hosts", "--format", "json"]);
        let hosts: Value = serde_json::from_str(&hosts).unwrap();
        let metrics = coordinator_process.get("/metrics");
        let metric = metrics.lines().find(|line| line.starts_with("weir_matching_connections{host=\"b\"}"));
        (hosts[1]["max_connections"].as_u64(), metric.map(str::to_owned))
    };
    let metric = |count| Some(format!("weir_matching_connections{{host=\"b\"}} {count}"));
    assert_eq!(shown(), (Some(7), metric(7)));
    assert_eq!(coordinator_process.ctl(&["policy", "set", "fair"]).0, Some(0));
    assert_eq!(shown(), (None, None));
    assert_eq!(coordinator_process.ctl(&["policy", "set", "django"]).0, Some(0));
    assert_eq!(shown(), (Some(11), metric(11)));
}

#[test]
fn ctl_pauses_resumes_and_lists_pauses() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serve.toml");
    fs::write(&config, CONFIG).unwrap();
    let coordinator_process = CoordinatorProcess::start(&config);
    let ctl = |args: &[&str]| coordinator_process.ctl(args);
    let paused = || -> Vec<String> {
        let (_, text) = ctl(&["paused", "--format", "csv"]);
        text.lines().map(|row| row.split(',').take(4).collect::<Vec<_>>().join(",")).collect()
    };
    let head = "target,name,mode,queues".to_owned();
    assert!(paused().is_empty());
    assert_eq!(ctl(&["pause", "--host", "a,b", "--queues"]).0, Some(0));
    assert_eq!(ctl(&["pause", "--all", "--shadow"]).0, Some(0));
    let hosts = ["host,a,paused,true", "host,b,paused,true"].map(str::to_owned);
    assert_eq!(paused()[1..], [&["all,,shadow,true".to_owned()], &hosts[..]].concat());
    let (_, shown) = ctl(&["hosts", "--format", "json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown[0]["pause"], "paused");
    assert_eq!(ctl(&["resume", "--all"]).0, Some(0));
    assert_eq!(ctl(&["resume", "--host", "b"]).0, Some(0));
    assert_eq!(paused(), [head, hosts[0].clone()]);
    for wrong in [
        &["pause"][..],
        &["pause", "--host", "z"],
        &["pause", "--all", "--host", "a"],
        &["pause", "--service", "default", "--queues"],
        &["resume"],
    ] {
        assert_ne!(ctl(wrong).0, Some(0), "{wrong:?}");
    }
    assert_eq!(paused().len(), 2);
}

/// `weir ctl reload` shows the difference or the reason, and SIGHUP does the same without an answer.
#[test]
fn ctl_and_sighup_reload_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serve.toml");
    fs::write(&config, CONFIG).unwrap();
    let coordinator_process = CoordinatorProcess::start(&config);
    let hosts = || coordinator_process.ctl(&["hosts", "--format", "csv"]).1.lines().count() - 1;
    let with_c = CONFIG.replace("b = \"1Gbit\"\n", "b = \"2Gbit\"\nc = \"1Gbit\"\n");
    fs::write(&config, &with_c).unwrap();
    let difference = "- host      b: 1Gbit\n+ host      b: 2Gbit\n+ host      c: 1Gbit\n";
    assert_eq!(coordinator_process.ctl(&["reload", "--check"]), (Some(0), difference.to_owned()));
    assert_eq!(hosts(), 2);
    assert_eq!(coordinator_process.ctl(&["reload"]), (Some(0), difference.to_owned()));
    assert_eq!(hosts(), 3);
    let (_, text) = coordinator_process.ctl(&["reload", "--format", "json"]);
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&answer["applied"], answer["difference"].as_array().map(Vec::len)), (&true.into(), Some(0)));

    fs::write(&config, with_c.replace("netshare", "netshar")).unwrap();
    let (code, text) = coordinator_process.ctl(&["reload"]);
    assert!(code == Some(1) && text.contains("serve.toml:3: field `policy`"), "{text}");
    fs::write(&config, CONFIG).unwrap();
    let process = coordinator_process.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &process]).status().unwrap().success());
    wait_for("the configuration of the signal", || hosts() == 2);
}

#[test]
fn wrong_ports_and_missing_certificates_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serve.toml");
    fs::write(&config, CONFIG).unwrap();
    let coordinator_process = CoordinatorProcess::start(&config);
    let (agents, api) = (coordinator_process.agents_address.clone(), coordinator_process.api_address.clone());
    let ctl = |address: &str| {
        let output = run_weir(&["ctl", "hosts", "--coordinator", address]);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = ctl(&agents);
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.starts_with(&format!("weir: {agents}: the answer is not HTTP/1.1; expected the address `api`")),
        "{text}"
    );
    let expected = format!(
        "--coordinator: {api} serves HTTP/1.1, as the coordinator's API; expected the address `agents`"
    );
    assert_hint(
        &["relay", "run", "--name", "a", "--relays", "127.0.0.1:0", "--coordinator", &api],
        &expected,
    );
    let socket = folder.path().join("agent.sock");
    let agent = |address: &str| {
        let options =
            ["agent", "run", "--name", "a", "--rate", "1Gbit", "--coordinator", address, "--socket"];
        options.map(str::to_owned).into_iter().chain([socket.display().to_string()]).collect::<Vec<String>>()
    };
    assert_hint(&agent(&api), &expected);
    for (key, taken) in [("agents", &agents), ("api", &api)] {
        let other = CONFIG.replace(&format!("{key} = \"127.0.0.1:0\""), &format!("{key} = \"{taken}\""));
        fs::write(folder.path().join("other.toml"), other.replace("weir.redb", "other.redb")).unwrap();
        let output = run_weir(&["serve", "--config", folder.path().join("other.toml").to_str().unwrap()]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(&format!("weir: [listen] {key}: {taken}: cannot listen: ")), "{text}");
    }
    drop(coordinator_process);
    let (code, text) = ctl(&api);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("help: start the coordinator (`weir serve`), or set --coordinator"), "{text}");
    assert_hint(&agent(&agents), &format!("--coordinator: no coordinator accepts connections at {agents} ("));

    let authority = Authority::new("own");
    let files = authority.write_files(folder.path(), "weir://operator/ann");
    let [certificate, key, clients] =
        [&files.certificate, &files.key, &files.clients].map(|path| path.to_str().unwrap());
    let tls = format!("[tls]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\nclients = \"{clients}\"\n");
    fs::write(&config, format!("{CONFIG}{tls}")).unwrap();
    let coordinator_process = CoordinatorProcess::start(&config);
    let (code, text) = ctl(&coordinator_process.api_address);
    assert_eq!(code, Some(2), "{text}");
    let expected = "the coordinator expects TLS; expected a certificate, its key and an authority; help: add --certificate";
    assert!(text.contains(expected), "{text}");
    let agents = &coordinator_process.agents_address;
    assert_hint(
        &agent(agents),
        &format!("--coordinator: {agents} expects TLS; expected a certificate; help: add"),
    );
}

/// Asserts that one of the first lines of a command contains a hint.
fn assert_hint(args: &[impl AsRef<std::ffi::OsStr>], hint: &str) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"));
    let mut child = child.args(args).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let log = BufReader::new(child.stderr.take().unwrap()).lines().take(3).map_while(Result::ok);
    let mut shown = Vec::new();
    let is_shown = log.inspect(|line| shown.push(line.clone())).any(|line| line.contains(hint));
    interrupt_and_wait(&mut child);
    assert!(is_shown, "{hint}\n{shown:?}");
}

#[test]
fn table_of_paths_shows_round_trip_times_with_units() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1000]).unwrap();
            let body = r#"[{"from": "eu-1", "to": "us-1", "min_rtt_seconds": 5.4e-5, "rtt_seconds": null}]"#;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close", body.len());
            stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
        }
    });
    let ctl = |format: &str| {
        let output = run_weir(&["ctl", "paths", "--coordinator", &address, "--format", format]);
        String::from_utf8(output.stdout).unwrap()
    };
    let table = ctl("table");
    assert!(table.contains("  min_rtt   rtt  ") && table.contains("  54.00 us  -    "), "{table}");
    assert!(ctl("csv").contains(",min_rtt_seconds,rtt_seconds,"));
}

/// Registers a coflow, and returns whether the coordinator answered 200.
fn register_coflow(api: &str, id: &str) -> bool {
    put_coflow(api, id, r#"{"service": "ads", "flows": [{"from": "a", "to": "b"}]}"#)
}

fn put_coflow(api: &str, id: &str, body: &str) -> bool {
    put(api, &format!("/v1/coflows/{id}"), body)
}

/// Whether a coordinator accepts an object.
fn put(api: &str, path: &str, body: &str) -> bool {
    let Ok(mut socket) = TcpStream::connect(api) else { return false };
    let head = format!("PUT {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let mut answer = String::new();
    socket.write_all(request.as_bytes()).is_ok()
        && socket.read_to_string(&mut answer).is_ok()
        && answer.starts_with("HTTP/1.1 200 ")
}

/// The numbers of the registered coflows `c0`, `c1` and so on, in order.
fn coflow_numbers(coordinator_process: &CoordinatorProcess) -> Vec<u32> {
    let (_, text) = coordinator_process.ctl(&["coflows", "--format", "json"]);
    let list: Value = serde_json::from_str(&text).unwrap();
    let number = |coflow: &Value| coflow["id"].as_str().unwrap()[1..].parse().unwrap();
    let mut numbers: Vec<u32> = list.as_array().unwrap().iter().map(number).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn backup_under_writes_has_a_prefix_of_the_registrations() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serve.toml");
    fs::write(&config, CONFIG).unwrap();
    let coordinator_process = CoordinatorProcess::start(&config);
    let (stop, api) = (std::sync::atomic::AtomicBool::new(false), coordinator_process.api_address.clone());
    let backups: Vec<_> = (0..5).map(|n| folder.path().join(format!("backup-{n}.redb"))).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                assert!(register_coflow(&api, &format!("c{n}")));
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
            }
        });
        for backup in &backups {
            std::thread::sleep(Duration::from_millis(100));
            let (code, text) = coordinator_process.ctl(&["backup", backup.to_str().unwrap()]);
            assert_eq!(code, Some(0), "{text}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    // A backup does not replace an existing file, unless the operator passes --replace.
    let first = backups[0].to_str().unwrap();
    let before = fs::read(first).unwrap();
    let (code, text) = coordinator_process.ctl(&["backup", first]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("backup-0.redb: the file exists; expected a new file; help: "), "{text}");
    assert!(fs::read(first).unwrap() == before);
    let last = folder.path().join("last.redb");
    fs::copy(first, &last).unwrap();
    let (code, text) =
        coordinator_process.ctl(&["backup", last.to_str().unwrap(), "--replace", "--format", "json"]);
    assert_eq!(code, Some(0), "{text}");
    let all = coflow_numbers(&coordinator_process);
    let shown: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(shown[0]["coflows"], all.len());
    drop(coordinator_process);
    let mut counts = Vec::new();
    for backup in backups.iter().chain([&last]) {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(backup).unwrap().permissions().mode() & 0o777, 0o600);
        let checked = run_weir(&["serve", "--check-store", backup.to_str().unwrap()]);
        assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stderr));
        fs::rename(backup, folder.path().join("weir.redb")).unwrap();
        let found = coflow_numbers(&CoordinatorProcess::start(&config));
        // The test registers each coflow after the answer for the previous one, so a backup contains a prefix.
        assert_eq!(found, (0..found.len() as u32).collect::<Vec<_>>());
        counts.push(found.len());
    }
    assert!(counts.is_sorted() && counts.last() == Some(&all.len()), "{counts:?} of {}", all.len());
    let file_names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(file_names.filter(|name| name.to_string_lossy().starts_with(".weir-")).count(), 0);
}

#[test]
fn damaged_store_is_refused_and_its_backup_replaces_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("serve.toml");
    // The agent reconnects to the same address.
    let free_address = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let agents = free_address();
    let text = CONFIG.replace("agents = \"127.0.0.1:0\"", &format!("agents = \"{agents}\""));
    // The lease is longer than a busy machine delays an order.
    fs::write(&config, text.replace("[listen]", "lease = \"20s\"\n[listen]")).unwrap();
    let store = folder.path().join("weir.redb");
    let backup = folder.path().join("backup.redb");
    let mut agent = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["agent", "run", "--name", "a", "--rate", "1Gbit", "--coordinator", &agents.to_string()])
        .arg("--socket")
        .arg(folder.path().join("agent.sock"))
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let accepts_orders = |coordinator_process: &CoordinatorProcess| {
        coordinator_process.hosts()[0]["applied"].as_u64().unwrap() > 0
    };
    let coordinator_process = CoordinatorProcess::start(&config);
    assert!(register_coflow(&coordinator_process.api_address, "c0"));
    wait_for("the agent accepts orders", || accepts_orders(&coordinator_process));
    let (code, text) = coordinator_process.ctl(&["trace"]);
    assert_eq!(code, Some(0), "{text}");
    let trace: Value = serde_json::from_str(&text).unwrap();
    let mut events = trace["traceEvents"].as_array().unwrap().iter();
    assert!(events.any(|event| event["args"]["name"] == "coflow c0"), "{text}");
    let recorded = folder.path().join("recorded.weir");
    let recorded = recorded.to_str().unwrap();
    assert_eq!(coordinator_process.ctl(&["workload", "--out", recorded]), (Some(0), String::new()));
    let replay = run_weir(&["sim", recorded, "--policy", "fair", "--format", "json"]);
    let result: Value = serde_json::from_slice(&replay.stdout).unwrap();
    assert_eq!((&result["coflows"], &result["flows"]), (&1.into(), &1.into()), "{result}");
    let (code, text) = coordinator_process.ctl(&["backup", backup.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{text}");
    drop(coordinator_process);
    // Later coordinators have higher epochs than the backup.
    for n in 1..=3 {
        let coordinator_process = CoordinatorProcess::start(&config);
        assert!(register_coflow(&coordinator_process.api_address, &format!("c{n}")));
        wait_for("the agent accepts orders of a successor", || accepts_orders(&coordinator_process));
    }
    // Damages all pages except the header; pages in use are among them.
    let mut bytes = fs::read(&store).unwrap();
    bytes.iter_mut().skip(4096).step_by(512).for_each(|byte| *byte ^= 0x20);
    fs::write(&store, &bytes).unwrap();
    for option in [["--config", config.to_str().unwrap()], ["--check-store", store.to_str().unwrap()]] {
        let output = run_weir(&["serve", option[0], option[1]]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{option:?}: {text}");
        for part in
            ["weir.redb: damaged at bytes ", "; expected the contents that a coordinator wrote; help: "]
        {
            assert!(text.contains(part), "{option:?}: {text}");
        }
        assert!(!text.contains("panicked"), "{option:?}: {text}");
        assert!(fs::read(&store).unwrap() == bytes, "{option:?} changed the file");
    }
    let absent = folder.path().join("absent.redb");
    assert_eq!(run_weir(&["serve", "--check-store", absent.to_str().unwrap()]).status.code(), Some(1));
    assert!(!absent.exists());
    fs::rename(&backup, &store).unwrap();
    let coordinator_process = CoordinatorProcess::start(&config);
    assert_eq!(coflow_numbers(&coordinator_process), [0]);
    wait_for("the agent accepts orders after the restore", || accepts_orders(&coordinator_process));
    drop(coordinator_process);
    // Without a backup: an empty store, and frameworks register again.
    fs::remove_file(&store).unwrap();
    let coordinator_process = CoordinatorProcess::start(&config);
    assert!(
        coflow_numbers(&coordinator_process).is_empty()
            && register_coflow(&coordinator_process.api_address, "c0")
    );
    wait_for("the agent accepts orders after the loss", || accepts_orders(&coordinator_process));
    interrupt_and_wait(&mut agent);
}
