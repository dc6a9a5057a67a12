//! Closes connections whose certificates have expired. A handshake has its own check.

use std::time::SystemTime;

use weir_flow::Reason;

use super::program::Stage;
use super::server::Server;
use super::token::Token;
use super::transport::Transport;
use crate::message::RelayId;
use crate::relay::FlowKey;

impl Server {
    /// Closes connections that a certificate of one end no longer authenticates. Links and flows begin again with new certificates.
    pub(super) fn close_expired(&mut self) {
        if self.settings.tls.is_none() {
            return;
        }
        let now = SystemTime::now();
        let has_expired = |transport: &Transport| transport.has_expired(now);
        let lanes = self.lanes.iter().filter(|(_, lane)| has_expired(&lane.transport));
        let relays: Vec<RelayId> =
            lanes.filter_map(|(token, _)| self.lane_owners.get(token).copied()).collect();
        for relay in relays {
            self.close_expired_link(relay);
        }
        let senders: Vec<Token> = self
            .senders
            .iter()
            .filter(|(_, sender)| has_expired(&sender.transport))
            .map(|(&token, _)| token)
            .collect();
        for token in senders {
            self.close_expired_sender(token);
        }
        let receivers: Vec<FlowKey> = self
            .receivers
            .values()
            .filter(|receiver| has_expired(&receiver.transport))
            .map(|receiver| receiver.key)
            .collect();
        for key in receivers {
            self.note_expired_program("receiver", key);
            self.relay.close_receiver(key, Reason::Lost);
        }
    }

    fn close_expired_link(&mut self, relay: RelayId) {
        // The other connection of the link may have been closed with this one.
        let Some(link) = self.links.get(&relay).filter(|link| link.lanes().is_some()) else { return };
        tracing::warn!(
            relay = %link.name,
            "a certificate of the connections with this relay has expired; closing them"
        );
        self.fail_link(relay);
    }

    fn close_expired_sender(&mut self, token: Token) {
        let Some(sender) = self.senders.get(&token) else { return };
        if let Stage::Flow(key) = sender.stage {
            self.note_expired_program("sender", key);
            self.relay.abort(key);
            self.sender_of.remove(&key);
        }
        self.senders.remove(&token);
    }

    /// Logs that the connection of a program is closed.
    fn note_expired_program(&mut self, program: &str, key: FlowKey) {
        let reason = "a certificate of the connection has expired";
        let coflow = self.relay.overlay().coflows.get(&key.flow.coflow).map(|coflow| coflow.name.clone());
        if self.logged_refusals.permits(program, reason, self.now) {
            tracing::warn!(program, coflow = coflow.as_deref(), reason, "connection of a program is closed");
        }
    }
}
