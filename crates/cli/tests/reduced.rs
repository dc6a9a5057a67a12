//! A build without some features says which commands it lacks.

#![cfg(any(not(feature = "docs"), not(feature = "live"), not(feature = "papers")))]

mod common;

use common::Place;

/// Commands with arguments that a full build accepts, by the feature that they need.
const COMMANDS: &[(&str, &[&str])] = &[
    #[cfg(not(feature = "docs"))]
    ("docs", &["completions bash", "man", "reference"]),
    #[cfg(not(feature = "live"))]
    ("live", &["agent run --host 1", "ctl status", "profile -- true", "serve", "testbed check"]),
    #[cfg(not(feature = "papers"))]
    ("papers", &["reproduce netshare"]),
    #[cfg(all(feature = "papers", not(feature = "live")))]
    ("live", &["reproduce live"]),
];

#[test]
fn missing_commands_name_their_feature() {
    let place = Place::new();
    for (feature, lines) in COMMANDS {
        for line in *lines {
            let ran = place.run(line);
            assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "weir {line}");
            let said = format!("built without `{feature}`; run `make install`\n");
            assert!(ran.err.starts_with("weir: ") && ran.err.ends_with(&said), "weir {line}: {}", ran.err);
        }
    }
}

#[test]
fn help_lists_missing_commands() {
    let place = Place::new();
    for help in ["-h", "--help"] {
        let help = place.print(help);
        let words: Vec<&str> = help.split(|c: char| !c.is_alphanumeric()).collect();
        for (feature, lines) in COMMANDS {
            assert!(help.contains(&format!("Built without `{feature}`")), "{help}");
            for line in *lines {
                let command = line.split(' ').next().unwrap();
                assert!(words.contains(&command), "{line}: {help}");
            }
        }
    }
}

#[test]
fn the_simulator_works() {
    let found = Place::new().json("compare trace.txt --policies saath,fair --format json");
    assert_eq!(found.as_array().unwrap().len(), 2);
}
