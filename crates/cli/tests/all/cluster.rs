//! Tests the commands of docs/cluster.md on loopback, and the configuration of docs/spark.md. The test of the commands skips without
//! openssl or Python.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::serving::CoordinatorProcess;
use crate::common::{TestDir, assert_known_command, interrupt_and_wait, wait_for};

fn document(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)).unwrap()
}

/// The code blocks of a language.
fn code_blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).map(|part| part.split("\n```").next().unwrap().to_owned()).collect()
}

/// Indented lines, with continuation lines joined.
fn indented_commands(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    joined.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

/// Replaces parts of a text, all of which must occur.
fn replace_parts(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "`{from}` is missing in: {text}");
        text.replace(from, to)
    })
}

fn runs_successfully(program: &str, words: &[&str]) -> bool {
    Command::new(program).args(words).output().is_ok_and(|output| output.status.success())
}

/// A process, which is stopped when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        interrupt_and_wait(&mut self.0);
    }
}

#[test]
fn commands_of_the_cluster_page_exist() {
    let mut found = 0;
    for line in indented_commands(&document("cluster.md")) {
        // The arguments of an image follow its name.
        let words: Vec<&str> = line.split_whitespace().collect();
        let weir_position = words.iter().position(|word| *word == "weir");
        let run = match words[0] {
            "weir" => 0,
            "docker" if words[1] == "run" => weir_position.unwrap(),
            _ => continue,
        };
        if words.len() > run + 1 {
            assert_known_command(&words[run + 1..]);
            found += 1;
        }
    }
    assert_eq!(found, 11);
}

#[test]
fn configuration_of_the_spark_page_has_no_error() {
    let page = document("spark.md");
    let lines =
        page.lines().map(|line| line.strip_prefix("   ").unwrap_or(line)).collect::<Vec<_>>().join("\n");
    let [config] = &code_blocks(&lines, "toml")[..] else { panic!("{lines}") };
    // Without certificates, on loopback addresses.
    let tls =
        "[tls]\ncertificate = \"coordinator.pem\"\nkey = \"coordinator.key\"\nclients = \"authority.pem\"\n";
    let local_values = [("/var/lib/weir/weir.redb", "weir.redb"), ("10.1.0.1:", "127.0.0.1:"), (tls, "")];
    let dir = TestDir::new();
    dir.write("serve.toml", &replace_parts(config, &local_values));
    let checked = dir.stdout_of("serve --check serve.toml");
    assert!(
        checked.contains("frankfurt to oregon: 1Gbit") && checked.contains("no error found"),
        "{checked}"
    );
}

#[test]
fn cluster_page_commands_set_up_certificates_and_run_a_coflow() {
    let test = "cluster_page_commands_set_up_certificates_and_run_a_coflow";
    let version_check = "import sys; sys.exit(sys.version_info < (3, 10))";
    if !runs_successfully("openssl", &["version"]) || !runs_successfully("python3", &["-c", version_check]) {
        eprintln!("{test} skips, since openssl or Python 3.10 is missing");
        return;
    }
    let dir = TestDir::new();
    let page = document("cluster.md");

    // Certificates: the commands of docs/security.md, with the last command repeated for other names.
    let security = document("security.md");
    let making_certificates =
        security.split("## Making certificates").nth(1).unwrap().split("\nThen").next().unwrap();
    let lines = indented_commands(making_certificates);
    let [authority, coordinator, host] =
        &lines.iter().filter(|line| line.starts_with("openssl")).collect::<Vec<_>>()[..]
    else {
        panic!("{lines:?}")
    };
    let certificate_command = |role: &str, name: &str| {
        replace_parts(host, &[("weir://agent/node-1", &format!("weir://{role}/{name}")), ("node-1", name)])
    };
    let all = [
        (*authority).clone(),
        replace_parts(coordinator, &[("DNS:weir.example,IP:192.0.2.1", "DNS:localhost")]),
        (*host).clone(),
        certificate_command("operator", "ann"),
        certificate_command("framework", "ads"),
    ];
    let openssl =
        Command::new("sh").args(["-ec", &all.join("\n")]).current_dir(dir.path(".")).output().unwrap();
    assert!(openssl.status.success(), "{}", String::from_utf8_lossy(&openssl.stderr));

    // The coordinator.
    let [config] = &code_blocks(&page, "toml")[..] else { panic!() };
    let local_values = [
        ("/var/lib/weir/weir.redb", "weir.redb"),
        ("/var/log/weir/audit.jsonl", "audit.jsonl"),
        ("0.0.0.0:7700", "127.0.0.1:0"),
        ("0.0.0.0:7701", "127.0.0.1:0"),
    ];
    dir.write("serve.toml", &replace_parts(config, &local_values));
    assert!(dir.stdout_of("serve --check serve.toml").contains("node-1: 10Gbit"));
    let coordinator_process = CoordinatorProcess::start(&dir.path("serve.toml"));
    let local = |address: &str| format!("localhost:{}", address.rsplit(':').next().unwrap());
    let (agents, api) = (local(&coordinator_process.agents_address), local(&coordinator_process.api_address));
    let status =
        indented_commands(&page).into_iter().find(|line| line.starts_with("weir ctl hosts")).unwrap();
    let status = replace_parts(&status, &[("weir.example:7701", &api)]);
    let is_present =
        || dir.stdout_of(&status["weir ".len()..]).lines().any(|line| line.starts_with("node-1  true"));
    assert!(!is_present());

    // The agent.
    let local_socket = dir.path("agent.sock");
    let credentials = "--certificate node-1.pem --key node-1.key --authority authority.pem";
    let run = format!("agent run --rate 10Gbit --coordinator {agents} {credentials} --socket agent.sock");
    let _agent = Process(dir.command(&run).stderr(Stdio::null()).spawn().unwrap());
    wait_for("a connected agent", is_present);

    // The coflow: its framework, its receiver and its sender.
    let [register, get, put, deregister] = &code_blocks(&page, "python")[..] else { panic!() };
    let python = |text: &str| {
        let mut command = Command::new("python3");
        command.args(["-B", "-c", text]).current_dir(dir.path(".")).stdout(Stdio::piped());
        command.env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python"));
        Process(command.spawn().unwrap())
    };
    let wait_for_success = |mut process: Process| {
        let mut text = String::new();
        process.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(process.0.wait().unwrap().success());
        text
    };
    let register = replace_parts(register, &[("weir.example:7701", &api)]);
    wait_for_success(python(&register));
    let port = TcpListener::bind("127.0.0.9:0").unwrap().local_addr().unwrap().port().to_string();
    let get = replace_parts(get, &[("0.0.0.0", "127.0.0.9"), ("7800", &port)]);
    let receiver = python(&get.replace(".read()", ".read()\nprint(len(data))"));
    // The sender does not retry a refused connection, so the test waits until the receiver listens.
    let listens = || {
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        table.contains(&format!(":{:04X} 00000000:0000 0A", port.parse::<u16>().unwrap()))
    };
    wait_for("a listening receiver", listens);
    let put = replace_parts(
        put,
        &[
            ("/run/weir/agent.sock", local_socket.to_str().unwrap()),
            ("\"node-2\", 7800", &format!("\"127.0.0.9\", {port}")),
        ],
    );
    wait_for_success(python(&put));
    assert_eq!(wait_for_success(receiver), format!("{}\n", 1 << 20));
    let coflows = status["weir ".len()..].replace("ctl hosts", "ctl coflows --format csv");
    wait_for("all bytes of the coflow", || {
        dir.stdout_of(&coflows).lines().any(|line| line.starts_with("first,ads,sort,completed,1,1,1048576"))
    });
    wait_for_success(python(&format!("{register}\n{deregister}")));
    assert!(!dir.stdout_of(&coflows).contains("first"));
}
