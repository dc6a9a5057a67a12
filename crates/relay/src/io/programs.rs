//! The connections of programs: accepts those that send, connects to those that receive, and opens flows.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use weir_flow::{FirstLine, Reason};
use weir_tls::{HandshakeFailure, Tls, framework_name};

use super::congestion;
use super::program::{Closed, Receiver, Sender, Stage};
use super::server::{PROGRAM_TIMEOUT, Server, accept};
use super::socket::start_connect;
use super::token::{Kind, Token};
use super::transport::Transport;
use crate::relay::FlowKey;

/// How long a flow waits for an order that names its coflow. A framework registers a coflow shortly before its programs send, and the
/// order is on its way.
const UNKNOWN_COFLOW_TIMEOUT: Duration = Duration::from_millis(100);

/// The maximum number of connections of sending programs. Further ones are closed.
const MAX_SENDERS: usize = 16_384;

impl Server {
    /// Ends the connections of programs whose time has passed.
    pub(super) fn step_programs(&mut self) {
        let now = self.now;
        let is_late = |stage: &Stage| match stage {
            Stage::FirstLine(deadline) | Stage::Reset(deadline) => now >= *deadline,
            Stage::Flow(_) | Stage::UnknownCoflow(..) => false,
        };
        self.senders.retain(|_, sender| !is_late(&sender.stage));
        let is_unknown =
            |sender: &Sender| matches!(sender.stage, Stage::UnknownCoflow(_, until) if now >= until);
        let unknown: Vec<Token> =
            self.senders.iter().filter(|(_, sender)| is_unknown(sender)).map(|(&token, _)| token).collect();
        unknown.into_iter().for_each(|token| self.refuse_flow(token, Reason::UnknownCoflow));
        let late: Vec<FlowKey> = self
            .receivers
            .values()
            .filter(|receiver| receiver.deadline.is_some_and(|deadline| now >= deadline))
            .map(|receiver| receiver.key)
            .collect();
        late.into_iter().for_each(|key| self.relay.close_receiver(key, Reason::Unreachable));
    }

    // Programs that send.

    pub(super) fn accept_programs(&mut self) {
        while let Some(stream) = accept(&self.programs, &mut self.accept_again) {
            if self.senders.len() >= MAX_SENDERS {
                continue;
            }
            let Ok(tls) = self.programs_tls(&stream, stream.peer_addr()).map(Tls::accept).transpose() else {
                continue;
            };
            self.receive_buffers.apply(&stream);
            if let Ok(token) = self.register(&stream, Kind::Sender) {
                let transport = Transport::new(stream, tls);
                self.senders.insert(token, Sender::new(transport, self.now + PROGRAM_TIMEOUT));
            }
        }
        self.adapt_receive_buffers();
    }

    pub(super) fn adapt_receive_buffers(&mut self) {
        if self.receive_buffers.adapt(self.senders.len()) {
            self.senders.values().for_each(|sender| self.receive_buffers.apply(&sender.transport.stream));
        }
    }

    /// TLS for the connection of a program at this address; none for plain text.
    fn programs_tls(&self, stream: &TcpStream, program: io::Result<SocketAddr>) -> Option<&Tls> {
        let tls = self.settings.tls.as_ref()?.programs.as_ref()?;
        tls.applies_to(stream.local_addr(), program).then_some(tls)
    }

    /// Checks that a program may send a flow: the service in its certificate is that of the coflow, or the coflow is unknown.
    fn check_owner(&self, sender: &Sender, line: &FirstLine) -> io::Result<()> {
        let Some(service) = self.relay.service(line.coflow.as_str()) else { return Ok(()) };
        sender.transport.check_peer(&framework_name(service))
    }

    pub(super) fn handle_sender(&mut self, token: Token, is_readable: bool, is_writable: bool) {
        let Some(sender) = self.senders.get_mut(&token) else { return };
        if is_writable {
            sender.flush();
        }
        if !is_readable {
            return;
        }
        match sender.stage {
            // The program's bytes stay in its socket until the flow opens.
            Stage::UnknownCoflow(..) => {}
            Stage::Flow(key) => self.relay.set_readable(key),
            Stage::Reset(_) => {
                if sender.skip() {
                    self.senders.remove(&token);
                }
            }
            Stage::FirstLine(_) => self.open_flow(token),
        }
    }

    fn open_flow(&mut self, token: Token) {
        let Some(sender) = self.senders.get_mut(&token) else { return };
        match sender.read_first_line() {
            Ok(None) => {}
            Ok(Some(line)) => self.open_flow_with(token, line, self.now + UNKNOWN_COFLOW_TIMEOUT),
            Err(reason) => {
                self.note_failure_of(token);
                self.refuse_flow(token, reason);
            }
        }
    }

    /// Counts and logs why the handshake of a program failed, or that TLS is missing at one end.
    fn note_failure_of(&mut self, token: Token) {
        let Some(sender) = self.senders.get_mut(&token) else { return };
        if let Some((failure, reason)) = sender.failure.take() {
            let address = sender.transport.stream.peer_addr().ok();
            self.note_program_failure(failure, &reason, address);
        }
    }

    /// Counts a failure, and logs it. Connections without a message, such as those of port scans, are not logged.
    fn note_program_failure(&mut self, failure: HandshakeFailure, reason: &str, address: Option<SocketAddr>) {
        if self.settings.tls.is_some() {
            self.handshake_failures.add(failure);
        }
        let Some(address) = address.filter(|_| failure != HandshakeFailure::Incomplete) else { return };
        if self.logged_refusals.permits(&address.ip().to_string(), reason, self.now) {
            tracing::warn!(%address, reason, "connection of a program is refused");
        }
    }

    fn refuse_flow(&mut self, token: Token, reason: Reason) {
        let Some(sender) = self.senders.get_mut(&token) else { return };
        sender.reset(reason, self.now + PROGRAM_TIMEOUT);
        self.refused_flows.add(reason);
    }

    /// Opens a flow. If its coflow is unknown, the flow waits for an order until `order_deadline`.
    fn open_flow_with(&mut self, token: Token, line: FirstLine, order_deadline: Duration) {
        let Some(sender) = self.senders.get(&token) else { return };
        if let Err(error) = self.check_owner(sender, &line) {
            let address = sender.transport.stream.peer_addr();
            self.note_program_failure(HandshakeFailure::of(&error), &error.to_string(), address.ok());
            return self.refuse_flow(token, Reason::UnknownCoflow);
        }
        let opened = self.relay.open(&line);
        // The events close an earlier generation of the flow.
        self.handle_events();
        let now = self.now;
        let Some(sender) = self.senders.get_mut(&token) else { return };
        match opened {
            Ok(key) => {
                sender.stage = Stage::Flow(key);
                self.sender_of.insert(key, token);
                self.relay.set_readable(key);
            }
            Err(Reason::UnknownCoflow) if now < order_deadline => {
                sender.stage = Stage::UnknownCoflow(line, order_deadline);
            }
            Err(reason) => self.refuse_flow(token, reason),
        }
    }

    /// Opens the flows whose coflow is known now.
    pub(super) fn open_waiting_flows(&mut self) {
        let waiting = |(&token, sender): (&Token, &Sender)| match &sender.stage {
            Stage::UnknownCoflow(line, deadline) => Some((token, line.clone(), *deadline)),
            _ => None,
        };
        let flows: Vec<_> = self.senders.iter().filter_map(waiting).collect();
        flows.into_iter().for_each(|(token, line, deadline)| self.open_flow_with(token, line, deadline));
    }

    // Programs that receive.

    pub(super) fn connect_receiver(&mut self, key: FlowKey, line: &FirstLine) {
        let connected = start_connect(line.receiver, congestion::SHORT_PATH).and_then(|stream| {
            // Short messages must not wait for the acknowledgement of earlier ones.
            stream.set_nodelay(true)?;
            let tls = self.programs_tls(&stream, Ok(line.receiver)).map(Tls::connect).transpose()?;
            Ok((self.register(&stream, Kind::Receiver)?, Transport::new(stream, tls)))
        });
        match connected {
            Ok((token, transport)) => {
                let name = framework_name(self.relay.service(line.coflow.as_str()).unwrap_or_default());
                let deadline = self.now + PROGRAM_TIMEOUT;
                self.receivers.insert(token, Receiver::new(transport, key, line, name, deadline));
                self.receiver_of.insert(key, token);
            }
            Err(_) => self.relay.close_receiver(key, Reason::Unreachable),
        }
    }

    pub(super) fn handle_receiver(&mut self, token: Token, is_readable: bool, is_writable: bool) {
        let Some(receiver) = self.receivers.get_mut(&token) else { return };
        let key = receiver.key;
        let was_open = receiver.is_open();
        if !was_open && let Err(error) = receiver.establish() {
            let address = receiver.transport.stream.peer_addr().ok();
            tracing::debug!(?address, %error, "cannot connect to receiver");
            let failure = HandshakeFailure::of(&error);
            // Other errors are those of the path, or of a program that does not listen.
            if !matches!(failure, HandshakeFailure::Incomplete | HandshakeFailure::Other) {
                self.note_program_failure(failure, &error.to_string(), address);
            }
            self.relay.close_receiver(key, Reason::Unreachable);
            return self.handle_events();
        }
        if is_writable {
            // An error is found by the read or the write that follows.
            let _ = receiver.transport.flush();
        }
        let can_deliver = is_writable || !was_open;
        if is_readable && receiver.deadline.is_none() {
            let (acked, closed) = receiver.read_lines();
            if let Some(offset) = acked {
                self.relay.acknowledge(key, offset);
            }
            match closed {
                None => {}
                Some(Closed::Ended) => self.relay.end_receiver(key),
                Some(Closed::Reset(reason)) => self.relay.close_receiver(key, reason),
            }
        }
        if can_deliver {
            self.deliver(key);
        }
        self.handle_events();
    }

    /// Writes waiting data to the receiver of a flow, as much as it accepts.
    pub(super) fn deliver(&mut self, key: FlowKey) {
        let receiver = self.receiver_of.get(&key).and_then(|token| self.receivers.get_mut(token));
        let Some(receiver) = receiver.filter(|receiver| receiver.is_open()) else { return };
        while let Some(mut data) = self.relay.next_delivery(key) {
            let accepted = match receiver.write(&data) {
                Ok(accepted) => accepted,
                Err(_) => return self.relay.close_receiver(key, Reason::Lost),
            };
            let rest = data.split_off(accepted);
            if !rest.is_empty() {
                return self.relay.receive_rest(key, rest);
            }
        }
        self.relay.finish_delivery(key);
    }

    /// The program of a flow has closed its connection.
    pub(super) fn remove_sender(&mut self, key: FlowKey) {
        if let Some(token) = self.sender_of.remove(&key) {
            self.senders.remove(&token);
        }
    }
}
