//! Tests `weir relay`.

use std::process::Command;

#[test]
fn relay_serves_other_hosts_over_plain_text_only_with_insecure() {
    let run = |arguments: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args("relay run --dry-run --name west --coordinator weir.example:7700".split(' '))
            .args(arguments.split_whitespace())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (output.status.code(), text)
    };
    let certificate = "--certificate west.pem --key west.key --authority authority.pem";
    let programs = "--programs 10.0.0.1:7711";
    for (arguments, other_relays) in [
        (certificate.to_owned(), "0.0.0.0:7710, TLS"),
        ("--relays 127.0.0.1:7710".to_owned(), "127.0.0.1:7710, plain text"),
        (format!("{programs} --insecure"), "0.0.0.0:7710, plain text"),
        // A relay that serves the hosts of its region, with TLS to other regions.
        (format!("{programs} --insecure {certificate}"), "0.0.0.0:7710, TLS"),
    ] {
        let (code, text) = run(&arguments);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains(&format!("other relays        {other_relays}\n")), "{text}");
    }
    for (arguments, option) in [
        (String::new(), "--relays: 0.0.0.0:7710"),
        (programs.to_owned(), "--programs: 10.0.0.1:7711"),
        (format!("{programs} {certificate}"), "--programs: 10.0.0.1:7711"),
    ] {
        let (code, text) = run(&arguments);
        assert_eq!(code, Some(2), "{text}");
        assert!(
            text.contains(&format!("{option} can be reached from other hosts over plain text")),
            "{text}"
        );
    }
}
