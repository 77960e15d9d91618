//! Streams that the agent opens: connections and queries of programs.

use super::{Agent, Stream, MOST_STREAMS};
use crate::network::{Door, FIRST_OWN};
use crate::protocol::kind;
use crate::socket::Socket;

/// How many connections are taken at once before others have their turn.
const TAKEN_AT_ONCE: usize = 16;
/// How many connections may have much on their way; the memory of all of them is the guest's.
const MOST_WIDE: usize = 64;

impl Agent {
    /// A program wants something of somebody outside.
    pub(super) fn serve(&mut self, door: Door) {
        match door {
            Door::Connections => self.take_connections(),
            Door::Queries => {
                let number = self.own_number();
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
            // the rest of the streams is for the host
            if self.streams.range(FIRST_OWN..).count() < MOST_STREAMS / 4 {
                let number = self.own_number();
                self.outbox.frame(kind::DIAL, number, &dial);
                self.streams.insert(number, Stream::Socket(socket));
            }
        }
    }

    /// The host has connected. While there are few, each may have more on its way.
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
    fn own_number(&mut self) -> u32 {
        loop {
            self.last_own = self.last_own.wrapping_add(1) | FIRST_OWN;
            if !self.streams.contains_key(&self.last_own) && !self.network.is_query(self.last_own) {
                return self.last_own;
            }
        }
    }
}
