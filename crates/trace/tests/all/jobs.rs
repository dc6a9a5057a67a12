//! Files of jobs: contents, defaults and errors.

use std::path::Path;

use crate::error_cases::check_error_cases;
use weir_trace::jobs::{Jobs, ModelRef, WorkloadRef, read, read_from};
use weir_trace::{SourceKind, TraceOptions};

const PREDEFINED: [&str; 3] = ["LR", "SVM", "Sort"];

const HEAD: &str = "weir-jobs = 1\nfabric = { kind = \"big-switch\", hosts = 4, rate = \"10Gbit\" }\n";

fn parse(text: &str) -> Result<Jobs, String> {
    read_from(text.as_bytes(), "jobs.toml", Path::new(""), &PREDEFINED).map_err(|error| error.to_string())
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
    let valid = format!("{HEAD}[[job]]\nworkload = \"LR\"\nservers = \"*\"\n");
    check_error_cases("jobs", &valid, parse);
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
    let from_pipe =
        weir_trace::read_from(HEAD.as_bytes(), "pipe", &TraceOptions { limits, ..TraceOptions::default() })
            .unwrap_err();
    assert!(from_pipe.to_string().contains("jobs need a file, not a pipe"), "{from_pipe}");
}
