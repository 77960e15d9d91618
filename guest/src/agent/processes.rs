//! The loop's handling of processes.

use super::{Agent, Stream};
use crate::failure::Failure;
use crate::protocol::{kind, Frame};
use crate::spawn::{self, Refusal, Request, Spawned};
use crate::starting::Starting;
use crate::sys;
use forkd_wire::Reader;

impl Agent {
    pub(super) fn exec(&mut self, stream: u32, payload: &[u8]) -> Result<(), Failure> {
        let request = Request::read(payload)?;
        let starting = self.starting.values().any(|other| other.request.tag == request.tag);
        let env = &self.identity.env;
        let checked = self.table.check(&request.tag, starting);
        if checked.is_ok() && !self.shares.is_empty() {
            self.last_start += 1;
            self.starting
                .insert(self.last_start, Starting::begin(request, env, stream)?);
            self.streams.insert(stream, Stream::Starting(self.last_start));
            return Ok(());
        }
        let spawned = checked.and_then(|()| spawn::spawn(&request, env));
        self.start(request, spawned, Some(stream));
        Ok(())
    }

    /// Handles the result of a program's start.
    fn start(&mut self, request: Request, spawned: Result<Spawned, Refusal>, stream: Option<u32>) {
        match spawned {
            Ok(spawned) => {
                let id = self.table.add(request, spawned, stream, &mut self.outbox);
                self.streams.extend(stream.map(|stream| (stream, Stream::Process(id))));
            }
            Err(refusal) => {
                if let Some(stream) = stream {
                    self.outbox.error(stream, &refusal.code, &refusal.message);
                }
            }
        }
    }

    /// Adds the programs whose start has succeeded.
    pub(super) fn started(&mut self) {
        let done: Vec<_> = self
            .starting
            .iter()
            .filter_map(|(id, starting)| Some((*id, starting.outcome()?)))
            .collect();
        for (id, outcome) in done {
            let starting = match self.starting.remove(&id) {
                Some(starting) => starting,
                None => continue,
            };
            starting.stream.map(|stream| self.streams.remove(&stream));
            self.start(starting.request, outcome, starting.stream);
            for frame in starting.frames {
                self.frame(&frame);
            }
        }
    }

    pub(super) fn attach_process(&mut self, stream: u32, payload: &[u8]) -> Result<(), Failure> {
        let mut reader = Reader::new(payload);
        let (id, tag) = (reader.u64()?, reader.str()?);
        let from = [reader.u64()?, reader.u64()?];
        let process = match self.table.find(id, &tag) {
            Some(process) => process,
            None => return Err(Failure::Refused("no_such_process", "no such process")),
        };
        if let Some(former) = process.stream {
            self.streams.remove(&former);
            let message = "another stream took the process over";
            self.outbox.error(former, "taken_over", message);
        }
        process.attach_again(stream, from, &mut self.outbox);
        self.streams.insert(stream, Stream::Process(process.id));
        Ok(())
    }

    pub(super) fn process_frame(&mut self, id: u64, frame: &Frame, reader: &mut Reader) -> Result<(), Failure> {
        let process = match self.table.get(id) {
            Some(process) => process,
            None => return Ok(()),
        };
        match frame.kind {
            kind::SIGNAL => {
                let (signal, scope) = (reader.u32()?, reader.u8()?);
                if process.ended.is_none() && (1..=64).contains(&signal) && scope <= 1 {
                    let target = if scope == 1 { -process.pid } else { process.pid };
                    // it may have ended already
                    let _ = sys::kill(target, signal as i32);
                }
            }
            kind::RESIZE => process.resize(reader.u16()?, reader.u16()?),
            kind::CREDIT => process.credit(reader.u8()?, reader.u32()? as usize),
            kind::DATA => {
                if !process.data(reader.u8()?, reader.rest(), &mut self.outbox) {
                    return Err(Failure::FlowControl);
                }
            }
            kind::EOF => process.eof(reader.u8()?, &mut self.outbox),
            _ => return Err(Failure::Malformed),
        }
        Ok(())
    }
}
