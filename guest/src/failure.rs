//! Why a request failed, and the ERROR frame for it.

use crate::outbox::Outbox;
use forkd_wire::errno;
use forkd_wire::Malformed;
use std::io;

pub enum Failure {
    Malformed,
    Io(io::Error),
    FlowControl,
    /// There is no such user in the guest.
    NoUser(io::Error),
    /// The guest kernel does not support it.
    Unsupported(io::Error),
    /// A protocol error's code and text.
    Refused(&'static str, &'static str),
}

impl From<Malformed> for Failure {
    fn from(_: Malformed) -> Failure {
        Failure::Malformed
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Io(error)
    }
}

impl Failure {
    pub fn report(&self, stream: u32, outbox: &mut Outbox) {
        match self {
            Failure::Malformed => outbox.error(stream, "bad_request", "malformed payload"),
            Failure::Io(error) => outbox.error(stream, &errno::name(error), &errno::text(error)),
            Failure::NoUser(error) => outbox.error(stream, "no_such_user", &errno::text(error)),
            Failure::Unsupported(error) => outbox.error(stream, "unsupported", &errno::text(error)),
            Failure::Refused(code, message) => outbox.error(stream, code, message),
            Failure::FlowControl => outbox.error(stream, "flow_control", "more data than the credit allows"),
        }
    }
}
