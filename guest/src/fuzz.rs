//! Entry points for the fuzzer and for the tests that replay its corpora (scripts/fuzz). A panic is a finding.

use crate::child_task::Frames;
use crate::protocol::{header, kind, Decoder, Event};
use crate::{share, spawn, tools};
use forkd_wire::Reader;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 3] = [
    ("rust-agent-frames", frames),
    ("rust-agent-requests", requests),
    ("rust-agent-share", share::fuzz),
];

const KEY: &[u8; 16] = b"0123456789abcdef";

/// libFuzzer's entry; the environment names the target.
///
/// # Safety
/// `data` points to `size` bytes.
#[cfg(feature = "fuzz")]
#[no_mangle]
pub unsafe extern "C" fn LLVMFuzzerTestOneInput(data: *const u8, size: usize) -> i32 {
    let input: &[u8] = match size {
        0 => &[],
        // SAFETY: as above.
        _ => unsafe { std::slice::from_raw_parts(data, size) },
    };
    let name = std::env::var("FORKD_FUZZ_TARGET").unwrap_or_default();
    let (_, target) = TARGETS.iter().find(|(one, _)| *one == name).expect("FORKD_FUZZ_TARGET");
    target(input);
    0
}

/// A frame, or the nonce of an attach record
type Heard = Result<(u8, u32, Vec<u8>), [u8; 16]>;

/// At most this many frames end inside an attach record.
const INSIDE_A_RECORD: usize = 4;

/// The same bytes in other pieces must give the same frames, except for the last ones before an attach record: a frame
/// that ends inside the record may be present or not. After two records, of which the first may be taken for the end of
/// earlier bytes, everything is the same.
fn frames(input: &[u8]) {
    let (size, given) = match input.split_first() {
        Some((size, bytes)) => (usize::from(*size) + 1, bytes),
        None => return,
    };
    let record = [&b"forkd-attach/1\r\n"[..], KEY, KEY].concat();
    let ping = header(kind::PING, 1, 0);
    let bytes = &[given, &record, &record, &ping].concat()[..];
    let (whole, pieces) = (decoded(bytes, usize::MAX), decoded(bytes, size));
    let (whole, pieces) = (lives(&whole), lives(&pieces));
    assert_eq!(whole.len(), pieces.len());
    assert_eq!(whole.last(), pieces.last());
    assert_eq!(whole.last(), Some(&&[Err(*KEY), Ok((kind::PING, 1, Vec::new()))][..]));
    for (one, other) in whole.iter().zip(&pieces) {
        let (shorter, longer) = (one.len().min(other.len()), one.len().max(other.len()));
        assert_eq!(one[..shorter], other[..shorter]);
        assert!(longer - shorter <= INSIDE_A_RECORD);
    }
    let mut written = Vec::new();
    let mut frames = Frames::default();
    for (kind, stream, payload) in whole.iter().copied().flatten().flatten() {
        written.extend_from_slice(&header(*kind, *stream, payload.len()));
        written.extend_from_slice(payload);
    }
    frames.push(&written);
    for (kind, stream, payload) in whole.iter().copied().flatten().flatten() {
        let frame = frames.next().expect("a frame that was written");
        assert_eq!(
            (frame.kind, frame.stream, &frame.payload[..]),
            (*kind, *stream, &payload[..])
        );
    }
}

fn decoded(bytes: &[u8], size: usize) -> Vec<Heard> {
    let mut decoder = Decoder::new(KEY);
    let mut heard = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        decoder.fill(|room| {
            let count = rest.len().min(size).min(room.len());
            room[..count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            count
        });
        while let Some(event) = decoder.next() {
            heard.push(match event {
                Event::Attach(nonce) => Err(nonce),
                Event::Frame(frame) => Ok((frame.kind, frame.stream, frame.payload.to_vec())),
            });
        }
    }
    heard
}

/// The events from each attach record on
fn lives(heard: &[Heard]) -> Vec<&[Heard]> {
    let starts: Vec<usize> = (0..heard.len()).filter(|at| heard[*at].is_err()).collect();
    let ends = starts.iter().copied().skip(1).chain([heard.len()]);
    assert!(
        heard.is_empty() || starts.first() == Some(&0),
        "a frame before any attach record"
    );
    starts
        .iter()
        .zip(ends)
        .map(|(start, end)| &heard[*start..end])
        .collect()
}

/// Payloads of requests that start programs, and the fields that all other payloads consist of
fn requests(input: &[u8]) {
    let _ = spawn::Request::read(input);
    let _ = tools::Request::read(input);
    let mut reader = Reader::new(input);
    while !reader.is_empty() {
        let before = reader.rest();
        reader = Reader::new(before);
        let fields = reader.u8().map(|kind| match kind % 8 {
            0 => reader.u16().map(drop),
            1 => reader.u32().map(drop),
            2 => reader.u64().map(drop),
            3 => reader.bytes().map(|bytes| assert!(bytes.len() <= before.len())),
            4 => reader.str().map(drop),
            5 => reader.map().map(|map| assert!(map.len() * 8 <= before.len())),
            6 => reader
                .list(|item| item.u32())
                .map(|list| assert!(list.len() * 4 <= before.len())),
            _ => reader.i64().map(drop),
        });
        if !matches!(fields, Ok(Ok(()))) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_input_of_the_corpora_passes() {
        for (name, target) in super::TARGETS {
            let folder = format!("{}/../scripts/fuzz/corpus/{}", env!("CARGO_MANIFEST_DIR"), name);
            let mut count = 0;
            for file in std::fs::read_dir(folder).unwrap() {
                target(&std::fs::read(file.unwrap().path()).unwrap());
                count += 1;
            }
            assert!(count > 3, "{}", name);
        }
    }
}
