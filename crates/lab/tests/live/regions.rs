use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use weir_lab::regions::{Distance, Regions, RegionsSettings};
use weir_testbed::{namespace, testing};

#[test]
fn workers_of_all_regions_reach_each_other_after_the_delay() {
    if testing::skips("regions") {
        return;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/wide-area/private-cloud.toml");
    let wide_area = weir_trace::wide_area::read(&file).unwrap();
    let queue = Duration::from_millis(50);
    let settings = RegionsSettings { wide_area: &wide_area, scale: 0.5, seed: 1, queue, workers: 2 };
    let delay = |from, to| Duration::from_millis(5 * (from + to) as u64);
    let distance = |from, to| Distance { delay: delay(from, to), loss: 0.0 };
    let regions = Regions::create(&format!("regions{}", std::process::id()), &settings, distance).unwrap();
    let nodes = regions.nodes();
    assert_eq!(nodes.len(), 3 * 3);
    let region = |name: &str| wide_area.regions().iter().position(|region| region == name).unwrap();
    for to in nodes {
        let listen = || TcpListener::bind((to.address, 0)).unwrap();
        let listener = namespace::run_inside(&to.namespace, listen).unwrap();
        for from in nodes.iter().filter(|&from| from != to) {
            let connect = || {
                let started = Instant::now();
                TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                started.elapsed()
            };
            let took = namespace::run_inside(&from.namespace, connect).unwrap();
            let (a, b) = (region(&from.region), region(&to.region));
            let round_trip = if a == b { Duration::ZERO } else { 2 * delay(a, b) };
            assert!(took >= round_trip, "{from:?} to {to:?}: {took:?}");
        }
    }
    let reports = regions.stop().unwrap();
    assert_eq!(reports.len(), 3);
    assert!(reports.iter().all(|(_, report)| report.paths.iter().all(|path| path.forwarded > 0)));
}
