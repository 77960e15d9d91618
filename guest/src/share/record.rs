//! Queries and answers between the agent and the host about a share: records inside the DATA of its stream.

use crate::fuse::Attributes;
use forkd_wire::{Malformed, Reader, Writer};

/// The largest answer: that of a read, with its header.
const LARGEST: usize = crate::fuse::LARGEST_READ as usize + 64;

/// Operations of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Stat = 1,
    List = 2,
    Read = 3,
    Link = 4,
}

/// A query that needs no state of earlier ones.
pub struct Question<'a> {
    pub op: Op,
    /// The expected file; 0: any.
    pub inode: u64,
    pub offset: u64,
    pub size: u32,
    pub path: &'a [u8],
}

impl Question<'_> {
    pub fn record(&self, id: u64) -> Vec<u8> {
        let body = Writer::default().u64(id).u8(self.op as u8).u64(self.inode);
        let mut body = body.u64(self.offset).u32(self.size).u32(self.path.len() as u32).0;
        body.extend_from_slice(self.path);
        let mut record = Writer::default().u32(body.len() as u32).0;
        record.extend_from_slice(&body);
        record
    }
}

/// An answer: an errno or a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    pub id: u64,
    pub body: Result<&'a [u8], i32>,
}

/// Cuts received bytes into answers.
#[derive(Default)]
pub struct Answers {
    bytes: Vec<u8>,
    at: usize,
}

impl Answers {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    pub fn next(&mut self) -> Result<Option<Answer<'_>>, Malformed> {
        let rest = &self.bytes[self.at..];
        if rest.len() < 4 {
            return Ok(None);
        }
        let length = Reader::new(rest).u32()? as usize;
        if length > LARGEST {
            return Err(Malformed);
        }
        let record = match rest.get(4..4 + length) {
            Some(record) => record,
            None => return Ok(None),
        };
        self.at += 4 + length;
        let mut reader = Reader::new(record);
        let (id, errno) = (reader.u64()?, reader.u32()?);
        let body = match errno {
            0 => Ok(reader.rest()),
            1..=4095 => Err(errno as i32),
            _ => return Err(Malformed),
        };
        Ok(Some(Answer { id, body }))
    }
}

pub fn attributes(reader: &mut Reader) -> Result<Attributes, Malformed> {
    Ok(Attributes {
        inode: reader.u64()?,
        size: reader.u64()?,
        blocks: reader.u64()?,
        times: [reader.i64()?, reader.i64()?, reader.i64()?],
        mode: reader.u32()?,
        links: reader.u32()?,
    })
}

/// A name in a folder; `next` is the offset after it.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    pub next: u64,
    pub attributes: Attributes,
    pub name: Vec<u8>,
}

/// A part of a folder, and whether it is the last one.
pub fn entries(body: &[u8]) -> Result<(Vec<Entry>, bool), Malformed> {
    let mut reader = Reader::new(body);
    let complete = reader.u8()? == 1;
    let mut entries = Vec::new();
    let mut rest = reader.rest();
    while !rest.is_empty() {
        let mut reader = Reader::new(rest);
        entries.push(Entry {
            next: reader.u64()?,
            attributes: attributes(&mut reader)?,
            name: reader.bytes()?.to_vec(),
        });
        rest = reader.rest();
    }
    Ok((entries, complete))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(id: u64, errno: u32, body: &[u8]) -> Vec<u8> {
        let mut record = Writer::default().u32(12 + body.len() as u32).u64(id).u32(errno).0;
        record.extend_from_slice(body);
        record
    }

    /// The DATA of a golden frame.
    fn golden(name: &str) -> Vec<u8> {
        let folder = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../spec/frames");
        std::fs::read(folder.join(format!("{}.bin", name))).unwrap()[13..].to_vec()
    }

    #[test]
    fn records_match_the_spec() {
        let question = Question {
            op: Op::Read,
            inode: 7,
            offset: 1 << 40,
            size: 4096,
            path: "a/ü".as_bytes(),
        };
        assert_eq!(question.record(9), golden("share-question"));
        let file = Attributes {
            inode: 5,
            size: 6,
            blocks: 8,
            times: [-1, 2, 3],
            mode: libc::S_IFREG | 0o644,
            links: 1,
        };
        let mut answers = Answers::default();
        for name in ["share-stat", "share-list", "share-error"] {
            answers.push(&golden(name));
        }
        let stat = answers.next().unwrap().unwrap();
        assert_eq!(stat.id, 9);
        assert_eq!(attributes(&mut Reader::new(stat.body.unwrap())), Ok(file.clone()));
        let (found, complete) = entries(answers.next().unwrap().unwrap().body.unwrap()).unwrap();
        let entry = |next: u64, name: &str| Entry {
            next,
            attributes: file.clone(),
            name: name.as_bytes().to_vec(),
        };
        assert_eq!((found, complete), (vec![entry(1, "a"), entry(4, "ü")], true));
        let error = answers.next().unwrap().unwrap();
        assert_eq!(error, Answer { id: 9, body: Err(2) });
    }

    #[test]
    fn answers_may_be_split_anywhere() {
        let mut sent = answer(1, 0, b"content");
        sent.extend(answer(2, 2, b""));
        sent.extend(answer(3, 0, b""));
        for size in 1..sent.len() {
            let mut answers = Answers::default();
            let mut found = Vec::new();
            for piece in sent.chunks(size) {
                answers.push(piece);
                while let Some(Answer { id, body }) = answers.next().unwrap() {
                    found.push((id, body.map(|body| body.to_vec())));
                }
            }
            assert_eq!(found, [(1, Ok(b"content".to_vec())), (2, Err(2)), (3, Ok(Vec::new()))]);
        }
    }

    #[test]
    fn refuses_invalid_answers() {
        let too_long = Writer::default().u32(LARGEST as u32 + 1).0;
        let too_short = Writer::default().u32(3).u8(0).u8(0).u8(0).0;
        for bad in [too_long, too_short, answer(1, 4096, b"")] {
            let mut answers = Answers::default();
            answers.push(&bad);
            assert_eq!(answers.next(), Err(Malformed));
        }
    }

    #[test]
    fn reads_a_folder() {
        let one = |next: u64, name: &str| {
            let times = Writer::default().u64(next).u64(5).u64(6).u64(8).i64(-1).i64(2).i64(3);
            times.u32(0o100644).u32(1).str(name).0
        };
        let mut body = vec![1];
        body.extend(one(1, "a"));
        body.extend(one(4, "ü"));
        let (found, complete) = entries(&body).unwrap();
        assert!(complete);
        assert_eq!((found[0].next, &found[0].name[..]), (1, &b"a"[..]));
        assert_eq!(found[1].name, "ü".as_bytes());
        assert_eq!((found[1].attributes.inode, found[1].attributes.times), (5, [-1, 2, 3]));
        assert_eq!(entries(&[0]), Ok((Vec::new(), false)));
        assert_eq!(entries(&body[..body.len() - 1]), Err(Malformed));
        assert_eq!(entries(&[]), Err(Malformed));
    }
}
