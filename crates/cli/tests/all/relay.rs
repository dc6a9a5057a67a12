//! Tests of the options of `weir relay`.

use std::path::Path;
use std::process::Command;

use weir_tls::TlsFiles;

use crate::certificates::Authority;

const OVERLAY: &str = "
    [[relays]]
    name = \"west\"
    address = \"10.1.0.2:7710\"
    networks = [\"10.1.0.0/16\"]
";

/// The output of a dry run, or its error.
fn dry_run(folder: &Path, options: &[&str]) -> String {
    dry_run_with_code(folder, options).1
}

fn dry_run_with_code(folder: &Path, options: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["relay", "run", "--dry-run", "--name", "west", "--overlay", "overlay.toml"])
        .args(options)
        .current_dir(folder)
        .output()
        .unwrap();
    let text = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn certificate_decides_where_a_relay_uses_tls() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("overlay.toml"), OVERLAY).unwrap();
    let authority = Authority::new("own");
    let run = |name: &str, options: &[&str]| {
        let files = authority.write_files(folder.path(), name);
        let files = [&files.certificate, &files.key, &files.clients].map(|path| path.to_str().unwrap());
        let credentials = ["--certificate", files[0], "--key", files[1], "--authority", files[2]];
        dry_run(folder.path(), &[&credentials, options].concat())
    };
    let remote = ["--programs", "10.1.0.2:7711"];
    let text = run("weir://relay/west", &remote);
    assert!(text.contains("10.1.0.2:7711, TLS, and plain text inside this host\n"), "{text}");
    assert!(text.contains("10.1.0.2:7710, TLS\n"), "{text}");
    let text = run("weir://relay/west", &["--tls-local"]);
    assert!(text.contains("127.0.0.1:7711, TLS\n"), "{text}");
    let text = run("weir://relay/west", &["--insecure"]);
    assert!(text.contains("127.0.0.1:7711, plain text\n") && text.contains("10.1.0.2:7710, TLS\n"), "{text}");
    let text = run("weir://relay/east", &[]);
    assert!(text.contains("has the name weir://relay/east; expected weir://relay/west"), "{text}");

    let text = dry_run(folder.path(), &remote);
    assert!(
        text.contains("--relays: 10.1.0.2:7710 can be reached from other hosts over plain text"),
        "{text}"
    );
    let text = dry_run(folder.path(), &["--relays", "127.0.0.1:7710", "--programs", "10.1.0.2:7711"]);
    assert!(text.contains("--programs: 10.1.0.2:7711 can be reached"), "{text}");
    let text = dry_run(folder.path(), &["--insecure"]);
    assert!(text.contains("127.0.0.1:7711, plain text\n"), "{text}");
}

#[test]
fn useless_options_are_refused_with_their_value() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("overlay.toml"), OVERLAY.replace("10.1.0.2:", "127.1.0.2:")).unwrap();
    for (options, error) in [
        (
            "--memory 0MB",
            "--memory: 0B is too little; expected at least 1MiB, since each flow needs 512 KiB of one half",
        ),
        ("--memory 100kB", "--memory: 100kB is too little; expected at least 1MiB"),
        (
            "--programs 127.1.0.2:7710",
            "--programs: 127.1.0.2:7710 is also the address of --relays (127.1.0.2:7710); expected another port or IP address",
        ),
        (
            "--insecure --relays 0.0.0.0:7711",
            "--programs: 127.0.0.1:7711 is also the address of --relays (0.0.0.0:7711); expected another port",
        ),
        (
            "--metrics 127.0.0.1:7711",
            "--metrics: 127.0.0.1:7711 is also the address of --programs (127.0.0.1:7711); expected another port",
        ),
        (
            "--congestion-control vegas9",
            "--congestion-control: the kernel has no such congestion control (`vegas9`); expected a name such as cubic or \
             bbr; help: load its module",
        ),
    ] {
        let options: Vec<&str> = options.split(' ').collect();
        let (code, text) = dry_run_with_code(folder.path(), &options);
        assert_eq!(code, Some(2), "{options:?}: {text}");
        assert!(text.starts_with(&format!("weir: {error}")), "{text}");
    }
    let accepted = "--memory 1MiB --programs 127.0.0.1:0 --metrics 127.0.0.1:0 --congestion-control reno";
    let text = dry_run(folder.path(), &accepted.split(' ').collect::<Vec<_>>());
    assert!(text.contains("memory              1 MiB\n"), "{text}");
    assert!(text.contains("overlay             1 relay, 0 coflows, 0 rules\n"), "{text}");
    let text = dry_run(folder.path(), &["--memory", "1.5GB"]);
    assert!(text.contains("memory              1.500 GB\n"), "{text}");
}

#[test]
fn expired_and_foreign_certificates_are_refused_by_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("overlay.toml"), OVERLAY).unwrap();
    let (authority, other) = (Authority::new("own"), Authority::new("other"));
    let run = |files: &TlsFiles, last: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["relay", "run", "--name", "west", "--overlay", "overlay.toml", last])
            .args([Path::new("--certificate"), &files.certificate, Path::new("--key"), &files.key])
            .args([Path::new("--authority"), &files.clients])
            .current_dir(folder.path())
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let expired = authority.write_expired_files(folder.path(), "weir://relay/west");
    // systemd starts the relay again after an exit with 1, but not after 2.
    for (last, expected_code) in [("--dry-run", 2), ("--log=text", 1)] {
        let (code, text) = run(&expired, last);
        assert_eq!(code, Some(expected_code), "{text}");
        let path = expired.certificate.display();
        assert!(
            text.contains(&format!("{path}: the certificate has expired; expected one that is valid now")),
            "{text}"
        );
    }
    let foreign = other.write_files_that_trust(&authority, folder.path(), "weir://relay/west");
    for last in ["--dry-run", "--log=text"] {
        let (code, text) = run(&foreign, last);
        assert_eq!(code, Some(2), "{text}");
        let (path, authorities) = (foreign.certificate.display(), foreign.clients.display());
        assert!(
            text.contains(&format!("{path}: no authority in {authorities} has signed the certificate")),
            "{text}"
        );
    }
}

#[test]
fn taken_addresses_name_their_option() {
    let folder = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap();
    std::fs::write(folder.path().join("overlay.toml"), OVERLAY.replace("10.1.0.2:7710", &taken.to_string()))
        .unwrap();
    let run = |options: &[&str]| {
        let output = Command::new("timeout")
            .args([
                "20",
                env!("CARGO_BIN_EXE_weir"),
                "relay",
                "run",
                "--name",
                "west",
                "--overlay",
                "overlay.toml",
            ])
            .args(options)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let text = run(&["--programs", "127.0.0.1:0"]);
    assert!(
        text.contains(&format!("weir: --relays: {taken} (from overlay.toml): cannot listen: ")),
        "{text}"
    );
    let taken = taken.to_string();
    for (free, option) in [("--metrics", "--programs"), ("--programs", "--metrics")] {
        let text = run(&["--relays", "127.0.0.1:0", free, "127.0.0.1:0", option, &taken]);
        assert!(text.contains(&format!("weir: {option}: {taken}: cannot listen: ")), "{text}");
    }
}

/// Runs a command in a folder: its exit code, and its standard error.
fn run_in(folder: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(args).current_dir(folder).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Runs `weir serve --check` of a configuration with these files.
fn check_serve(folder: &Path, files: &TlsFiles) -> (Option<i32>, String) {
    let [certificate, key, clients] =
        [&files.certificate, &files.key, &files.clients].map(|file| file.display());
    let text = format!(
        "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"saath\"\n[listen]\nagents = \"10.0.0.1:7700\"\n\
         api = \"10.0.0.1:7701\"\n[host]\na = \"1Gbit\"\n[tls]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n\
         clients = \"{clients}\"\n"
    );
    std::fs::write(folder.join("serve.toml"), text).unwrap();
    run_in(folder, &["serve", "--check", "serve.toml"])
}

#[test]
fn ctl_and_serve_check_name_their_expired_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new("own"), Authority::new("other"));
    for (files, is_expired) in [
        (authority.write_expired_files(folder.path(), "weir://operator/ann"), true),
        (authority.write_expired_files_that_trust(&other, folder.path(), "weir://operator/eve"), true),
        (authority.write_files(folder.path(), "weir://operator/bob"), false),
    ] {
        let [certificate, key, clients] =
            [&files.certificate, &files.key, &files.clients].map(|file| file.to_str().unwrap());
        let message =
            format!("{certificate}: the certificate has expired; expected one that is valid now; help: ");
        let (code, text) = check_serve(folder.path(), &files);
        assert_eq!(
            (code, text.contains(&message)),
            (Some(if is_expired { 2 } else { 0 }), is_expired),
            "{text}"
        );
        // No coordinator listens there.
        let address = ["ctl", "hosts", "--coordinator", "127.0.0.1:1"];
        let files = ["--certificate", certificate, "--key", key, "--authority", clients];
        let (code, text) = run_in(folder.path(), &[&address[..], &files].concat());
        assert!(code != Some(0) && text.contains(&message) == is_expired, "{text}");
    }
}

#[test]
fn serve_check_refuses_files_without_which_it_cannot_start() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("own");
    let files = authority.write_files(folder.path(), "weir://operator/ann");
    let other = authority.write_files(folder.path(), "weir://operator/bob");
    let missing = folder.path().join("missing.pem");
    let cases = [
        (TlsFiles { certificate: missing.clone(), ..files.clone() }, "missing.pem: cannot be used"),
        (TlsFiles { key: missing.clone(), ..files.clone() }, "missing.pem: cannot be used"),
        (TlsFiles { clients: missing, ..files.clone() }, "missing.pem: cannot be used"),
        (TlsFiles { key: files.certificate.clone(), ..files.clone() }, "expected a private key in PEM"),
        (TlsFiles { key: other.key, ..files }, "cannot be used: keys may not be consistent"),
    ];
    for (files, expected) in cases {
        let (code, text) = check_serve(folder.path(), &files);
        assert!(code == Some(2) && text.contains(expected), "{expected}: {text}");
    }
}
