//! Code that the agent and the warden share: the byte encoding of their protocols, and names of system call errors.

mod codec;
pub mod errno;

pub use codec::{Malformed, Reader, Writer};
