//! Entry points for the fuzzer and for the tests that replay its corpora (scripts/fuzz). A panic is a finding.

use crate::capture::Request;
use crate::clone_spec::CloneSpec;
use crate::delta;
use crate::spawn::Spec;
use crate::sys::PAGE;
use crate::wire::{frame, Splitter};
use forkd_wire::{Reader, Writer};

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 2] = [("rust-warden-wire", wire), ("rust-warden-delta", deltas)];

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

/// The same bytes in other pieces must give the same messages. The requests in them are parsed or refused, never
/// executed.
fn wire(input: &[u8]) {
    let (size, bytes) = match input.split_first() {
        Some((size, bytes)) => (usize::from(*size) + 1, bytes),
        None => return,
    };
    let (whole, problem) = messages(bytes, bytes.len().max(1));
    assert_eq!((&whole, problem), (&messages(bytes, size).0, messages(bytes, size).1));
    let mut written = Vec::new();
    for (op, id, payload) in &whole {
        let payload_of = payload.iter().fold(Writer::default(), |writer, byte| writer.u8(*byte));
        written.extend_from_slice(&frame(*op, *id, &payload_of));
        let reader = &mut Reader::new(payload);
        let _ = Spec::read(reader);
        let reader = &mut Reader::new(payload);
        let _ = (reader.u32(), CloneSpec::read_fork(reader));
        let reader = &mut Reader::new(payload);
        let _ = (reader.path(), reader.list(Reader::path), reader.path());
        let reader = &mut Reader::new(payload);
        let _ = (reader.u32(), Request::read(1, reader));
    }
    assert_eq!(written, bytes[..written.len()]);
}

/// Op, request and payload of each message
type Messages = Vec<(u8, u32, Vec<u8>)>;

fn messages(bytes: &[u8], size: usize) -> (Messages, bool) {
    let mut splitter = Splitter::default();
    let mut found = Vec::new();
    for piece in bytes.chunks(size) {
        splitter.push(piece);
        loop {
            match splitter.next() {
                Ok(Some(message)) => found.push((message.op, message.id, message.payload)),
                Ok(None) => break,
                Err(_) => return (found, true),
            }
        }
    }
    (found, false)
}

/// An input is a number of slots, the fields of a header, and an index, without the zeroes between them. With an odd
/// number of slots the sizes, the checksum and the magic word are corrected.
fn deltas(input: &[u8]) {
    const FIELDS: usize = 56;
    const RAM: u64 = 64 * PAGE as u64;
    if input.len() < 1 + FIELDS {
        return delta::verify(&padded(input), RAM).map(drop).unwrap_or(());
    }
    let slots = usize::from(input[0] / 2) % 16;
    let (fields, index) = input[1..].split_at(FIELDS);
    let mut bytes = padded(fields);
    bytes.resize((1 + slots) * PAGE, 0);
    bytes.extend_from_slice(index);
    if input[0] % 2 == 1 {
        delta::complete(&mut bytes, RAM, (1 + slots) * PAGE);
    }
    if let Ok(runs) = delta::verify(&bytes, RAM) {
        let mut next = 0;
        for run in &runs {
            assert!(run.count > 0 && run.first >= next && run.end() <= RAM / PAGE as u64);
            next = run.end();
            assert!(delta::slot_offset(run.slot) as usize + run.count as usize * PAGE <= (1 + slots) * PAGE);
        }
        let mut joined = Vec::new();
        for run in &runs {
            delta::append(&mut joined, *run);
        }
        let pages = |runs: &[delta::Run]| runs.iter().map(|run| u64::from(run.count)).sum::<u64>();
        assert_eq!(pages(&joined), pages(&runs));
    }
}

fn padded(fields: &[u8]) -> Vec<u8> {
    let mut header = fields.to_vec();
    header.resize(PAGE, 0);
    header
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
            assert!(count > 3, "{name}");
        }
    }
}
