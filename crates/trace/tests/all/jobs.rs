//! Files of jobs: contents, defaults and errors.

use std::path::Path;

use weir_trace::jobs::{Jobs, ModelRef, WorkloadRef, read, read_from};
use weir_trace::{SourceKind, TraceUnit};

const PREDEFINED: [&str; 3] = ["LR", "SVM", "Sort"];

const HEAD: &str = "weir-jobs = 1\nfabric = { kind = \"big-switch\", hosts = 4, rate = \"10Gbit\" }\n";

fn parse(text: &str) -> Result<Jobs, String> {
    read_from(text.as_bytes(), "jobs.toml", Path::new(""), &PREDEFINED).map_err(|error| error.to_string())
}

fn error_of(rest: &str) -> String {
    parse(&format!("{HEAD}{rest}")).unwrap_err()
}

#[test]
fn jobs_example_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/jobs.toml");
    let jobs = read(&path, &["LR", "PR", "SVM", "Sort"]).unwrap();
    let names: Vec<&str> = jobs.jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["LR-1", "Sort-2", "PR-3", "nightly", "SVM-5"]);
    let nightly = &jobs.jobs[3];
    assert_eq!((nightly.workload, nightly.start.get()), (WorkloadRef::InFile(0), 30.0));
    assert_eq!(nightly.servers, [2, 3, 6, 7, 10, 11]);
    assert_eq!(nightly.model, ModelRef::Profiled(WorkloadRef::InFile(0)));
    assert_eq!(jobs.workloads[0].stages.len(), 10, "five rounds of two");
    assert_eq!(jobs.workloads[0].stages[9].max_transfer_time.unwrap().get(), 8.0);
    assert_eq!(jobs.jobs[4].data_scale, 0.5);
    assert_eq!(jobs.jobs[0].servers.len(), 16);
}

#[test]
fn omitted_job_fields_have_defaults() {
    let jobs = parse(&format!("{HEAD}[[job]]\nworkload = \"SVM\"\nservers = \"*\"\n")).unwrap();
    let job = &jobs.jobs[0];
    assert_eq!(
        (job.name.as_str(), job.workload, job.data_scale, job.start.get()),
        ("SVM-1", WorkloadRef::Predefined(1), 1.0, 0.0)
    );
    assert_eq!(
        (job.servers.as_slice(), job.model),
        (&[0, 1, 2, 3][..], ModelRef::Profiled(WorkloadRef::Predefined(1)))
    );
    let other = "[[job]]\nworkload = \"LR\"\nservers = \"h0\"\nmodel = \"SVM\"\n\
                 [[job]]\nworkload = \"LR\"\nservers = [\"h1\"]\n";
    let jobs = parse(&format!("{HEAD}{other}")).unwrap();
    assert_eq!(jobs.jobs[0].model, ModelRef::Profiled(WorkloadRef::Predefined(1)));
    assert_eq!(
        (jobs.jobs[1].model, jobs.jobs[1].name.as_str()),
        (ModelRef::Profiled(WorkloadRef::Predefined(0)), "LR-2")
    );
}

#[test]
fn job_errors_name_line_field_and_value() {
    let job = |rest: &str| error_of(&format!("[[job]]\nworkload = \"LR\"\nservers = \"*\"\n{rest}"));
    let error_of_workload = |rest: &str| {
        error_of(&format!("[workload.own]\n{rest}\n[[job]]\nworkload = \"own\"\nservers = \"*\"\n"))
    };
    let cases = [
        (error_of(""), "jobs.toml:1: field `job`: `nothing`: expected a list of tables"),
        (error_of("job = []\n"), "jobs.toml:3: field `job`: `[]`: expected 1 to 1000 jobs"),
        (error_of("[[job]]\nservers = \"*\"\n"), "field `job 1 workload`: `nothing`"),
        (
            error_of("[[job]]\nworkload = \"lr\"\nservers = \"*\"\n"),
            "jobs.toml:4: field `job 1 workload`: `\"lr\"`: expected one of LR, SVM, Sort",
        ),
        (error_of("[[job]]\nworkload = \"LR\"\nservers = [\"h9\"]\n"), "field `job 1 servers`: `\"h9\"`"),
        (
            error_of("[[job]]\nworkload = \"LR\"\nservers = []\n"),
            "field `job 1 servers`: `[]`: expected at least one",
        ),
        (
            error_of("[[job]]\nworkload = \"LR\"\nservers = [\"h1\", \"h2\", \"h1\"]\n"),
            "field `job 1 servers`: `h1`: expected each host once",
        ),
        (job("start = 3\n"), "jobs.toml:6: field `job 1 start`: `3`: expected a time with a unit"),
        (job("start = \"366d\"\n"), "field `job 1 start`"),
        (job("start = \"9000h\"\n"), "field `job 1 start`"),
        (job("start = \"-1s\"\n"), "field `job 1 start`"),
        (job("data = 0\n"), "field `job 1 data`: `0`: expected a number from 1e-6 to 1e6"),
        (job("data = nan\n"), "field `job 1 data`: `nan`"),
        (job("data = inf\n"), "field `job 1 data`: `inf`"),
        (job("model = \"none\"\n"), "field `job 1 model`: `none`: expected one of LR, SVM, Sort"),
        (job("name = \"\"\n"), "field `job 1 name`: `\"\"`: expected 1 to 100 letters"),
        (job("name = \"a b\"\n"), "field `job 1 name`: `\"a b\"`"),
        (job("name = 7\n"), "field `job 1 name`: `7`"),
        (job("colour = 1\n"), "field `job 1 key`: `colour`: expected one of workload, name, servers"),
        (
            job("name = \"x\"\n[[job]]\nname = \"x\"\nworkload = \"LR\"\nservers = \"*\"\n"),
            "jobs.toml:8: field `job 2 name`: `x`: expected a name other than that of job 1",
        ),
        (error_of_workload(""), "field `workload `own` stages`: `nothing`"),
        (error_of_workload("stages = []"), "field `workload `own` stages`: `[]`: expected 1 to 10000 stages"),
        (
            error_of_workload("rounds = 0\nstages = [{ compute = \"1s\" }]"),
            "field `workload `own` rounds`: `0`: expected a whole number, at least 1",
        ),
        (
            error_of_workload("rounds = 4294967295\nstages = [{}]"),
            "field `workload `own` stages`: `[{}]`: expected 1 to 10000",
        ),
        (
            error_of_workload("stages = [{ bytes = 5 }]"),
            "field `workload `own` stage 1 bytes`: `5`: expected a size with a unit",
        ),
        (
            error_of_workload("stages = [{ compute = \"1s\" }, { bits = 5 }]"),
            "field `workload `own` stage 2 key`: `bits`",
        ),
        (
            error_of(
                "[workload.LR]\nstages = [{ compute = \"1s\" }]\n[[job]]\nworkload = \"LR\"\nservers = \"*\"\n",
            ),
            "field `workload `LR` name`: `LR`: expected a name other than those of the predefined workloads",
        ),
        (
            error_of(
                "[workload.own]\nstages = [{ compute = \"1s\" }]\n[[job]]\nworkload = \"own\"\nservers = \"*\"\ndata = 2\n",
            ),
            "field `job 1 data`: `2`: expected no `data` for a workload that the file defines",
        ),
        (
            error_of("sensitivity = \"nowhere.toml\"\n[[job]]\nworkload = \"LR\"\nservers = \"*\"\n"),
            "nowhere.toml",
        ),
        (parse("weir-jobs = 2\n").unwrap_err(), "jobs.toml:1: field `weir-jobs`: `2`: expected version 1"),
    ];
    for (found, expected) in cases {
        assert!(found.contains(expected), "{found}\nlacks: {expected}");
    }
}

#[test]
fn hosts_need_one_cable() {
    let text = "weir-jobs = 1\n[fabric]\nkind = \"links\"\nhosts = [\"a\", \"b\"]\n\
                switch = [{ name = \"s\", tier = 1 }, { name = \"t\", tier = 1 }]\n\
                link = [{ ends = [\"a\", \"s\"], rate = \"1Gbit\" }, { ends = [\"a\", \"t\"], rate = \"1Gbit\" }, \
                { ends = [\"b\", \"s\"], rate = \"1Gbit\" }, { ends = [\"s\", \"t\"], rate = \"1Gbit\" }]\n\
                [[job]]\nworkload = \"LR\"\nservers = \"*\"\n";
    let found = parse(text).unwrap_err();
    assert!(found.contains("field `job 1 servers`: `a`: expected hosts with one cable"), "{found}");
}

#[test]
fn fabric_of_jobs_can_have_events() {
    let text = "weir-jobs = 1\nfabric = { kind = \"big-switch\", hosts = 2, rate = \"1Gbit\", \
                event = [{ at = \"1s\", cable = [\"h0\", \"switch\"], change = \"down\" }] }\n\
                [[job]]\nworkload = \"LR\"\nservers = \"*\"\n";
    assert_eq!(parse(text).unwrap().cable_events.len(), 1);
}

#[test]
fn sources_are_told_from_each_other_by_their_version() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    assert_eq!(SourceKind::detect(&folder.join("jobs.toml")), SourceKind::Jobs);
    assert_eq!(SourceKind::detect(&folder.join("netshare-5.3.toml")), SourceKind::Services);
    for other in ["demo.txt", "dag.weir", "missing.toml", "."] {
        assert_eq!(SourceKind::detect(&folder.join(other)), SourceKind::Trace, "{other}");
    }
    let limits = weir_trace::Limits::default();
    let from_pipe = weir_trace::read_from(HEAD.as_bytes(), "pipe", TraceUnit::MB, &limits).unwrap_err();
    assert!(from_pipe.to_string().contains("jobs need a file, not a pipe"), "{from_pipe}");
}
