//! Tests `weir reproduce` on a generated trace.

use crate::common::TestDir;

const COMMAND: &str = "reproduce saath --trace made.txt --seeds 1 --no-timing";

fn test_dir_with_trace() -> TestDir {
    let dir = TestDir::new();
    dir.stdout_of(
        "trace generate --ports 12 --coflows 40 --seed 4 --mappers uniform:1,6 --reducers uniform:1,6 \
         --skew spread:0.5 --arrival poisson:50ms --out made.txt",
    );
    dir
}

#[test]
fn saath_page_has_its_sections_in_order_and_the_same_bytes_again() {
    let dir = test_dir_with_trace();
    let text = dir.stdout_of(COMMAND);
    let sections: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
    assert_eq!(
        sections,
        [
            "# Saath, published and measured",
            "## Summary",
            "## Conditions",
            "## Published numbers",
            "## Assumptions that change a result most",
            "## Fig. 2 and 13: coflows out of sync",
            "## Fig. 3: clairvoyant orders over Aalo",
            "## Fig. 9 and 15: speedup of Saath",
            "## Fig. 10 and 11: the parts of Saath",
            "## Fig. 14: sensitivity",
            "## Estimated flow lengths (4.3)",
        ]
    );
    assert_eq!(dir.stdout_of(&format!("{COMMAND} --jobs 3")), text, "the page depends on --jobs");
    assert_eq!(dir.stdout_of(&format!("{COMMAND} --out made.md")), "");
    // The page in a file has pictures in addition.
    let page = dir.read("made.md");
    let pictures: Vec<&str> =
        page.split("](figures/").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    assert_eq!(
        pictures,
        [
            "saath-speedups.svg",
            "saath-shares.svg",
            "saath-deviations.svg",
            "saath-distribution.svg",
            "saath-sensitivity.svg"
        ]
    );
    let is_added = |line: &&str| line.starts_with("![") || line.starts_with('*');
    let lines = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.is_empty() && !is_added(line)).map(str::to_owned).collect()
    };
    assert_eq!(lines(&page), lines(&text));
    let drawn = pictures.iter().map(|name| dir.read(&format!("figures/{name}"))).collect::<Vec<String>>();
    for svg in &drawn {
        assert!(svg.starts_with("<svg ") && svg.contains("published"), "{svg}");
    }
    dir.stdout_of(&format!("{COMMAND} --out made.md --jobs 3"));
    let again = pictures.iter().map(|name| dir.read(&format!("figures/{name}"))).collect::<Vec<String>>();
    assert_eq!(drawn, again);
}

#[test]
fn pages_on_the_standard_output_have_no_pictures() {
    let dir = test_dir_with_trace();
    let text = dir.stdout_of(COMMAND);
    assert!(!text.contains("figures/"), "{text}");
    assert_eq!(dir.stdout_of(&format!("{COMMAND} --out -")), text);
    assert!(!dir.files().contains(&"figures".to_owned()));
}

#[test]
fn saath_timings_are_the_last_section_and_the_only_difference() {
    let dir = test_dir_with_trace();
    let untimed = dir.stdout_of(COMMAND);
    let timed = dir.stdout_of(&COMMAND.replace(" --no-timing", ""));
    let timings = timed.strip_prefix(&untimed).expect("the page starts with the page without timings");
    assert!(timings.starts_with("\n## Timings\n"), "{timings}");
    assert_eq!(timings.matches("\n## ").count(), 1, "{timings}");
    for published in ["570", "2850", "100", "200"] {
        assert!(timings.contains(&format!("| {published} |")), "{published}");
    }
}

/// A page of `docs/results`. `make results-check` compares the page with what the code computes.
fn page_of_results(name: &str) -> String {
    let path = format!("{}/../../docs/results/{name}.md", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn policy_tree_levels_keep_shares_and_reduce_slowdowns() {
    let text = page_of_results("composition");
    assert!(text.starts_with("# What each level of a policy tree adds\n"));
    // The values without and with a level: the fraction of services below their shares, and the slowdown of
    // application-1.
    let change = |level: &str| {
        let start = format!("| {level} |");
        let row = text.lines().rev().find(|line| line.starts_with(&start)).expect("a row for each level");
        let cell = |index: usize| {
            let (before, after) = row.split('|').nth(index).unwrap().trim().split_once(" to ").unwrap();
            [before, after].map(|value| value.trim_end_matches(" %").parse::<f64>().unwrap())
        };
        (cell(2), cell(6))
    };
    let ([without, with], _) = change("services");
    assert!(without > 0.0 && with == 0.0, "services: {without} % to {with} %");
    let ([_, below], [before, after]) = change("applications in services");
    assert!(below == 0.0 && after < before, "applications: {below} %, slowdown {before} to {after}");
}

#[test]
fn saath_tables_are_complete_and_have_the_published_numbers() {
    let text = test_dir_with_trace().stdout_of(COMMAND);
    let mut columns = 0;
    for line in text.lines() {
        let line_columns = if line.starts_with('|') { line.matches('|').count() } else { 0 };
        assert!(line_columns == 0 || columns == 0 || line_columns == columns, "{line}");
        columns = line_columns;
    }
    for wrong in ["NaN", "| inf", "(inf", "\n\n\n"] {
        assert!(!text.contains(wrong), "{wrong:?}");
    }
    let numbers: Vec<&str> = text
        .lines()
        .skip_while(|line| *line != "## Published numbers")
        .skip_while(|line| !line.starts_with("|---"))
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.split(" | ").nth(2).expect("a column of published numbers"))
        .collect();
    assert_eq!(
        numbers,
        [
            "23.0 %", "50.0 %", "27.0 %", "12.0 %", "39.0 %", "27.0 %", "50.0 %", "40.0 %", "20.0 %",
            "71.0 %", "47.0 %", "1.53", "4.50", "1.00", "154", "1.13", "3.05", "1.30", "3.83", "1.90",
            "1.50", "1.88", "1.43", "0.09000", "12.2", "70.0 %",
        ]
    );
}

#[test]
fn saath_page_without_a_usable_trace_is_refused() {
    let dir = test_dir_with_trace();
    let output = dir.run("reproduce saath --trace none.txt --out made.md");
    assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""));
    assert!(output.stderr.contains("none.txt: cannot be read"), "{}", output.stderr);
    assert!(!dir.files().contains(&"made.md".to_owned()));
    dir.write("none.txt", "3 0\n");
    assert!(dir.run("reproduce saath --trace none.txt").stderr.contains("expected a trace with coflows"));
    let output = dir.run("reproduce saath --trace made.txt --out made.txt");
    assert!(output.stderr.contains("expected another file than that of the input"), "{}", output.stderr);
}

#[test]
fn fabrics_page_compares_links_with_ports() {
    let text = page_of_results("fabrics");
    assert!(text.starts_with("# Decisions over links and over ports\n"));
    // Over oversubscribed links, an order by size and greedy rates gain most from the knowledge of links.
    let row = text.lines().find(|line| line.starts_with("| `sincronia` |")).expect("a row for each policy");
    let mean =
        |cell: usize| row.split('|').nth(cell).unwrap().split('±').next().unwrap().trim().parse::<f64>();
    assert!(mean(4).unwrap() > 1.2 && mean(5).unwrap() > mean(2).unwrap(), "{row}");
}

#[test]
fn weir_page_can_be_made_of_some_families_and_other_workloads() {
    let dir = test_dir_with_trace();
    let command = "reproduce weir --only SHIFTED --seeds 2 --first-seed 7";
    let text = dir.stdout_of(command);
    let sections: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
    assert_eq!(
        sections,
        [
            "# Weir's own policy",
            "## Summary",
            "## Conditions",
            "## Where `weir` is worse",
            "## Goals",
            "## Policies",
            "### Shifted jobs, interval 0",
            "### Shifted jobs, interval 10 us",
            "### Shifted jobs, interval 8 ms",
        ]
    );
    // Without `--out`: a part of the page must not replace all of it.
    let made_by = "Made by `weir reproduce weir --only \"SHIFTED\" --seeds 2 --first-seed 7`.";
    assert!(text.contains(made_by), "{text}");
    assert!(text.contains("the seeds 7 to 8."), "{text}");
    assert_eq!(dir.stdout_of(&format!("{command} --jobs 3")), text);
    let tables = |text: &str| text[text.find("## Policies").unwrap()..].to_owned();
    assert_ne!(tables(&dir.stdout_of(&command.replace(" 7", " 8"))), tables(&text));
}

#[test]
fn weir_page_of_the_trace_needs_a_trace_and_other_families_need_none() {
    let dir = test_dir_with_trace();
    let without = dir.run("reproduce weir --only arrivals --seeds 2");
    assert_eq!((without.code, without.stdout.as_str()), (Some(2), ""));
    assert!(without.stderr.contains("`Trace, arrivals x1` needs a trace"), "{}", without.stderr);
    let text = dir.stdout_of("reproduce weir --only x2 --trace made.txt --seeds 2");
    assert!(text.contains("Coflows of made.txt arrive 2 times as fast."), "{text}");
    let unknown = dir.run("reproduce weir --only none --seeds 2");
    assert_eq!(unknown.code, Some(2));
    assert!(
        unknown.stderr.contains("`none`") && unknown.stderr.contains("; Narrow coflows; "),
        "{}",
        unknown.stderr
    );
}
