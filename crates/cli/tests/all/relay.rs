//! Tests of the options of `weir relay`.

use std::path::Path;
use std::process::Command;

use crate::certificates::Authority;

const OVERLAY: &str = "
    [[relays]]
    name = \"west\"
    address = \"10.1.0.2:7710\"
    networks = [\"10.1.0.0/16\"]
";

/// The output of a dry run, or its error.
fn dry_run(folder: &Path, options: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["relay", "run", "--dry-run", "--name", "west", "--overlay", "overlay.toml"])
        .args(options)
        .current_dir(folder)
        .output()
        .unwrap();
    let text = if output.status.success() { output.stdout } else { output.stderr };
    String::from_utf8(text).unwrap()
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
