//! Doing a paper's evaluation again, on a trace that is made up.

use crate::common::Place;

const COMMAND: &str = "reproduce saath --trace made.txt --no-timing";

fn made() -> Place {
    let place = Place::new();
    place.print(
        "trace generate --ports 12 --coflows 40 --seed 4 --mappers uniform:1,6 --reducers uniform:1,6 \
         --skew spread:0.5 --arrival poisson:50ms --out made.txt",
    );
    place
}

#[test]
fn the_document_has_every_figure_and_is_the_same_again() {
    let place = made();
    let text = place.print(COMMAND);
    let sections = [
        "# Saath, published and measured",
        "## In short",
        "## Experiments",
        "### One flow at a time",
        "### The order of flows",
        "### Flows that end out of sync",
        "### What explains what",
        "### What the text says without numbers",
        "## Fig. 2:",
        "## Fig. 3:",
        "## Fig. 9:",
        "## Fig. 10:",
        "## Fig. 11:",
        "## Fig. 13:",
        "## Fig. 14:",
        "### (a)",
        "### (b)",
        "### (c)",
        "### (d)",
        "### (e)",
        "## Fig. 15",
        "## Section 7.3:",
    ];
    let mut from = 0;
    for section in sections {
        let line = format!("\n{section}");
        let at = if from == 0 { text.find(section) } else { text[from..].find(&line).map(|at| at + from) };
        from = at.unwrap_or_else(|| panic!("no {section} after byte {from}")) + 1;
    }
    assert_eq!(place.print(&format!("{COMMAND} --jobs 3")), text, "the number of jobs shows");
    assert_eq!(place.print(&format!("{COMMAND} --out made.md")), "");
    assert_eq!(place.read("made.md"), text);
}

#[test]
fn services_and_applications_add_what_they_are_for() {
    let text = Place::new().print("reproduce composition --seeds 1 --jobs 2 --quiet");
    assert!(text.starts_with("# What each level of a policy tree adds\n"));
    for level in [
        "| services | nobody is short",
        "| applications | the most sensitive",
        "| applications | services keep",
    ] {
        let line = text.lines().find(|line| line.starts_with(level)).unwrap_or_else(|| panic!("no {level}"));
        assert!(line.ends_with("| yes |"), "{line}");
    }
}

#[test]
fn tables_are_whole_and_have_numbers() {
    let text = made().print(COMMAND);
    let mut columns = 0;
    for line in text.lines() {
        let here = if line.starts_with('|') { line.matches('|').count() } else { 0 };
        assert!(here == 0 || columns == 0 || here == columns, "{line}");
        columns = here;
    }
    for wrong in ["NaN", "| inf", "(inf", "\n\n\n"] {
        assert!(!text.contains(wrong), "{wrong:?}");
    }
    for claim in ["1.53", "4.50", "154", "3.05", "3.83", "39.0 %", "71.0 %", "570", "2850"] {
        assert!(text.contains(claim), "{claim}");
    }
}

#[test]
fn what_cannot_be_reproduced_is_refused() {
    let place = made();
    let ran = place.run("reproduce saath --trace none.txt --out made.md");
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""));
    assert!(ran.err.contains("none.txt: cannot be read"), "{}", ran.err);
    assert!(!place.files().contains(&"made.md".to_owned()));
    place.write("none.txt", "3 0\n");
    assert!(place.run("reproduce saath --trace none.txt").err.contains("expected a trace with coflows"));
    let ran = place.run("reproduce saath --trace made.txt --out made.txt");
    assert!(ran.err.contains("expected another file than that of the input"), "{}", ran.err);
}
