//! The error that a failed operation returns: an errno name or a word, and a sentence.

use forkd_wire::{errno, Malformed};
use std::fmt::Display;
use std::io;

#[derive(Debug)]
pub struct Error {
    pub code: String,
    pub message: String,
}

pub type Outcome<T> = Result<T, Error>;

impl Error {
    pub fn new(code: &str, message: impl Display) -> Error {
        Error {
            code: code.to_string(),
            message: message.to_string(),
        }
    }

    pub fn io(error: &io::Error, what: impl Display) -> Error {
        Error {
            code: errno::name(error),
            message: format!("{what}: {error}"),
        }
    }
}

/// Adds the failed action to an I/O error.
pub trait Context<T> {
    fn during<D: Display>(self, what: impl FnOnce() -> D) -> Outcome<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn during<D: Display>(self, what: impl FnOnce() -> D) -> Outcome<T> {
        self.map_err(|error| Error::io(&error, what()))
    }
}

impl From<Malformed> for Error {
    fn from(_: Malformed) -> Error {
        Error::new("EINVAL", "the request's payload is malformed")
    }
}
