//! A share between a guest kernel and a host that both send arbitrary bytes.

use super::*;
use crate::child_task::Frames;
use forkd_wire::Writer;
use std::collections::BTreeSet;
use std::os::unix::io::OwnedFd;
use std::os::unix::net::UnixDatagram;

const STREAM: u32 = 7;
const LONGEST_PATH: usize = 4096;
const MOST_STEPS: usize = 64;

/// An input is a list of steps: requests of the guest kernel, answers of the host, and hosts that attach and detach.
pub fn fuzz(input: &[u8]) {
    let (kernel, ours) = UnixDatagram::pair().unwrap();
    kernel.set_nonblocking(true).unwrap();
    ours.set_nonblocking(true).unwrap();
    let place = Place {
        target: String::from("/mnt"),
        name: String::from("one"),
    };
    let mut world = World {
        share: Share::new(place, File::from(OwnedFd::from(ours))),
        kernel,
        outbox: Outbox::default(),
        asked: BTreeSet::new(),
        last: 0,
    };
    world.share.attach(STREAM);
    let mut reader = Reader::new(input);
    for _ in 0..MOST_STEPS {
        if world.step(&mut reader).is_err() {
            break;
        }
        world.check();
    }
}

struct World {
    share: Share,
    kernel: UnixDatagram,
    outbox: Outbox,
    /// Requests of the guest kernel by number
    asked: BTreeSet<u64>,
    last: u64,
}

impl World {
    /// An error: the input has ended, or the host has violated the protocol, after which the agent ends the stream.
    fn step(&mut self, reader: &mut Reader) -> Result<(), Malformed> {
        match reader.u8()? % 8 {
            // a request with a valid header
            0..=2 => {
                let (opcode, node) = (u32::from(reader.u8()?), u64::from(reader.u8()?));
                let body = short(reader)?;
                self.last += 2;
                let head = Writer::default().u32(40 + body.len() as u32).u32(opcode);
                let mut request = head.u64(self.last).u64(node).u64(0).u64(0).0;
                request.extend_from_slice(body);
                self.ask(&request, self.last);
            }
            3 => {
                let request = short(reader)?;
                let unique = Reader::new(request.get(8..).unwrap_or_default()).u64().unwrap_or(0);
                self.ask(request, unique);
            }
            // an answer with a valid header, to one of the last requests
            4 | 5 => {
                let id = self.last.saturating_sub(2 * u64::from(reader.u8()? % 8));
                let errno = u32::from(reader.u8()?);
                let body = short(reader)?;
                let mut record = Writer::default().u32(12 + body.len() as u32).u64(id).u32(errno).0;
                record.extend_from_slice(body);
                self.share.data(&record, &mut self.outbox).map_err(|_| Malformed)?;
            }
            6 => {
                let payload = short(reader)?;
                let kind = [kind::DATA, kind::CREDIT, kind::EOF][usize::from(reader.u8()? % 3)];
                let mut payload = Reader::new(payload);
                self.share
                    .frame(kind, &mut payload, &mut self.outbox)
                    .map_err(|_| Malformed)?;
            }
            _ => match reader.u8()? % 2 {
                0 => drop(self.share.detach()),
                _ => drop(self.share.attach(STREAM)),
            },
        }
        Ok(())
    }

    fn ask(&mut self, request: &[u8], unique: u64) {
        // the guest kernel sends no request that is larger than the socket accepts
        if self.kernel.send(request).is_ok() {
            self.asked.insert(unique);
            self.share
                .ready(&mut self.outbox, &mut [0; fuse::SMALLEST_BUFFER])
                .unwrap();
        }
    }

    /// Checks that answers to the guest kernel and queries to the host are well-formed.
    fn check(&mut self) {
        let mut bytes = [0; 65536];
        while let Ok(count) = self.kernel.recv(&mut bytes) {
            let mut reader = Reader::new(&bytes[..count]);
            assert_eq!(reader.u32(), Ok(count as u32));
            let errno = -i64::from(reader.u32().unwrap() as i32);
            assert!((0..4096).contains(&errno));
            assert!(self.asked.contains(&reader.u64().unwrap()), "an answer to no request");
            assert!(errno == 0 || reader.is_empty());
        }
        let mut sent = Vec::new();
        self.outbox.write_to(&mut sent).unwrap();
        let mut frames = Frames::default();
        frames.push(&sent);
        while let Some(frame) = frames.next() {
            assert_eq!(frame.stream, STREAM);
            if frame.kind != kind::DATA {
                continue;
            }
            let mut reader = Reader::new(&frame.payload[1..]);
            let mut question = Reader::new(reader.bytes().unwrap());
            assert!(reader.is_empty());
            assert!(self.asked.contains(&question.u64().unwrap()));
            assert!((1..=4).contains(&question.u8().unwrap()));
            question
                .u64()
                .and_then(|_| question.u64())
                .and_then(|_| question.u32())
                .unwrap();
            let path = question.bytes().unwrap();
            assert!(path.len() <= LONGEST_PATH && question.is_empty());
        }
        assert!(self.share.pending.len() <= self.asked.len());
    }
}

fn short<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let length = usize::from(reader.u16()?) % 1024;
    let rest = reader.rest();
    let (taken, left) = rest.split_at(length.min(rest.len()));
    *reader = Reader::new(left);
    Ok(taken)
}
