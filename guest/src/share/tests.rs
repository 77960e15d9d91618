//! A share between a guest kernel and a host that the tests simulate.

use super::*;
use crate::child_task::Frames;
use forkd_wire::Writer;
use std::os::unix::io::OwnedFd;
use std::os::unix::net::UnixDatagram;

const FILE: u32 = libc::S_IFREG | 0o644;
const FOLDER: u32 = libc::S_IFDIR | 0o755;

struct World {
    share: Share,
    kernel: UnixDatagram,
    outbox: Outbox,
    unique: u64,
}

impl World {
    fn new() -> World {
        let (kernel, ours) = UnixDatagram::pair().unwrap();
        kernel.set_nonblocking(true).unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut world = World {
            share: Share::new(place(), File::from(OwnedFd::from(ours))),
            kernel,
            outbox: Outbox::default(),
            unique: 0,
        };
        world.share.attach(7);
        world
    }

    /// Sends a request of the guest kernel; returns its number.
    fn ask(&mut self, opcode: u32, node: u64, body: &[u8]) -> u64 {
        self.unique += 2;
        let head = Writer::default().u32(40 + body.len() as u32).u32(opcode);
        let mut request = head.u64(self.unique).u64(node).u64(0).u64(0).0;
        request.extend_from_slice(body);
        self.kernel.send(&request).unwrap();
        self.share
            .ready(&mut self.outbox, &mut [0; fuse::SMALLEST_BUFFER])
            .unwrap();
        self.unique
    }

    /// The answer to the guest kernel: number, errno, body.
    fn heard(&mut self) -> Option<(u64, i32, Vec<u8>)> {
        let mut bytes = [0; 65536];
        let count = self.kernel.recv(&mut bytes).ok()?;
        let mut reader = Reader::new(&bytes[..count]);
        assert_eq!(reader.u32(), Ok(count as u32));
        let errno = -(reader.u32().unwrap() as i32);
        Some((reader.u64().unwrap(), errno, reader.rest().to_vec()))
    }

    /// Queries sent to the host since the last call: id, op, inode, offset, path.
    fn sent(&mut self) -> Vec<(u64, u8, u64, u64, Vec<u8>)> {
        let mut bytes = Vec::new();
        self.outbox.write_to(&mut bytes).unwrap();
        let mut frames = Frames::default();
        frames.push(&bytes);
        let mut stream = Vec::new();
        while let Some(frame) = frames.next() {
            if frame.kind == kind::DATA {
                stream.extend_from_slice(&frame.payload[1..]);
            }
        }
        let mut found = Vec::new();
        let mut rest = &stream[..];
        while !rest.is_empty() {
            let mut reader = Reader::new(rest);
            reader.u32().unwrap();
            let (id, op, inode) = (reader.u64().unwrap(), reader.u8().unwrap(), reader.u64().unwrap());
            let offset = reader.u64().unwrap();
            reader.u32().unwrap();
            found.push((id, op, inode, offset, reader.bytes().unwrap().to_vec()));
            rest = reader.rest();
        }
        found
    }

    /// Sends an answer of the host.
    fn tell(&mut self, id: u64, errno: u32, body: &[u8]) {
        let mut record = Writer::default().u32(12 + body.len() as u32).u64(id).u32(errno).0;
        record.extend_from_slice(body);
        self.share
            .data(&record, &mut self.outbox)
            .map_err(|_| "refused")
            .unwrap();
    }

    /// Looks up an existing name; returns its node.
    fn look_up(&mut self, parent: u64, name: &str, inode: u64, mode: u32) -> u64 {
        let id = self.ask(op::LOOKUP, parent, format!("{}\0", name).as_bytes());
        self.tell(id, 0, &attributes(inode, mode));
        let (unique, errno, body) = self.heard().unwrap();
        assert_eq!((unique, errno, body.len()), (id, 0, 128));
        Reader::new(&body).u64().unwrap()
    }
}

fn place() -> Place {
    Place {
        target: "/mnt".to_string(),
        name: "one".to_string(),
    }
}

fn attributes(inode: u64, mode: u32) -> Vec<u8> {
    let sizes = Writer::default().u64(inode).u64(3).u64(8);
    sizes.i64(1).i64(2).i64(3).u32(mode).u32(1).0
}

fn range(handle: u64, offset: u64, size: u32) -> Vec<u8> {
    let body = Writer::default().u64(handle).u64(offset).u32(size).u32(0);
    body.u64(0).u64(0).0
}

#[test]
fn requests_by_path_and_answers_by_number() {
    let mut world = World::new();
    let folder = world.look_up(1, "sub", 10, FOLDER);
    let file = world.look_up(folder, "file", 11, FILE);
    assert_eq!(world.sent()[1].4, b"sub/file");
    let id = world.ask(op::READ, file, &range(0, 4096, 8192));
    assert_eq!(world.sent(), [(id, Op::Read as u8, 11, 4096, b"sub/file".to_vec())]);
    world.tell(id, 0, b"content");
    assert_eq!(world.heard(), Some((id, 0, b"content".to_vec())));
    let id = world.ask(op::GETATTR, 1, &[0; 16]);
    assert_eq!(world.sent(), [(id, Op::Stat as u8, 0, 0, Vec::new())]);
    world.tell(id, libc::EACCES as u32, b"");
    assert_eq!(world.heard(), Some((id, libc::EACCES, Vec::new())));
}

#[test]
fn missing_names_are_cached() {
    let mut world = World::new();
    let id = world.ask(op::LOOKUP, 1, b"none\0");
    world.tell(id, libc::ENOENT as u32, b"");
    let (_, errno, body) = world.heard().unwrap();
    assert_eq!((errno, Reader::new(&body).u64()), (0, Ok(0)));
}

#[test]
fn changes_are_refused_without_a_request_to_the_host() {
    let mut world = World::new();
    let file = world.look_up(1, "file", 11, FILE);
    world.sent();
    for opcode in [
        op::WRITE,
        op::SETATTR,
        op::MKDIR,
        op::UNLINK,
        op::RENAME2,
        op::CREATE,
        op::SETXATTR,
    ] {
        let id = world.ask(opcode, file, &[0; 64]);
        assert_eq!(world.heard(), Some((id, libc::EROFS, Vec::new())));
    }
    for (flags, errno) in [
        (0, libc::ENOSYS),
        (1, libc::EROFS),
        (2, libc::EROFS),
        (0o2001, libc::EROFS),
    ] {
        let id = world.ask(op::OPEN, file, &Writer::default().u32(flags).u32(0).0);
        assert_eq!(
            world.heard().map(|(unique, errno, _)| (unique, errno)),
            Some((id, errno))
        );
    }
    let id = world.ask(22, file, b"");
    assert_eq!(world.heard(), Some((id, libc::ENOSYS, Vec::new())));
    assert!(world.sent().is_empty());
}

#[test]
fn a_replaced_file_is_stale() {
    let mut world = World::new();
    let file = world.look_up(1, "file", 11, FILE);
    let id = world.ask(op::GETATTR, file, &[0; 16]);
    world.tell(id, 0, &attributes(12, FILE));
    assert_eq!(world.heard(), Some((id, libc::ESTALE, Vec::new())));
    assert_ne!(world.look_up(1, "file", 12, FILE), file);
}

#[test]
fn a_folder_is_requested_in_large_parts_and_returned_in_small_ones() {
    let mut world = World::new();
    let id = world.ask(op::OPENDIR, 1, &[0; 8]);
    let (_, errno, body) = world.heard().unwrap();
    assert_eq!((errno, body.len(), id), (0, 16, 2));
    let handle = Reader::new(&body).u64().unwrap();
    let mut listed = vec![1];
    for (at, name) in ["a", "b", "c"].iter().enumerate() {
        listed.extend(Writer::default().u64(at as u64 + 1).0);
        listed.extend(attributes(20 + at as u64, FILE));
        listed.extend(Writer::default().str(name).0);
    }
    // the two dots and one name
    let id = world.ask(op::READDIR, 1, &range(handle, 0, 96));
    assert_eq!(world.sent(), [(id, Op::List as u8, 0, 0, Vec::new())]);
    world.tell(id, 0, &listed);
    assert_eq!(world.heard().unwrap().2.len(), 96);
    // the other two, and then the end, without a query to the host
    let id = world.ask(op::READDIR, 1, &range(handle, 3, 4096));
    let (unique, _, body) = world.heard().unwrap();
    assert_eq!((unique, body.len()), (id, 64));
    let id = world.ask(op::READDIR, 1, &range(handle, 5, 4096));
    assert_eq!(world.heard(), Some((id, 0, Vec::new())));
    assert!(world.sent().is_empty());
    // back at the beginning: queried again
    let id = world.ask(op::READDIR, 1, &range(handle, 0, 4096));
    assert_eq!(world.sent(), [(id, Op::List as u8, 0, 0, Vec::new())]);
}

#[test]
fn continues_with_another_host_end() {
    let mut world = World::new();
    let file = world.look_up(1, "file", 11, FILE);
    let id = world.ask(op::READ, file, &range(0, 0, 4096));
    world.sent();
    world.share.detach();
    let late = world.ask(op::GETATTR, file, &[0; 16]);
    assert!(world.sent().is_empty());
    world.share.attach(8);
    world.share.pump(&mut world.outbox);
    let again: Vec<_> = world.sent().iter().map(|question| question.0).collect();
    assert_eq!(again, [id, late]);
    world.tell(id, 0, b"x");
    assert_eq!(world.heard(), Some((id, 0, b"x".to_vec())));
    // an answer to a withdrawn request
    world.tell(id, 0, b"x");
    assert_eq!(world.heard(), None);
}

#[test]
fn an_interrupted_read_waits_only_for_a_host_that_answers() {
    let mut world = World::new();
    let file = world.look_up(1, "file", 11, FILE);
    let id = world.ask(op::GETATTR, file, &[0; 16]);
    world.ask(op::INTERRUPT, 0, &Writer::default().u64(id).0);
    assert_eq!(world.heard(), None);
    world.share.detach();
    world.ask(op::INTERRUPT, 0, &Writer::default().u64(id).0);
    assert_eq!(world.heard(), Some((id, libc::EINTR, Vec::new())));
    world.sent();
    world.share.attach(8);
    world.share.pump(&mut world.outbox);
    assert!(world.sent().is_empty());
}

#[test]
fn requests_only_within_its_credit() {
    let mut world = World::new();
    let name = format!("{}\0", "n".repeat(255));
    let mut asked = 0;
    // the simulated kernel's socket does not fill up, so a few requests use up most of the credit
    world.share.link.as_mut().unwrap().credit = 1000;
    for _ in 0..10 {
        world.ask(op::LOOKUP, 1, name.as_bytes());
        asked += world.sent().len();
    }
    assert_eq!(asked, 3);
    let payload = Writer::default().u32(100_000).0;
    let result = world
        .share
        .frame(kind::CREDIT, &mut Reader::new(&payload), &mut world.outbox);
    assert!(result.is_ok());
    world
        .share
        .ready(&mut world.outbox, &mut [0; fuse::SMALLEST_BUFFER])
        .unwrap();
    assert_eq!(world.sent().len(), 7);
}

#[test]
fn an_invalid_answer_ends_the_share() {
    let mut world = World::new();
    assert!(world.share.data(&[0xff; 8], &mut world.outbox).is_err());
    let mut world = World::new();
    let id = world.ask(op::LOOKUP, 1, b"a\0");
    world.tell(id, 0, b"too short");
    assert_eq!(world.heard(), Some((id, libc::EIO, Vec::new())));
}
