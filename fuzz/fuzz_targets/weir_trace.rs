//! Readers of traces do not panic on any input, and accepted input survives a round trip in Weir's own format.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_trace::{Format, InputFormat, Limits, TraceOptions, format, read_from};

/// Valid starts of the formats, so that the fuzzer does not have to discover them.
const STARTS: [&[u8]; 5] = [
    b"",
    b"weir-trace 1\nports 9\n",
    b"4 2\n1 0 2 1 2 0 3 5 0 2 7\n",
    b"1 0 1 1 0#1:2\n",
    b"Nodes 9\n0->1 id 1 start 0 size 9 send_done_trigger 1\ntrigger id 1 oneshot\n",
];

fuzz_target!(|input: &[u8]| {
    let limits = Limits { max_flows: 10_000, max_line_bytes: 1 << 16, ..Limits::default() };
    let columns = "src=1,dst=2,bytes=3:kB,start=4:ms,coflow=5,service=6,weight=7,deadline=8".parse().expect("these are columns");
    let detected = STARTS.map(|start| (start, None));
    for (start, format) in
        detected.into_iter().chain([(STARTS[0], Some(InputFormat::Flows(Box::new(columns))))])
    {
        let input = [start, input].concat();
        let options = TraceOptions { limits, format, ..TraceOptions::default() };
        let Ok(trace) = read_from(&input[..], "input", &options) else { continue };
        let mut text = Vec::new();
        format::write(&trace.workload, &trace.port_names, &mut text)
            .expect("a trace that is read can be written");
        let limits = Limits { max_line_bytes: 1 << 26, ..limits };
        let again = read_from(&text[..], "output", &TraceOptions { limits, ..TraceOptions::default() });
        let again = again.expect("a written trace can be read");
        assert!(again.format == Format::Weir && again.workload == trace.workload);
        assert!(again.port_names == trace.port_names);
    }
});
