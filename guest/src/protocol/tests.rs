//! The codec against the golden frames, and the decoder against random bytes.

use super::*;
use forkd_wire::{Malformed, Reader, Writer};
use std::fs;
use std::path::PathBuf;

const KEY: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../spec/frames")
}

fn golden(name: &str) -> Vec<u8> {
    fs::read(folder().join(format!("{}.bin", name))).unwrap()
}

fn record() -> Vec<u8> {
    golden("attach-record")
}

fn nonce() -> [u8; 16] {
    let mut nonce = [0; 16];
    nonce.copy_from_slice(&record()[32..]);
    nonce
}

fn frame(kind: u8, stream: u32, payload: Writer) -> Vec<u8> {
    let mut out = header(kind, stream, payload.0.len()).to_vec();
    out.extend_from_slice(&payload.0);
    out
}

fn w() -> Writer {
    Writer::default()
}

fn raw(mut writer: Writer, bytes: &[u8]) -> Writer {
    writer.0.extend_from_slice(bytes);
    writer
}

/// Every golden frame as this codec writes it.
fn all() -> Vec<(&'static str, Vec<u8>)> {
    let max = u64::MAX;
    let entropy: Vec<u8> = (0..32).map(|i| (i % 16 * 17) as u8).collect();
    let list = w().u32(2).u64(1).u32(80).str("kernel/python");
    let list = list.u32(2).str("python3").str("-u").u8(1).i32(0).u32(0);
    let list = list.u8(0).u8(0).u8(0).i64(1_731_657_600_000);
    let list = list.str("/").str("root").u64(0).u64(17);
    let list = list.u64(2).u32(81).str("").u32(2).str("schlaf");
    let list = list.str("über").u8(0).i32(-1).u32(9).u8(1).u8(1).u8(0);
    let list = list.i64(-1).str("/home/ü").str("1000").u64(4_294_967_297);
    let list = list.u64(0).u8(1);
    let terminal = w().u8(12).u64(0).str("shell").u32(1).str("bash");
    let terminal = terminal.u32(0).str("").str("ann");
    let size = |rows: u16, cols: u16| [rows.to_le_bytes(), cols.to_le_bytes()].concat();
    let hello = w().u32(2).str("0.1.0").str("6.1.0-54-cloud-amd64");
    let stat = w().u8(b'f').u32(0o640).u32(1000).u32(1001);
    let resynced = w().i64(1_731_657_600_000_000_001);
    let resynced = resynced.str("4d14c069-3b9c-4d98-90fd-0d45148c9033");
    let exec = w().u8(3).u64(30_000).str("kernel/python").u32(4);
    let exec = exec.str("python3").str("-c").str("print('ä')").str("");
    let exec = exec.u32(2).str("A").str("1").str("LEER").str("");
    let resync = raw(w().i64(-1).u32(32), &entropy).str("sandbox-1");
    let resync = resync.str("0123456789abcdef0123456789abcdef").str("sb-1");
    let tool = w().u32(5).str("list").bytes(b"/tmp/\xff").str("1").str("1000").str("");
    let data = b"\x00\xff\r\nforkd";
    let dial = w().str("203.0.113.10").u32(443);
    let dial = dial.u32(2).str("example.org").str("www.example.org");
    let query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04test\x00\x00\x01\x00\x01";
    let resolved = w().bytes(query).str("test").u32(2);
    let resolved = resolved.str("203.0.113.10").str("2001:db8::10");
    let share = |length: u32| w().u8(0).u32(length).u64(9);
    let question = share(37).u8(3).u64(7).u64(1 << 40).u32(4096).str("a/ü");
    let attributes = |out: Writer| {
        let sizes = out.u64(5).u64(6).u64(8);
        sizes.i64(-1).i64(2).i64(3).u32(0o100_644).u32(1)
    };
    let listed = attributes(share(152).u32(0).u8(1).u64(1)).str("a");
    let listed = attributes(listed.u64(4)).str("ü");
    vec![
        ("hello", frame(kind::HELLO, 0, hello.u32(3).u64(4_294_967_297))),
        ("ping", frame(kind::PING, 1, w())),
        ("result-empty", frame(kind::RESULT, 1, w())),
        ("result-ping", frame(kind::RESULT, 1, w().u64(4_294_967_297))),
        (
            "result-clock",
            frame(kind::RESULT, 16, w().i64(1_731_657_600_000_000_001).u64(4_294_967_297)),
        ),
        ("result-list", frame(kind::RESULT, 2, list)),
        ("result-read", frame(kind::RESULT, 3, w().u64(20_000_000))),
        (
            "result-stat",
            frame(
                kind::RESULT,
                4,
                stat.u64(1 << 33)
                    .i64(1_731_657_600_123_456_789)
                    .str("ann")
                    .str("")
                    .bytes(b"../\xfe"),
            ),
        ),
        (
            "result-resync",
            frame(
                kind::RESULT,
                5,
                resynced
                    .u32(1)
                    .str("hostname")
                    .str("Operation not permitted")
                    .u32(1)
                    .str("python/random"),
            ),
        ),
        (
            "error",
            frame(kind::ERROR, 6, w().str("ENOENT").str("/nirgendwo: gibt’s nicht")),
        ),
        ("credit", frame(kind::CREDIT, 7, w().u8(1).u32(65536))),
        ("data", frame(kind::DATA, 7, raw(w().u8(2), data))),
        ("data-empty", frame(kind::DATA, 7, w().u8(0))),
        ("eof", frame(kind::EOF, u32::MAX, w().u8(0))),
        ("cancel", frame(kind::CANCEL, 8, w())),
        ("exec", frame(kind::EXEC, 9, exec.str("/root").str("1000:1000"))),
        ("exec-terminal", frame(kind::EXEC, 9, raw(terminal, &size(24, 65535)))),
        (
            "started",
            frame(kind::STARTED, 9, w().u64(max).u32(123).u64(262_144).u64(0)),
        ),
        ("exit", frame(kind::EXIT, 9, w().i32(3).u32(0).u8(0))),
        ("exit-signal", frame(kind::EXIT, 9, w().i32(-1).u32(9).u8(1))),
        ("signal", frame(kind::SIGNAL, 9, w().u32(2).u8(1))),
        (
            "attach",
            frame(kind::ATTACH, 10, w().u64(0).str("kernel/node").u64(max).u64(7)),
        ),
        ("list", frame(kind::LIST, 11, w().u64(3))),
        ("resize", frame(kind::RESIZE, 9, raw(w(), &size(50, 132)))),
        (
            "read",
            frame(
                kind::READ,
                12,
                w().bytes(b"/etc/host\xffname").u64(5).u64(max).str("ann"),
            ),
        ),
        (
            "write",
            frame(
                kind::WRITE,
                13,
                w().str("/tmp/a/b").u32(0o755).u8(12).u64(1 << 32).str(""),
            ),
        ),
        ("stat", frame(kind::STAT, 14, w().str("/").u8(1).str("1000:1000"))),
        ("tool", frame(kind::TOOL, 18, tool.str("ann"))),
        (
            "mkdir",
            frame(kind::MKDIR, 19, w().str("/srv/a b").u32(0o755).u8(1).str("")),
        ),
        (
            "move",
            frame(kind::MOVE, 20, w().str("/a").str("/b\n").u8(0).str("ann")),
        ),
        ("remove", frame(kind::REMOVE, 21, w().str("/a").str(""))),
        ("chmod", frame(kind::CHMOD, 22, w().str("/a").u32(0o4711).str(""))),
        (
            "chown",
            frame(kind::CHOWN, 23, w().str("/a").str("ann").str("").str("")),
        ),
        ("symlink", frame(kind::SYMLINK, 24, w().str("../x").str("/a").str("0"))),
        (
            "resync",
            frame(
                kind::RESYNC,
                15,
                resync
                    .u32(1)
                    .str("FORKD")
                    .str("1")
                    .str("4d14c069-3b9c-4d98-90fd-0d45148c9033"),
            ),
        ),
        ("clock", frame(kind::CLOCK, 16, w().i64(1_731_657_600_000_000_000))),
        ("poweroff", frame(kind::POWEROFF, 17, w())),
        (
            "regions",
            frame(
                kind::REGIONS,
                18,
                w().str("kernel/python")
                    .u32(1)
                    .str("python/random")
                    .u64(1 << 46)
                    .u32(2496)
                    .u8(1),
            ),
        ),
        ("connect", frame(kind::CONNECT, 19, w().str("127.0.0.1").u32(8080))),
        ("opened", frame(kind::OPENED, 19, w())),
        ("dial", frame(kind::DIAL, 1 << 31, dial)),
        ("resolve", frame(kind::RESOLVE, u32::MAX, w().bytes(query))),
        ("result-resolve", frame(kind::RESULT, u32::MAX, resolved)),
        ("network", frame(kind::NETWORK, 20, w().u8(1))),
        ("hold", frame(kind::HOLD, 21, w().u8(1))),
        ("metrics", frame(kind::METRICS, 22, w())),
        (
            "result-metrics",
            frame(
                kind::RESULT,
                22,
                w().u64(150)
                    .u64(990)
                    .u64(1 << 28)
                    .u64(1 << 27)
                    .u64(1 << 20)
                    .u64(1 << 33)
                    .u64(1 << 32),
            ),
        ),
        ("listeners", frame(kind::LISTENERS, 20, w().u8(1))),
        (
            "result-listeners",
            frame(
                kind::RESULT,
                20,
                w().u32(2)
                    .str("127.0.0.1")
                    .u32(8000)
                    .u32(80)
                    .str("python3")
                    .str("::")
                    .u32(22)
                    .u32(0)
                    .str(""),
            ),
        ),
        ("mount", frame(kind::MOUNT, 30, w().str("/mnt/ü").str("0123abcd"))),
        ("unmount", frame(kind::UNMOUNT, 31, w().str("/mnt/ü"))),
        ("share-question", frame(kind::DATA, 30, question)),
        ("share-stat", frame(kind::DATA, 30, attributes(share(68).u32(0)))),
        ("share-list", frame(kind::DATA, 30, listed)),
        ("share-error", frame(kind::DATA, 30, share(12).u32(2))),
    ]
}

/// Feeds the pieces in order; returns the events.
fn decode<'a>(decoder: &mut Decoder, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Event<'static>> {
    let mut events = Vec::new();
    for piece in pieces {
        decoder.fill(|room| {
            room[..piece.len()].copy_from_slice(piece);
            piece.len()
        });
        while let Some(event) = decoder.next() {
            events.push(match event {
                Event::Attach(nonce) => Event::Attach(nonce),
                Event::Frame(frame) => Event::Frame(Frame {
                    payload: Cow::Owned(frame.payload.into_owned()),
                    ..frame
                }),
            });
        }
        assert!(decoder.held() <= HEADER + MAX_PAYLOAD + RECORD + piece.len());
    }
    events
}

fn attached() -> Decoder {
    let mut decoder = Decoder::new(&KEY);
    let record = record();
    let events = decode(&mut decoder, [record.as_slice()]);
    assert_eq!(events, [Event::Attach(nonce())]);
    decoder
}

/// xorshift64*: the same bytes on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}

#[test]
fn golden_frames() {
    for (name, bytes) in all() {
        assert_eq!(bytes, golden(name), "{}", name);
        let events = decode(&mut attached(), [bytes.as_slice()]);
        let expected = Frame {
            kind: bytes[4],
            stream: u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            payload: Cow::Borrowed(&bytes[HEADER..]),
        };
        assert_eq!(events, [Event::Frame(expected)], "{}", name);
    }
    assert_eq!(attached_record(&nonce())[..], golden("attached-record"));
}

#[test]
fn golden_frames_are_complete() {
    let mut files: Vec<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".bin") && !name.ends_with("-record.bin"))
        .collect();
    let mut known: Vec<String> = all().iter().map(|(n, _)| format!("{}.bin", n)).collect();
    files.sort();
    known.sort();
    assert_eq!(files, known);
    let index = fs::read_to_string(folder().join("index.json")).unwrap();
    for name in known {
        assert!(index.contains(&format!("\"file\": \"{}\"", name)));
    }
}

#[test]
fn reads_its_own_output() {
    let bytes = golden("resync");
    let mut reader = Reader::new(&bytes[HEADER..]);
    assert_eq!(reader.i64(), Ok(-1));
    assert_eq!(reader.bytes().unwrap().len(), 32);
    for expected in ["sandbox-1", "0123456789abcdef0123456789abcdef", "sb-1"] {
        assert_eq!(reader.str().unwrap(), expected);
    }
    let env = vec![("FORKD".to_string(), "1".to_string())];
    assert_eq!(reader.map(), Ok(env));
    assert!(!reader.is_empty());
    assert_eq!(reader.str().unwrap(), "4d14c069-3b9c-4d98-90fd-0d45148c9033");
    assert!(reader.is_empty());
    assert_eq!(reader.u8(), Err(Malformed));
    let lie = [0xff; 4];
    assert_eq!(Reader::new(&lie).bytes(), Err(Malformed));
    assert_eq!(Reader::new(&lie).map(), Err(Malformed));
}

#[test]
fn nothing_is_decoded_before_the_first_record() {
    let mut decoder = Decoder::new(&KEY);
    let ping = golden("ping");
    assert!(decode(&mut decoder, [ping.as_slice()]).is_empty());
    let mut other_key = record();
    other_key[20] ^= 1;
    assert!(decode(&mut decoder, [other_key.as_slice(), &ping]).is_empty());
    let record = record();
    assert_eq!(decode(&mut decoder, [record.as_slice(), &ping]).len(), 2);
}

#[test]
fn finds_the_record_at_every_split_and_everywhere_in_a_frame() {
    let (ping, exec) = (golden("ping"), golden("exec"));
    for cut in 0..=exec.len() {
        let mut input = ping.clone();
        input.extend_from_slice(&exec[..cut]);
        input.extend_from_slice(&record());
        input.extend_from_slice(&ping);
        for split in 0..=input.len() {
            let (a, b) = input.split_at(split);
            let events = decode(&mut attached(), [a, b]);
            let record_at = events.iter().position(|e| *e == Event::Attach(nonce()));
            let record_at = record_at.unwrap_or_else(|| panic!("cut {} split {}", cut, split));
            assert!(matches!(&events[0], Event::Frame(f) if f.kind == kind::PING));
            // the second ping is all that follows the record
            assert_eq!(events.len(), record_at + 2);
            assert!(matches!(&events[record_at + 1], Event::Frame(f) if f.kind == kind::PING));
        }
        let bytewise: Vec<&[u8]> = input.chunks(1).collect();
        let events = decode(&mut attached(), bytewise);
        assert!(events.contains(&Event::Attach(nonce())));
    }
}

#[test]
fn finds_a_record_after_the_beginning_of_another() {
    let record = record();
    for cut in 0..RECORD {
        let mut input = record[..cut].to_vec();
        input.extend_from_slice(&record);
        let pieces: Vec<&[u8]> = input.chunks(5).collect();
        let events = decode(&mut Decoder::new(&KEY), pieces);
        if cut < NEEDLE {
            assert_eq!(events, [Event::Attach(nonce())], "cut {}", cut);
        } else {
            // the first is complete up to its nonce, which then consumes bytes of the second
            assert!(matches!(events[0], Event::Attach(_)));
        }
    }
}

#[test]
fn lost_synchronisation_lasts_until_the_next_record() {
    let mut broken = golden("ping");
    broken[6] = 0;
    let (ping, record) = (golden("ping"), record());
    let mut decoder = attached();
    assert!(decode(&mut decoder, [broken.as_slice(), &ping, &ping]).is_empty());
    assert_eq!(decode(&mut decoder, [record.as_slice(), &ping]).len(), 2);
}

#[test]
fn survives_garbage() {
    let mut random = Random(0x5eed);
    let everything: Vec<u8> = all().into_iter().flat_map(|(_, bytes)| bytes).collect();
    for round in 0..3000 {
        let mut input = match round % 3 {
            0 => {
                let count = random.below(800);
                random.bytes(count)
            }
            1 => everything[random.below(everything.len())..].to_vec(),
            _ => everything.clone(),
        };
        for _ in 0..random.below(6) {
            if !input.is_empty() {
                let at = random.below(input.len());
                input[at] ^= 1 << random.below(8);
            }
        }
        input.truncate(random.below(input.len() + 1));
        let size = 1 + random.below(300);
        let mut decoder = attached();
        for event in decode(&mut decoder, input.chunks(size)) {
            if let Event::Frame(frame) = event {
                let mut reader = Reader::new(&frame.payload);
                let _ = (reader.u8(), reader.u64(), reader.str());
                let _ = (reader.list(|r| r.str()), reader.map(), reader.rest());
            }
        }
        // a record is found after any bytes
        let record = record();
        let events = decode(&mut decoder, [record.as_slice()]);
        assert_eq!(events.last(), Some(&Event::Attach(nonce())), "round {}", round);
    }
}

#[test]
fn holds_no_more_than_a_frame() {
    let mut random = Random(7);
    let mut decoder = attached();
    let large = frame(kind::DATA, 1, raw(w(), &random.bytes(MAX_PAYLOAD)));
    for _ in 0..20 {
        let pieces: Vec<&[u8]> = large.chunks(4096).collect();
        assert_eq!(decode(&mut decoder, pieces).len(), 1);
    }
    for _ in 0..50 {
        let noise = random.bytes(32768);
        decode(&mut decoder, [noise.as_slice()]);
    }
}
