//! Programs that a child of the agent starts, because their path and folder may lead into a share.

use crate::child_task::ChildTask;
use crate::protocol::Frame;
use crate::spawn::{self, Ends, Env, Refusal, Request, Spawned};
use crate::sys;
use forkd_wire::{Malformed, Reader, Writer};
use std::fs::File;
use std::io;
use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

const MESSAGE: usize = 4096;

/// A program that is being started.
pub struct Starting {
    pub request: Request,
    pub stream: Option<u32>,
    /// Frames of the host for the program; they are delivered when it runs.
    pub frames: Vec<Frame<'static>>,
    child: ChildTask,
}

impl Starting {
    pub fn begin(request: Request, shared: &Env, stream: u32) -> io::Result<Starting> {
        let child = ChildTask::start(&[], |socket| {
            let outcome = spawn::spawn(&request, shared);
            // the agent waits only for this message
            let _ = send(&socket, &outcome);
        })?;
        Ok(Starting {
            request,
            stream: Some(stream),
            frames: Vec::new(),
            child,
        })
    }

    /// Another host has attached; the program runs without a stream.
    pub fn detach(&mut self) {
        self.stream = None;
        self.frames.clear();
    }

    pub fn interest(&self) -> (RawFd, i16) {
        (self.child.socket.as_raw_fd(), sys::POLLIN)
    }

    /// The result; `None` until there is one. It arrives before the program's end can: until the child has reported,
    /// the program is the child's child and not the agent's.
    pub fn outcome(&self) -> Option<Result<Spawned, Refusal>> {
        let mut bytes = [0; MESSAGE];
        match sys::receive_with_fds(&self.child.socket, &mut bytes) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock || e.kind() == io::ErrorKind::Interrupted => None,
            Ok((count, fds)) => Some(receive(&bytes[..count], fds).unwrap_or_else(|Malformed| Err(lost()))),
            Err(_) => Some(Err(lost())),
        }
    }
}

fn lost() -> Refusal {
    Refusal {
        code: "EIO".to_string(),
        message: "the program could not be started".to_string(),
    }
}

fn send(socket: &UnixStream, outcome: &Result<Spawned, Refusal>) -> io::Result<()> {
    let spawned = match outcome {
        Ok(spawned) => spawned,
        Err(refusal) => {
            let text = refusal.message.chars().take(MESSAGE / 8).collect::<String>();
            let message = Writer::default().u8(0).str(&refusal.code).str(&text);
            return sys::send_with_fds(socket, &message.0, &[]);
        }
    };
    let ends = &spawned.ends;
    let stdin = ends.stdin.as_ref().map(File::as_raw_fd);
    let stderr = ends.stderr.as_ref().map(File::as_raw_fd);
    let control = ends.control.as_ref().map(UnixStream::as_raw_fd);
    let mut message = Writer::default().u8(1).i32(spawned.pid).str(&spawned.user);
    message = message.u8(ends.terminal as u8);
    let mut fds = vec![ends.stdout.as_raw_fd()];
    for fd in [stdin, stderr, control] {
        message = message.u8(fd.is_some() as u8);
        fds.extend(fd);
    }
    sys::send_with_fds(socket, &message.0, &fds)
}

fn receive(bytes: &[u8], fds: Vec<File>) -> Result<Result<Spawned, Refusal>, Malformed> {
    let mut reader = Reader::new(bytes);
    if reader.u8()? == 0 {
        return Ok(Err(Refusal {
            code: reader.str()?,
            message: reader.str()?,
        }));
    }
    let (pid, user, terminal) = (reader.u32()? as i32, reader.str()?, reader.u8()? == 1);
    let mut fds = fds.into_iter();
    let stdout = fds.next().ok_or(Malformed)?;
    let mut next = || -> Result<Option<File>, Malformed> {
        match reader.u8()? {
            0 => Ok(None),
            _ => fds.next().map(Some).ok_or(Malformed),
        }
    };
    let (stdin, stderr, control) = (next()?, next()?, next()?);
    let ends = Ends {
        stdin,
        stdout,
        stderr,
        control: control.map(|file| UnixStream::from(OwnedFd::from(file))),
        terminal,
    };
    Ok(Ok(Spawned { pid, user, ends }))
}
