//! Relays in a deterministic network that delays messages, loses connections, restarts relays and changes rules, with the senders and
//! receivers of the client library: bytes out equal bytes in.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::common::config_with_cases;
use bytes::Bytes;
use proptest::prelude::*;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use weir_flow::{BackLine, Chunk, FirstLine, Offset, Path, ReceiveState, SendState};
use weir_proto::relay::{RelayCoflow, RelayMatch, RelayOrder, RelayPath, RelayPeer, RelayRule, RuleScope};
use weir_relay::message::{Header, Kind, RelayId};
use weir_relay::overlay::Overlay;
use weir_relay::relay::{Event, FlowKey, Incoming, Lane, Outgoing, Relay};

const RELAYS: u16 = 4;
const MEMORY_BYTES: u64 = 8 << 20;
/// What the socket of a program holds.
const SOCKET_BYTES: usize = 40_000;
const STEP: Duration = Duration::from_millis(20);
/// How much later the second end of a link may notice its loss.
const MAX_NOTICE: Duration = Duration::from_secs(4);

/// A flow with both programs.
struct Flow {
    number: u32,
    source: u16,
    data: Vec<u8>,
    written: usize,
    send: SendState,
    /// Bytes between the sending program and its relay, or the receiver.
    socket: Option<(Path, VecDeque<u8>)>,
    key: Option<FlowKey>,
    receive: ReceiveState,
    /// The relay's generation that delivers at the moment, or that of a direct connection.
    delivering: Option<(u16, bool)>,
    unread: VecDeque<u8>,
    received: Vec<u8>,
    is_slow: bool,
}

struct World {
    relays: Vec<Relay>,
    /// Messages by sender, receiver and lane.
    wires: BTreeMap<(u16, u16, Lane), VecDeque<(Header, Bytes)>>,
    links: BTreeMap<(u16, u16), bool>,
    /// Relays that have not noticed the loss of a link yet: the time when they do, the relay and the other end.
    unnoticed: Vec<(Duration, u16, u16)>,
    flows: Vec<Flow>,
    overlay: Overlay,
    regions: u16,
    now: Duration,
    rng: ChaCha8Rng,
    is_calm: bool,
}

/// The receiver of a flow: the relay is the second byte of the address, the flow the port.
fn receiver(destination: u16, flow: u32) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, destination as u8, 0, 1)), flow as u16 + 1)
}

/// The last of `regions` regions has all further relays, which serve the same networks.
fn overlay(rng: &mut ChaCha8Rng, regions: u16) -> Overlay {
    let region = |id: u16| id.min(regions);
    let peer = |id: u16| {
        let served = (1..=RELAYS).filter(|&other| region(other) == region(id));
        RelayPeer {
            id,
            name: format!("relay-{id}").into(),
            address: receiver(id, 0),
            networks: served.map(|other| format!("127.{other}.0.0/16").parse().unwrap()).collect(),
            region: region(id),
        }
    };
    let rules = (0..rng.random_range(0..8u32)).map(|flow| {
        let direct = RelayPath { next_region: rng.random_range(1..=RELAYS), fraction: 0.6 };
        let detour = RelayPath { next_region: rng.random_range(1..=RELAYS), fraction: 0.4 };
        let mut paths = match direct.next_region.cmp(&detour.next_region) {
            std::cmp::Ordering::Equal => vec![RelayPath { fraction: 1.0, ..direct }],
            _ => vec![direct, detour],
        };
        paths.sort_by_key(|path| path.next_region);
        let flows = RelayMatch { coflow: 1, scope: RuleScope::Flows { pair: None, first: flow, last: flow } };
        let weight = rng.random_range(1..5).into();
        RelayRule { flows, priority: rng.random_range(0..3), weight, paths }
    });
    let order = RelayOrder {
        is_full: true,
        rules: rules.collect(),
        peers: (1..=RELAYS).map(peer).collect(),
        coflows: vec![RelayCoflow { number: 1, name: "shuffle".into(), service: "default".into() }],
        ..RelayOrder::default()
    };
    let mut overlay = Overlay::default();
    overlay.apply(&order);
    overlay
}

impl World {
    fn new(seed: u64, flows: u32, regions: u16) -> World {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let overlay = overlay(&mut rng, regions);
        let mut world = World {
            relays: (1..=RELAYS).map(|id| Relay::new(RelayId(id), MEMORY_BYTES)).collect(),
            wires: BTreeMap::new(),
            links: BTreeMap::new(),
            unnoticed: Vec::new(),
            flows: Vec::new(),
            overlay,
            regions,
            now: Duration::ZERO,
            rng,
            is_calm: false,
        };
        world.relays.iter_mut().for_each(|relay| relay.set_overlay(world.overlay.clone()));
        for number in 0..flows {
            let (source, offset) = (world.rng.random_range(1..=RELAYS), world.rng.random_range(1..RELAYS));
            let destination = (source - 1 + offset) % RELAYS + 1;
            let mut data = vec![0; world.rng.random_range(0..1_500_000)];
            world.rng.fill_bytes(&mut data);
            let line = FirstLine {
                coflow: "shuffle".parse().unwrap(),
                flow: number,
                generation: 0,
                offset: Offset::default(),
                receiver: receiver(destination, number),
            };
            world.flows.push(Flow {
                number,
                source,
                data,
                written: 0,
                send: SendState::new(line, true, Duration::ZERO),
                socket: None,
                key: None,
                receive: ReceiveState::default(),
                delivering: None,
                unread: VecDeque::new(),
                received: Vec::new(),
                is_slow: world.rng.random_range(0..3) == 0,
            });
        }
        world
    }

    fn relay(&mut self, id: u16) -> &mut Relay {
        &mut self.relays[usize::from(id) - 1]
    }

    fn step(&mut self) {
        self.now += STEP;
        let now = self.now;
        self.relays.iter_mut().for_each(|relay| relay.set_time(now));
        if !self.is_calm {
            self.disturb();
        }
        self.notice_losses();
        self.connect_links();
        (0..self.flows.len()).for_each(|index| self.step_sender(index));
        for id in 1..=RELAYS {
            self.relay(id).expire();
            self.handle_events(id);
            (1..=RELAYS).filter(|&peer| peer != id).for_each(|peer| self.send(id, peer));
        }
        for (from, to, lane) in self.wires.keys().copied().collect::<Vec<_>>() {
            self.transmit(from, to, lane);
        }
        (0..self.flows.len()).for_each(|index| self.step_receiver(index));
        for relay in &self.relays {
            let (waiting, granted) = relay.used_bytes();
            assert!(
                waiting <= MEMORY_BYTES / 2 + (1 << 20) && granted <= MEMORY_BYTES / 2,
                "{waiting} {granted}"
            );
        }
    }

    /// Loses a link, restarts a relay, changes the rules, or lets a relay seem silent to another one.
    fn disturb(&mut self) {
        match self.rng.random_range(0..60) {
            0 => {
                let (a, b) = (self.rng.random_range(1..=RELAYS), self.rng.random_range(1..=RELAYS));
                self.lose_link(a.min(b), a.max(b));
            }
            1 => {
                let id = self.rng.random_range(1..=RELAYS);
                (1..=RELAYS)
                    .filter(|&peer| peer != id)
                    .for_each(|peer| self.lose_link(id.min(peer), id.max(peer)));
                *self.relay(id) = Relay::new(RelayId(id), MEMORY_BYTES);
                let overlay = self.overlay.clone();
                self.relay(id).set_overlay(overlay);
                for index in 0..self.flows.len() {
                    let flow = &mut self.flows[index];
                    if flow.source == id && flow.key.take().is_some() {
                        self.lose_connection(index);
                    }
                    let flow = &mut self.flows[index];
                    if flow.send.first_line().receiver.ip() == receiver(id, 0).ip()
                        && flow.delivering.is_some_and(|(_, is_direct)| !is_direct)
                    {
                        flow.delivering = None;
                    }
                }
            }
            2 => {
                self.overlay = overlay(&mut self.rng, self.regions);
                let overlay = self.overlay.clone();
                self.relays.iter_mut().for_each(|relay| relay.set_overlay(overlay.clone()));
            }
            3 => {
                let (id, other) = (self.rng.random_range(1..=RELAYS), self.rng.random_range(1..=RELAYS));
                let is_silent = self.rng.random();
                self.relay(id).set_silent(RelayId(other), is_silent);
                self.handle_events(id);
            }
            _ => {}
        }
    }

    fn lose_link(&mut self, a: u16, b: u16) {
        if a != b && self.links.insert((a, b), false) == Some(true) {
            self.wires.retain(|&(from, to, _), _| (from.min(to), from.max(to)) != (a, b));
            let (first, second) = if self.rng.random() { (a, b) } else { (b, a) };
            self.relay(first).disconnect_peer(RelayId(second));
            let delay = MAX_NOTICE * self.rng.random_range(0..=4) / 4;
            self.unnoticed.push((self.now + delay, second, first));
        }
    }

    fn notice_losses(&mut self) {
        let now = self.now;
        for (_, relay, other) in self.unnoticed.extract_if(.., |(time, ..)| *time <= now).collect::<Vec<_>>()
        {
            self.relay(relay).disconnect_peer(RelayId(other));
        }
    }

    fn connect_links(&mut self) {
        for a in 1..=RELAYS {
            for b in a + 1..=RELAYS {
                let is_up = self.links.get(&(a, b)).copied().unwrap_or(false);
                let is_noticed = self.unnoticed.iter().all(|&(_, x, y)| (x.min(y), x.max(y)) != (a, b));
                if !is_up && is_noticed && (self.is_calm || self.rng.random_range(0..10) == 0) {
                    self.links.insert((a, b), true);
                    self.relay(a).connect_peer(RelayId(b));
                    self.relay(b).connect_peer(RelayId(a));
                }
            }
        }
    }

    /// The sending program connects, writes and closes.
    fn step_sender(&mut self, index: usize) {
        let now = self.now;
        let flow = &mut self.flows[index];
        if flow.send.is_complete() {
            flow.socket = None;
            if let Some(key) = flow.key.take() {
                let source = flow.source;
                self.relay(source).end(key);
            }
            return;
        }
        if flow.socket.is_none() && now >= flow.send.attempt().at {
            self.connect_sender(index);
        }
        let flow = &mut self.flows[index];
        flow.written += flow.send.write(&flow.data[flow.written..]);
        if flow.written == flow.data.len() {
            flow.send.finish();
        }
        if let Some((_, socket)) = &mut flow.socket {
            let room = SOCKET_BYTES - socket.len();
            let unsent = flow.send.unsent();
            let bytes = unsent.len().min(room);
            socket.extend(&unsent[..bytes]);
            flow.send.on_sent(bytes);
            let (key, source) = (flow.key, flow.source);
            if let (true, Some(key)) = (bytes > 0, key) {
                self.relay(source).set_readable(key);
            }
        }
        if self.flows[index].send.deadline().is_some_and(|deadline| now >= deadline) {
            self.lose_connection(index);
        }
    }

    fn connect_sender(&mut self, index: usize) {
        let now = self.now;
        let flow = &mut self.flows[index];
        let (line, path) = (flow.send.first_line().clone(), flow.send.attempt().path);
        flow.send.on_connected(now);
        flow.socket = Some((path, VecDeque::new()));
        match path {
            Path::Direct => self.accept(index, &line, true),
            Path::Relay => {
                let source = flow.source;
                match self.relay(source).open(&line) {
                    Ok(key) => self.flows[index].key = Some(key),
                    Err(reason) => self.answer(index, BackLine::Reset(reason)),
                }
                self.handle_events(source);
            }
        }
    }

    /// The connection of the sending program is lost.
    fn lose_connection(&mut self, index: usize) {
        let now = self.now;
        let flow = &mut self.flows[index];
        if let Some(key) = flow.key.take() {
            let source = flow.source;
            self.relay(source).abort(key);
        }
        let flow = &mut self.flows[index];
        if flow.socket.take().is_some() && !flow.send.is_complete() {
            flow.send.on_lost(now).unwrap();
        }
    }

    /// The sending program reads a line.
    fn answer(&mut self, index: usize, line: BackLine) {
        let now = self.now;
        let flow = &mut self.flows[index];
        if flow.socket.is_some() && flow.send.on_line(line, now).unwrap().is_some() {
            flow.socket = None;
            if let Some(key) = flow.key.take() {
                let source = flow.source;
                self.relay(source).abort(key);
            }
        }
    }

    /// The receiving program gets a connection.
    fn accept(&mut self, index: usize, line: &FirstLine, is_direct: bool) {
        let flow = &mut self.flows[index];
        let answer = flow.receive.accept(line);
        if answer.is_ok() {
            let replaced = flow.delivering.replace((line.generation, is_direct));
            flow.unread.clear();
            if let Some((generation, false)) = replaced {
                self.close_receiver(index, generation, weir_flow::Reason::Replaced);
            }
        }
        match (answer, is_direct) {
            (Ok(line), true) => self.answer(index, line),
            (Err(reason), true) => self.answer(index, BackLine::Reset(reason)),
            (Ok(BackLine::Ack(offset)), false) => self.acknowledge(index, line.generation, offset.get()),
            (Ok(BackLine::Reset(reason)) | Err(reason), false) => {
                self.close_receiver(index, line.generation, reason)
            }
        }
    }

    fn destination_key(&self, index: usize, generation: u16) -> (u16, FlowKey) {
        let line = self.flows[index].send.first_line();
        let IpAddr::V4(address) = line.receiver.ip() else { panic!("receivers have IPv4 addresses") };
        let flow = weir_relay::message::FlowId { coflow: 1, flow: line.flow };
        (address.octets()[1].into(), FlowKey { flow, generation })
    }

    fn acknowledge(&mut self, index: usize, generation: u16, offset: u64) {
        let (destination, key) = self.destination_key(index, generation);
        self.relay(destination).acknowledge(key, offset);
    }

    fn close_receiver(&mut self, index: usize, generation: u16, reason: weir_flow::Reason) {
        let (destination, key) = self.destination_key(index, generation);
        self.relay(destination).close_receiver(key, reason);
    }

    fn step_receiver(&mut self, index: usize) {
        let is_reading = !self.flows[index].is_slow || self.rng.random_range(0..20) == 0;
        let Some((generation, is_direct)) = self.flows[index].delivering else { return };
        if is_direct {
            let flow = &mut self.flows[index];
            if let Some((Path::Direct, socket)) = &mut flow.socket {
                flow.unread.append(socket);
            }
        } else {
            self.deliver(index, generation);
        }
        let mut answer = None;
        let flow = &mut self.flows[index];
        if is_reading {
            let bytes: Vec<u8> = flow.unread.drain(..).collect();
            let mut input = &bytes[..];
            while let Some(chunk) = flow.receive.receive(&mut input).unwrap() {
                if let Chunk::Data(data) = chunk {
                    flow.received.extend_from_slice(&data);
                }
            }
            answer = flow.receive.mark_read();
        }
        match answer {
            Some(line) if is_direct => self.answer(index, line),
            Some(BackLine::Ack(offset)) => self.acknowledge(index, generation, offset.get()),
            _ => {}
        }
    }

    fn deliver(&mut self, index: usize, generation: u16) {
        let (destination, key) = self.destination_key(index, generation);
        while self.flows[index].unread.len() < SOCKET_BYTES {
            let Some(data) = self.relay(destination).next_delivery(key) else { break };
            self.write_to_receiver(index, destination, key, data);
        }
        self.relay(destination).finish_delivery(key);
    }

    fn write_to_receiver(&mut self, index: usize, destination: u16, key: FlowKey, mut data: Bytes) {
        let flow = &mut self.flows[index];
        let is_current = flow.delivering == Some((key.generation, false));
        let room = if is_current { SOCKET_BYTES.saturating_sub(flow.unread.len()) } else { 0 };
        let rest = data.split_off(data.len().min(room));
        flow.unread.extend(&data);
        self.relay(destination).receive_rest(key, rest);
    }

    fn handle_events(&mut self, id: u16) {
        while let Some(event) = self.relay(id).next_event() {
            match event {
                Event::Acked(key, offset) => {
                    let index = key.flow.flow as usize;
                    if self.flows[index].key == Some(key) {
                        self.answer(index, BackLine::Ack(Offset::new(offset).unwrap()));
                    }
                }
                Event::CloseSender(key, reason) => {
                    let index = key.flow.flow as usize;
                    if self.flows[index].key == Some(key) {
                        self.flows[index].key = None;
                        self.answer(index, BackLine::Reset(reason));
                    }
                }
                Event::ConnectReceiver(key, line) => self.accept(key.flow.flow as usize, &line, false),
                Event::CloseReceiver(key) | Event::FinishReceiver(key) => {
                    let flow = &mut self.flows[key.flow.flow as usize];
                    if matches!(event, Event::CloseReceiver(_))
                        && flow.delivering == Some((key.generation, false))
                    {
                        flow.delivering = None;
                    }
                }
                Event::Deliverable(_) | Event::Unruled(..) => {}
            }
        }
    }

    /// A relay writes to another one what the wire accepts.
    fn send(&mut self, from: u16, to: u16) {
        if self.links.get(&(from.min(to), from.max(to))) != Some(&true) {
            return;
        }
        while let Some(message) = self.relay(from).next_control(RelayId(to)) {
            self.wires.entry((from, to, Lane::Express)).or_default().push_back(message);
        }
        if self.rng.random_ratio(1, 20) {
            let max_message = self.rng.random_range(1..30_000);
            self.relay(from).set_max_message(RelayId(to), max_message);
        }
        for lane in [Lane::Bulk, Lane::Express] {
            for _ in 0..self.rng.random_range(0..6) {
                let message = match self.relay(from).next_data(RelayId(to), lane) {
                    None => break,
                    Some(Outgoing::Stored(header, payload)) => (header, payload),
                    Some(Outgoing::Local { key, max }) => match self.read_local(from, to, lane, key, max) {
                        Some(message) => message,
                        None => continue,
                    },
                };
                self.wires.entry((from, to, lane)).or_default().push_back(message);
            }
        }
        self.handle_events(from);
    }

    fn read_local(
        &mut self,
        from: u16,
        to: u16,
        lane: Lane,
        key: FlowKey,
        max: u32,
    ) -> Option<(Header, Bytes)> {
        let max = max.min(self.rng.random_range(1..30_000)) as usize;
        let flow = &mut self.flows[key.flow.flow as usize];
        assert_eq!((flow.key, flow.number), (Some(key), key.flow.flow));
        let (_, socket) = flow.socket.as_mut()?;
        let bytes: Vec<u8> = socket.drain(..max.min(socket.len())).collect();
        let is_drained = socket.is_empty();
        let header = self.relay(from).take_local(RelayId(to), lane, key, bytes.len() as u32, is_drained);
        (!bytes.is_empty()).then(|| (header, Bytes::from(bytes)))
    }

    /// Some of the messages on a wire arrive.
    fn transmit(&mut self, from: u16, to: u16, lane: Lane) {
        let most = if lane == Lane::Bulk { 4 } else { 30 };
        for _ in 0..self.rng.random_range(0..=most) {
            let Some(wire) = self.wires.get_mut(&(from, to, lane)).filter(|wire| !wire.is_empty()) else {
                return;
            };
            // Messages on parallel connections overtake each other.
            let overtaken = if lane == Lane::Bulk { self.rng.random_range(0..wire.len().min(8)) } else { 0 };
            let Some((header, payload)) = wire.remove(overtaken) else { return };
            let decoded = Header::decode(&header.encode()).unwrap();
            match self.relay(to).receive(RelayId(from), &decoded) {
                Incoming::Discard => {}
                Incoming::Store => self.relay(to).receive_payload(RelayId(from), &decoded, payload),
                Incoming::Deliver(key) => {
                    self.write_to_receiver(key.flow.flow as usize, to, key, payload);
                    self.relay(to).finish_delivery(key);
                }
            }
            assert_ne!(header.kind, Kind::Pong);
            self.handle_events(to);
        }
    }

    fn run(&mut self, disturbed_steps: u32) {
        for _ in 0..disturbed_steps {
            self.step();
        }
        self.is_calm = true;
        for _ in 0..60_000 {
            if self.flows.iter().all(|flow| flow.send.is_complete()) {
                break;
            }
            self.step();
        }
        for flow in &self.flows {
            assert!(flow.send.is_complete(), "flow {} is incomplete", flow.number);
            assert!(flow.received == flow.data, "flow {} differs", flow.number);
        }
    }
}

#[test]
fn calm_network_delivers_everything_over_the_overlay() {
    let mut world = World::new(1, 6, RELAYS);
    world.is_calm = true;
    world.run(0);
    assert!(world.flows.iter().all(|flow| flow.send.first_line().generation == 0));
    let acked: u64 = world
        .relays
        .iter()
        .flat_map(|relay| relay.groups().map(|(_, _, progress)| progress.acked_bytes))
        .sum();
    assert!(acked >= world.flows.iter().map(|flow| flow.data.len() as u64).sum());
    for _ in 0..100 {
        world.step();
    }
    let open: Vec<_> = world.relays.iter().map(|relay| relay.flow_counts().0).collect();
    assert_eq!(open, [0, 0, 0, 0]);
}

proptest! {
    #![proptest_config(config_with_cases(40))]
    #[test]
    fn failures_lose_repeat_and_reorder_nothing(seed in any::<u64>(), flows in 1..12u32, regions in 2..=RELAYS) {
        World::new(seed, flows, regions).run(400);
    }

    #[test]
    fn same_seed_gives_the_same_run(seed in any::<u64>(), regions in 2..=RELAYS) {
        let run = || {
            let mut world = World::new(seed, 4, regions);
            world.run(100);
            (world.now, world.rng.random::<u64>())
        };
        prop_assert_eq!(run(), run());
    }
}
