//! Streams that the agent opens: connections and DNS queries of programs.

use super::{Agent, Stream, MOST_STREAMS};
use crate::network::{EgressSocket, FIRST_AGENT_STREAM};
use crate::protocol::kind;
use crate::socket::Socket;

/// Connections accepted at once before other work.
const TAKEN_AT_ONCE: usize = 16;
/// Connections that may have the large window; their buffers are in guest memory.
const MOST_WIDE: usize = 64;

impl Agent {
    /// A program has made a connection or sent a query.
    pub(super) fn serve(&mut self, socket: EgressSocket) {
        match socket {
            EgressSocket::Connections => self.take_connections(),
            EgressSocket::Queries => {
                let number = self.next_agent_stream();
                self.network.ask(number, &mut self.outbox, &mut self.scratch);
            }
        }
    }

    fn take_connections(&mut self) {
        for _ in 0..TAKEN_AT_ONCE {
            let (tcp, dial) = match self.network.accept() {
                Some(taken) => taken,
                None => return,
            };
            let socket = Socket::dial(tcp);
            // the other streams are reserved for the host
            if self.streams.range(FIRST_AGENT_STREAM..).count() < MOST_STREAMS / 4 {
                let number = self.next_agent_stream();
                self.outbox.frame(kind::DIAL, number, &dial);
                self.streams.insert(number, Stream::Socket(socket));
            }
        }
    }

    /// The host has connected. While there are few connections, each gets a large window.
    pub(super) fn opened(&mut self, number: u32) {
        let sockets = self
            .streams
            .values()
            .filter(|stream| matches!(stream, Stream::Socket(_)));
        let is_wide = sockets.take(MOST_WIDE + 1).count() <= MOST_WIDE;
        if let Some(Stream::Socket(socket)) = self.streams.get_mut(&number) {
            socket.opened(number, is_wide, &mut self.outbox);
        }
    }

    /// A number for a stream that the agent opens.
    fn next_agent_stream(&mut self) -> u32 {
        loop {
            self.last_agent_stream = self.last_agent_stream.wrapping_add(1) | FIRST_AGENT_STREAM;
            if !self.streams.contains_key(&self.last_agent_stream) && !self.network.is_query(self.last_agent_stream) {
                return self.last_agent_stream;
            }
        }
    }
}
