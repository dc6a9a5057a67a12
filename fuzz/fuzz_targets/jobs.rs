//! The reader of jobs does not panic on any input, and accepted jobs are consistent.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use weir_trace::jobs::{MAX_STAGES, WorkloadRef, read_from};

fuzz_target!(|input: &[u8]| {
    // Files that the input refers to do not exist.
    let Ok(read) = read_from(input, "input", Path::new("no/such/folder"), &["LR", "PR"]) else { return };
    assert!(
        !read.jobs.is_empty() && read.workloads.iter().all(|workload| workload.stages.len() <= MAX_STAGES)
    );
    for job in read.jobs {
        assert!(job.servers.iter().all(|server| (*server as usize) < read.topology.hosts()));
        assert!(!matches!(job.workload, WorkloadRef::InFile(at) if at >= read.workloads.len()));
    }
});
