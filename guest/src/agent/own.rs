//! Streams that the agent opens: connections and queries of programs.

use super::{Agent, Stream, MOST_STREAMS};
use crate::network::{Door, FIRST_OWN};
use crate::protocol::kind;
use crate::socket::Socket;

/// How many connections are taken at once before others have their turn.
const TAKEN_AT_ONCE: usize = 16;

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
            if self.streams.len() < MOST_STREAMS {
                let number = self.own_number();
                self.outbox.frame(kind::DIAL, number, &dial);
                self.streams.insert(number, Stream::Socket(socket));
            }
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
