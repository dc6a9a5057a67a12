//! Formats of other programs: files of the kinds that their users have, and the workloads that they are.

use std::path::Path;

use crate::common::read_trace;
use crate::error_cases::check_error_cases;
use weir_core::units::Time;
use weir_trace::{Format, InputFormat, Trace, TraceOptions, TraceUnit, format, read, read_from};

fn read_file(name: &str, format: Option<InputFormat>) -> Trace {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import").join(name);
    let shift_step = Time::new(8e-3);
    read(&path, &TraceOptions { format, shift_step, ..TraceOptions::default() }).unwrap()
}

fn columns(text: &str) -> InputFormat {
    InputFormat::Flows(Box::new(text.parse().unwrap()))
}

/// The ports, bytes and delay of a flow.
type Flow = (u32, u32, f64, f64);

/// Each coflow as its id, arrival in seconds, parents and flows.
fn coflows(trace: &Trace) -> Vec<(u64, f64, Vec<usize>, Vec<Flow>)> {
    let flows = |coflow: &weir_core::model::CoflowSpec| {
        coflow.flows.iter().map(|f| (f.src, f.dst, f.bytes.get(), f.data_delay.get())).collect()
    };
    let coflow = |c: &weir_core::model::CoflowSpec| (c.id, c.arrival.get(), c.parents.clone(), flows(c));
    trace.workload.coflows.iter().map(coflow).collect()
}

#[test]
fn sincronia_has_each_flow() {
    let trace = read_file("sincronia.txt", None);
    assert_eq!((trace.format, trace.workload.ports), (Format::Sincronia(TraceUnit::MB), 4));
    assert_eq!(
        coflows(&trace),
        [
            (0, 0.0, vec![], vec![(0, 2, 10e6, 0.0), (0, 3, 30e6, 0.0), (1, 2, 5e6, 0.0)]),
            (1, 0.04, vec![], vec![(1, 3, 8e6, 0.0)]),
            (2, 0.09, vec![], vec![(3, 0, 4e6, 0.0), (3, 1, 4e6, 0.0)]),
        ]
    );
    // A flow has as many fields as a coflow of one mapper and one reducer in the public format.
    let single = read_file("sincronia-single-flows.txt", None);
    assert_eq!(single.format, Format::Sincronia(TraceUnit::MB));
    assert_eq!(coflows(&single)[0], (0, 0.008, vec![], vec![(3, 1, 2e6, 0.0)]));
}

#[test]
fn sunflow_splits_reducers_over_mappers() {
    let trace = read_file("sunflow.txt", None);
    assert_eq!((trace.format, trace.workload.ports), (Format::Sunflow(TraceUnit::MB), 4));
    assert_eq!(
        coflows(&trace),
        [
            (1, 0.0, vec![], vec![(0, 2, 4e6, 0.0), (1, 2, 4e6, 0.0)]),
            (2, 0.04, vec![], vec![(3, 0, 4e6, 0.0), (3, 1, 6e6, 0.0)]),
        ]
    );
}

#[test]
fn htsim_triggers_are_parents() {
    let trace = read_file("htsim.cm", None);
    assert_eq!((trace.format, trace.workload.ports), (Format::Htsim, 8));
    assert_eq!(
        coflows(&trace),
        [
            (1, 0.0, vec![], vec![(1, 0, 2e6, 0.0)]),
            (2, 0.0, vec![], vec![(2, 0, 2e6, 0.0)]),
            (3, 0.0, vec![1], vec![(3, 0, 1e6, 0.0)]),
        ]
    );
    let barrier = "Nodes 4\nConnections 3\nTriggers 1\n2->3 id 7 trigger 5 size 9 prio 3\ntrigger id 5 barrier count 2\n\
                   0->1 id 9 start 2000000 size 1 recv_done_trigger 5\n1->2 id 8 start 1 size 1 send_done_trigger 5\n";
    let barrier = read_trace(barrier, TraceUnit::MB).unwrap();
    assert_eq!(coflows(&barrier)[0], (7, 0.0, vec![1, 2], vec![(2, 3, 9.0, 0.0)]));
    assert_eq!((coflows(&barrier)[1].1, coflows(&barrier)[2].1), (2e-6, 1e-12));
}

#[test]
fn hpcc_has_a_coflow_for_each_flow() {
    let trace = read_file("hpcc.txt", None);
    assert_eq!((trace.format, trace.workload.ports), (Format::Hpcc, 4));
    let expected = [(0, 3, 2e4, 2.0), (1, 3, 1.5e6, 2.0001), (2, 0, 4e4, 2.0003), (3, 0, 6e3, 2.0003)];
    let expected: Vec<_> = expected
        .into_iter()
        .zip(1..)
        .map(|((src, dst, bytes, start), id)| (id, start, vec![], vec![(src, dst, bytes, 0.0)]))
        .collect();
    assert_eq!(coflows(&trace), expected);
}

#[test]
fn tables_have_columns_by_name_or_number() {
    let trace = read_file("flows.txt", Some(columns("bytes=2,src=3,dst=4,start=5:us")));
    let expected = [(0, 3, 2e4, 1e-4), (1, 3, 1.5e6, 1.1e-4), (2, 0, 4e4, 1.3e-4)];
    let found: Vec<_> = coflows(&trace).into_iter().map(|(_, at, _, flows)| (flows[0], at)).collect();
    assert_eq!(found, expected.map(|(src, dst, bytes, start)| ((src, dst, bytes, 0.0), start)));
    assert!(trace.port_names.is_empty() && trace.warnings.is_empty());

    let by_name = columns("start=start_ms:ms,src=from,dst=to,bytes=size_kB:kB,coflow=shuffle");
    let trace = read_file("flows.csv", Some(by_name));
    assert_eq!(trace.port_names, ["rack1/host-a", "rack2/host-b", "rack1/host-c"]);
    // The join arrives with its first flow, and the flow inside a host does not use the network.
    assert_eq!(
        coflows(&trace),
        [
            (1, 0.001, vec![], vec![(0, 1, 2e4, 0.0095), (1, 0, 1.5e6, 0.007), (2, 2, 0.0, 0.0)]),
            (2, 0.00025, vec![], vec![(0, 2, 4e4, 0.0)]),
        ]
    );
    assert_eq!(trace.warnings.len(), 1);
    assert!(trace.warnings[0].starts_with("1 flow from a port to itself, of 6kB,"), "{:?}", trace.warnings);
    let mut text = Vec::new();
    format::write(&trace.workload, &trace.port_names, &mut text).unwrap();
    let again = read_from(&text[..], "t", &TraceOptions::default()).unwrap();
    assert_eq!((again.workload, again.port_names), (trace.workload, trace.port_names));
}

#[test]
fn tables_have_services_weights_and_deadlines_of_coflows() {
    let format = columns("src=1,dst=2,bytes=3,coflow=4,service=5,application=6,weight=7,deadline=8:ms");
    let read = |text: &str| {
        let options = TraceOptions { format: Some(format.clone()), ..TraceOptions::default() };
        read_from(text.as_bytes(), "t", &options)
    };
    let text = "0,1,5,a,search,rank,2,1500\n0,2,5,b,,,,\n1,2,6,a,search,rank,2,1500\n1,3,7,c,search,,0.5,\n";
    let workload = read(text).unwrap().workload;
    let found: Vec<_> = workload
        .coflows
        .iter()
        .map(|c| {
            let application = &workload.names.applications(c.service)[c.application as usize];
            let service = workload.names.service(c.service);
            (service, application.as_str(), c.weight, c.deadline.map(Time::get), c.flows.len())
        })
        .collect();
    let expected = [
        ("search", "rank", 2.0, Some(1.5), 2),
        ("default", "default", 1.0, None, 1),
        ("search", "default", 0.5, None, 1),
    ];
    assert_eq!(found, expected);
    for (second, expected) in [
        ("1,2,6,a,search,rank,3,1500", "field `service, application, weight, deadline`: `other values`"),
        ("1,2,6,a,,rank,2,1500", "expected the values of the coflow's first flow, in line 1"),
        ("1,2,6,b,web search,,,", "field `service`: `web search`: expected 1 to 100 letters"),
        ("1,2,6,b,,a b,,", "field `application`: `a b`: expected 1 to 100 letters"),
        ("1,2,6,b,,,0,", "field `weight`: `0`: expected a number from 1e-9 to 1e9"),
        ("1,2,6,b,,,NaN,", "field `weight`: `NaN`: expected a number from 1e-9 to 1e9"),
        ("1,2,6,b,,,,-1", "field `deadline`: `-1`: expected a time of 0 to 1e12 milliseconds"),
    ] {
        let error = read(&format!("0,1,5,a,search,rank,2,1500\n{second}\n")).unwrap_err().to_string();
        assert!(error.starts_with("t:2: ") && error.contains(expected), "{error}");
    }
}

#[test]
fn numbers_of_hosts_and_coflows_are_kept() {
    let read = |text: &str, keeps_local_flows| {
        let format = Some(columns("src=1,dst=2,bytes=3,coflow=4"));
        let keeps_local_flows = Some(keeps_local_flows);
        let options = TraceOptions { format, keeps_local_flows, ..TraceOptions::default() };
        read_from(text.as_bytes(), "t", &options).unwrap()
    };
    let trace = read("7\t2\t5\t40\n2\t2\t6\t30\n", true);
    assert_eq!(trace.workload.ports, 8);
    assert_eq!(
        coflows(&trace),
        [(40, 0.0, vec![], vec![(7, 2, 5.0, 0.0)]), (30, 0.0, vec![], vec![(2, 2, 6.0, 0.0)])]
    );
    assert!(trace.warnings.is_empty());
    assert_eq!(coflows(&read("7 2 5 40\n2 2 6 x\n", false))[1], (2, 0.0, vec![], vec![(2, 2, 0.0, 0.0)]));
}

#[test]
fn local_flows_of_the_public_format_keep_their_bytes_unless_asked_otherwise() {
    let read = |keeps_local_flows| {
        let options = TraceOptions { keeps_local_flows, ..TraceOptions::default() };
        read_from("4 1\n1 0 2 0 2 1 2:10\n".as_bytes(), "t", &options).unwrap()
    };
    let flows = |local| vec![(0, 2, 5e6, 0.0), (2, 2, local, 0.0)];
    for keeps in [None, Some(true)] {
        assert_eq!((coflows(&read(keeps))[0].3.clone(), read(keeps).warnings.len()), (flows(5e6), 0));
    }
    let dropped = read(Some(false));
    assert_eq!(coflows(&dropped)[0].3, flows(0.0));
    assert!(
        dropped.warnings[0].starts_with("1 flow from a port to itself, of 5MB, "),
        "{:?}",
        dropped.warnings
    );
}

#[test]
fn variants_of_the_public_format_are_read() {
    let plain = read_trace("4 2\n1 0 1 0 1 2:10\n2 5 2 0 1 1 3:4\n", TraceUnit::MB).unwrap();
    for text in [
        "# generated\n4 2\n1 0 1 0 1 2:10\n# half\n2 5 2 0 1 1 3:4\n# end\n",
        "4 2\nJOB-1 0 1 0 1 2:10\nJOB-2 5 2 0 1 1 3:4\n",
    ] {
        assert_eq!(read_trace(text, TraceUnit::MB).unwrap(), plain, "{text}");
    }
    let tagged = "4 2\n1 0 1 0 1 2:10 2 identical\n2 5 2 0 1 1 3:4 1 identical\n";
    let tagged = read_trace(tagged, TraceUnit::MB).unwrap();
    assert_eq!(tagged.workload, plain.workload);
    assert_eq!(
        tagged.warnings,
        ["2 lines have fields after the last reducer, which are ignored (line 2: `2`)"]
    );
}

#[test]
fn errors_name_the_line_and_the_field() {
    let read = |text: &str| read_trace(text, TraceUnit::MB);
    check_error_cases("import", "", read);
    let table = |text: &str| {
        let options = TraceOptions {
            format: Some(columns("src=from,dst=to,bytes=size,start=at:ms")),
            ..TraceOptions::default()
        };
        read_from(text.as_bytes(), "t", &options).map_err(|error| error.to_string())
    };
    check_error_cases("flow_table", "from,to,size,at\n", table);
    for (text, expected) in [
        ("src=1,dst=2", "`src=1,dst=2`: expected a column for `bytes`"),
        ("src=1,dst=2,bytes=b", "`src=1,dst=2,bytes=b`: expected names for all columns, or numbers for all"),
        ("src=1,src=2,dst=3,bytes=4", "`src=2`: expected a column for each field, once"),
        ("bytes=1:acre,src=2,dst=3", "`bytes=1:acre`: expected one of s, ms, us, ns and ps for times, and"),
        ("deadline=1:kB,src=2,dst=3", "`deadline=1:kB`: expected one of s, ms, us, ns and ps for times, and"),
        ("speed=1", "`speed=1`: expected `<field>=<column>` or `<field>=<column>:<unit>`"),
    ] {
        let error = text.parse::<weir_trace::import::Columns>().unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// The log of a job on three executors of one host: a join, a sort and an aggregation. The numbers that are compared with are sums over
/// the tasks of the file.
#[test]
fn spark_stages_are_coflows_with_estimated_sources() {
    let trace = read_file("spark.json", None);
    assert_eq!(trace.format, Format::Spark);
    assert_eq!(trace.port_names, ["127.0.0.1/2", "127.0.0.1/1", "127.0.0.1/0"]);
    let coflows = coflows(&trace);
    let dag: Vec<(u64, Vec<usize>)> =
        coflows.iter().map(|(id, _, parents, _)| (*id, parents.clone())).collect();
    // Stages 0 and 10 read no shuffle. Those of jobs 1 and 2 read what stage 1 of job 0 wrote: 4 and 7 were skipped.
    let expected =
        [(1, vec![]), (2, vec![0]), (5, vec![0]), (8, vec![0]), (9, vec![3]), (11, vec![]), (12, vec![5])];
    assert_eq!(dag, expected);
    // Executor 1 read 40,719 bytes of others; 2 and 0 wrote 71,680 and 30,114 bytes in stage 0.
    let part = |written: f64| (40_719.0 * written / (71_680.0 + 30_114.0)).round();
    let to_executor_1: Vec<f64> = coflows[0].3.iter().filter(|flow| flow.1 == 1).map(|flow| flow.2).collect();
    assert_eq!(to_executor_1, [part(71_680.0), part(30_114.0)]);
    let read = |index: usize| coflows[index].3.iter().map(|flow| flow.2).sum::<f64>();
    for (index, bytes) in
        [40_719 + 33_162 + 24_865, 1171 + 569 + 774, 1151 + 584 + 769].into_iter().enumerate()
    {
        assert!((read(index) - f64::from(bytes)).abs() <= 3.0, "{}: {}", coflows[index].0, read(index));
    }
    let specs = &trace.workload.coflows;
    // Stage 0 ends 34.836 s after the submission of its job, most of which went into the start of executors; stage 1 runs 4 s.
    assert_eq!(specs[0].compute_before.get(), 34.836);
    assert!((3.0..4.0).contains(&specs[0].compute_after.get()), "{}", specs[0].compute_after);
    assert_eq!((specs[4].job, specs[4].stage), (Some(2), Some(9)));
    assert!(trace.warnings[0].contains("are estimates; 62.56kB that tasks read"), "{:?}", trace.warnings);
}

#[test]
fn spark_hosts_are_ports_and_lost_tasks_do_not_count() {
    let task = |stage: u32,
                index: u32,
                place: (&str, &str),
                times: (u64, u64),
                read: u64,
                written: u64,
                reason: &str| {
        format!(
            "{{\"Event\":\"SparkListenerTaskEnd\",\"Stage ID\":{stage},\"Task End Reason\":{{\"Reason\":\"{reason}\"}},\
             \"Task Info\":{{\"Index\":{index},\"Executor ID\":\"{}\",\"Host\":\"{}\",\"Launch Time\":{},\"Finish Time\":{}}},\
             \"Task Metrics\":{{\"Shuffle Read Metrics\":{{\"Remote Bytes Read\":{read},\"Fetch Wait Time\":1000}},\
             \"Shuffle Write Metrics\":{{\"Shuffle Bytes Written\":{written}}}}}}}\n",
            place.1, place.0, times.0, times.1
        )
    };
    let stage = |id: u32, parents: &str| {
        format!("{{\"Stage ID\":{id},\"Parent IDs\":[{parents}],\"RDD Info\":[{{\"RDD ID\":{id}}}]}}")
    };
    let text = [
        "{\"Event\":\"SparkListenerLogStart\",\"Spark Version\":\"3.5.5\"}\n".to_owned(),
        format!(
            "{{\"Event\":\"SparkListenerJobStart\",\"Job ID\":0,\"Submission Time\":1000,\"Stage Infos\":[{},{}]}}\n",
            stage(0, ""),
            stage(1, "0")
        ),
        task(0, 0, ("a", "1"), (1000, 3000), 0, 300, "Success"),
        task(0, 1, ("a", "2"), (1000, 3000), 0, 100, "Success"),
        task(0, 2, ("b", "3"), (1000, 3000), 0, 600, "Success"),
        task(0, 2, ("c", "4"), (1000, 9000), 0, 600, "TaskKilled"),
        task(1, 0, ("c", "4"), (3000, 5000), 1000, 0, "Success"),
        task(1, 0, ("b", "3"), (3000, 6000), 1000, 0, "Success"),
        task(1, 1, ("b", "3"), (3000, 5000), 800, 0, "Success"),
    ];
    let trace = read_trace(&text.concat(), TraceUnit::MB).unwrap();
    assert_eq!(trace.port_names, ["a", "b", "c"]);
    // Host c reads 1,000 bytes in proportion to 400 and 600, and b what a wrote, without its own.
    let flows = vec![(0, 1, 800.0, 0.0), (0, 2, 400.0, 0.0), (1, 2, 600.0, 0.0)];
    assert_eq!(coflows(&trace), [(1, 1.0, vec![], flows)]);
    let spec = &trace.workload.coflows[0];
    // Stage 0 ends 2 s after the job's submission. Half of the time of stage 1 is fetching.
    assert_eq!((spec.compute_before.get(), spec.compute_after.get()), (2.0, 1.0));
    // A job whose start was lost, and which reads what an earlier job wrote.
    let text = [&text[..2], &["".to_owned()], &text[2..]]
        .concat()
        .concat()
        .replace("\"Job ID\":0,\"Submission Time\":1000", "\"Job ID\":4,\"Submission Time\":5000");
    let spec = &read_trace(&text, TraceUnit::MB).unwrap().workload.coflows[0];
    assert_eq!((spec.job, spec.arrival.get(), spec.compute_before.get()), (Some(4), 5.0, 0.0));
    let lost: String =
        text.lines().filter(|line| !line.contains("JobStart")).map(|line| format!("{line}\n")).collect();
    let spec = &read_trace(&lost, TraceUnit::MB).unwrap().workload.coflows[0];
    assert_eq!((spec.job, spec.arrival.get()), (None, 3.0));
    // With one executor, all bytes are local.
    let local: String = text.replace("Remote Bytes Read", "Local Bytes Read");
    assert_eq!(
        read_trace(&local, TraceUnit::MB).unwrap_err(),
        "t:10: field `coflows`: `none`: expected a stage that reads a shuffle from another executor; the 6 tasks of the log read \
         2.8kB from their own one, and nothing from others"
    );
    let error =
        read_trace("{\"Event\":\"SparkListenerJobStart\",\"Job ID\":0}\n", TraceUnit::MB).unwrap_err();
    assert!(
        error.starts_with("t:1: field `event`: `{\"Event\":\"SparkListenerJobStart\"")
            && error.contains("Submission Time"),
        "{error}"
    );
}
