//! Relays in a deterministic network that delays messages and loses connections: bytes out equal bytes in.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use weir_relay::forwarding::{Class, Match, Path, RelayId, Rule};
use weir_relay::message::{FlowId, Header};
use weir_relay::relay::{Endpoints, Event, Relay, Settings};

const SETTINGS: Settings =
    Settings { window_bytes: 4_000, message_bytes: 500, retry_interval: Duration::from_millis(200) };

/// A flow with its programs at both ends.
struct Program {
    ends: Endpoints,
    bytes: Vec<u8>,
    written: usize,
    has_ended: bool,
    received: Vec<u8>,
    is_complete: bool,
}

/// Relays, the connections between them, and programs.
struct Overlay {
    relays: Vec<Relay>,
    /// Messages on their way by connection: those of a lost connection are gone.
    connections: BTreeMap<(usize, usize), VecDeque<(Header, Bytes)>>,
    programs: BTreeMap<FlowId, Program>,
    slow_connection: usize,
    now: Duration,
    rng: ChaCha8Rng,
}

impl Overlay {
    fn new(relays: usize, flows: usize, max_bytes: usize, seed: u64) -> Overlay {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut overlay = Overlay {
            relays: (0..relays).map(|id| Relay::new(RelayId(id as u16), SETTINGS)).collect(),
            connections: BTreeMap::new(),
            programs: BTreeMap::new(),
            slow_connection: rng.random_range(0..40),
            now: Duration::ZERO,
            rng: ChaCha8Rng::seed_from_u64(seed + 1),
        };
        for number in 0..flows as u32 {
            let flow = FlowId { coflow: number / 3, flow: number % 3 };
            let source = rng.random_range(0..relays);
            let destination = (source + rng.random_range(1..relays)) % relays;
            let ends = Endpoints { source: RelayId(source as u16), destination: RelayId(destination as u16) };
            let bytes = (0..rng.random_range(0..max_bytes)).map(|_| rng.random()).collect();
            overlay.relays.iter_mut().for_each(|relay| relay.register(flow, ends));
            assert!(overlay.relays[source].open(flow, overlay.now));
            let program = Program {
                ends,
                bytes,
                written: 0,
                has_ended: false,
                received: Vec::new(),
                is_complete: false,
            };
            overlay.programs.insert(flow, program);
        }
        for a in 0..relays {
            (0..a).for_each(|b| overlay.connect(a, b));
        }
        overlay
    }

    fn connect(&mut self, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            self.connections.insert((from, to), VecDeque::new());
            self.relays[from].connect(RelayId(to as u16), self.now);
        }
    }

    fn disconnect(&mut self, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            self.connections.remove(&(from, to));
            self.relays[from].disconnect(RelayId(to as u16), self.now);
        }
    }

    /// A connection fails, or comes back.
    fn toggle_random_connection(&mut self) {
        let a = self.rng.random_range(1..self.relays.len());
        let b = self.rng.random_range(0..a);
        if self.connections.contains_key(&(a, b)) { self.disconnect(a, b) } else { self.connect(a, b) }
    }

    /// Gives a random flow random paths and a random class, at its source or at any relay.
    fn set_random_rule(&mut self) {
        let relays = self.relays.len();
        let mut hops: Vec<RelayId> =
            (0..relays as u16).map(RelayId).filter(|_| self.rng.random_bool(0.5)).collect();
        if hops.is_empty() {
            hops.push(RelayId(self.rng.random_range(0..relays as u16)));
        }
        let fraction = 1.0 / hops.len() as f64;
        let paths = hops.into_iter().map(|next| Path { next, fraction }).collect();
        let class = Class { priority: self.rng.random_range(0..4), weight: self.rng.random_range(0.1..4.0) };
        let rule = Rule::new(class, paths).unwrap();
        let index = self.rng.random_range(0..self.programs.len());
        let flow = *self.programs.keys().nth(index).unwrap();
        let target = if self.rng.random() { Match::Flow(flow) } else { Match::Coflow(flow.coflow) };
        let relay = self.rng.random_range(0..relays);
        self.relays[relay].change_rules([(target, Some(rule))]);
    }

    /// A connection accepts a message of its relay, or delivers one.
    fn move_random_message(&mut self) {
        if self.connections.is_empty() {
            return;
        }
        let index = self.rng.random_range(0..self.connections.len());
        // A slow connection moves one message in ten.
        if index == self.slow_connection && self.rng.random_bool(0.9) {
            return;
        }
        let (&(from, to), queue) = self.connections.iter_mut().nth(index).unwrap();
        if self.rng.random() {
            queue.extend(self.relays[from].next_message(RelayId(to as u16)));
        } else if let Some((header, payload)) = queue.pop_front() {
            let header = Header::decode(&header.encode()).expect("relays send valid headers");
            self.relays[to].receive(RelayId(from as u16), header, payload, self.now);
        }
    }

    /// A program writes or reads.
    fn move_random_program(&mut self) {
        let index = self.rng.random_range(0..self.programs.len());
        let (&flow, program) = self.programs.iter_mut().nth(index).unwrap();
        let source = &mut self.relays[usize::from(program.ends.source.0)];
        let free = (source.free_bytes(flow) as usize).min(program.bytes.len() - program.written);
        if free > 0 {
            let end = program.written + self.rng.random_range(1..=free);
            source.write(flow, Bytes::copy_from_slice(&program.bytes[program.written..end]), self.now);
            program.written = end;
        } else if program.written == program.bytes.len() && !program.has_ended {
            source.end(flow, self.now);
            program.has_ended = true;
        }
        let destination = &mut self.relays[usize::from(program.ends.destination.0)];
        if let Some(payload) = destination.next_delivery(flow) {
            program.received.extend(payload);
        }
    }

    fn take_events(&mut self) {
        for relay in &mut self.relays {
            while let Some(event) = relay.next_event() {
                match event {
                    Event::Completed(flow) => self.programs.get_mut(&flow).unwrap().is_complete = true,
                    Event::Refused(flow) => panic!("flow {flow} was refused"),
                    Event::Readable(_) | Event::Writable(_) => {}
                }
            }
        }
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(1);
        (0..8).for_each(|_| self.move_random_message());
        (0..2).for_each(|_| self.move_random_program());
        if self.now.as_millis().is_multiple_of(100) {
            self.relays.iter_mut().for_each(|relay| relay.tick(self.now));
        }
        self.take_events();
    }

    fn check_bytes_and_queues(&self) -> Result<(), TestCaseError> {
        for relay in &self.relays {
            let limit = SETTINGS.window_bytes + u64::from(SETTINGS.message_bytes);
            prop_assert!(
                relay.max_waiting_bytes() <= limit,
                "{} bytes of a flow wait",
                relay.max_waiting_bytes()
            );
        }
        for (flow, program) in &self.programs {
            prop_assert!(program.bytes.starts_with(&program.received), "flow {flow}: wrong bytes");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Connections fail and come back, rules change and may have loops; then the network is left in peace, and all flows complete.
    #[test]
    fn bytes_out_equal_bytes_in_under_failures_and_any_rules(seed in any::<u64>(), relays in 2..6usize, flows in 1..8usize) {
        let mut overlay = Overlay::new(relays, flows, 20_000, seed >> 1);
        for _ in 0..1_500 {
            overlay.step();
            if overlay.rng.random_bool(0.02) {
                overlay.toggle_random_connection();
            }
            overlay.check_bytes_and_queues()?;
            if overlay.rng.random_bool(0.02) {
                overlay.set_random_rule();
            }
        }
        overlay.check_bytes_and_queues()?;
        for a in 0..relays {
            for b in 0..a {
                if !overlay.connections.contains_key(&(a, b)) {
                    overlay.connect(a, b);
                }
            }
        }
        for _ in 0..60_000 {
            overlay.step();
            if overlay.programs.values().all(|program| program.is_complete) {
                break;
            }
        }
        overlay.check_bytes_and_queues()?;
        for (flow, program) in &overlay.programs {
            prop_assert_eq!(program.received.len(), program.bytes.len(), "flow {}", flow);
            prop_assert!(program.is_complete, "flow {} is not complete at its source", flow);
        }
    }
}
