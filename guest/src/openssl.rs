//! OpenSSL's random generators inside running processes. The agent finds them before a freeze. After a fork it makes each
//! one take fresh randomness from the guest kernel before it gives the next byte.
//!
//! A generator reseeds when its last reseeding is too long ago, and when it belongs to another process (`fork_id`, the pid
//! that used it last). The agent changes both. The time alone does not suffice: a process that was frozen in the middle of
//! a reseeding sets the time when it finishes, and its state would be the same in every fork.

use std::convert::TryInto;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// A generator (`PROV_DRBG`, before 3.0 `RAND_DRBG`) has these fields in sequence: u32 requests since the last
/// reseeding, u32 their limit, time_t last reseeding, time_t the longest time after it. Beyond a limit it reseeds.
const FIELDS: usize = 24;
const RESEEDED_AT: u64 = 8;
/// How far before these fields `fork_id` is: in OpenSSL 3 and in 1.1.1, which has two pointers between.
const FORK_ID_BEFORE: [u64; 2] = [72, 88];
/// No process has this pid.
const OTHER_PROCESS: [u8; 4] = [0; 4];
/// The limits of requests and of seconds: of the process's generator, and of those of its threads.
const LIMITS: [(u32, i64); 2] = [(1 << 8, 60 * 60), (1 << 16, 7 * 60)];
/// The C library's arenas of threads begin at multiples of this.
const ARENA: u64 = 64 << 20;
/// A larger heap is not searched further.
const MOST_BYTES: u64 = 256 << 20;
const PIECE: usize = 1 << 20;

#[derive(Default)]
pub struct OpenSsl {
    owners: Vec<Owner>,
}

struct Owner {
    name: String,
    /// What `getpid` returns in the process, whose pid namespace may be another one.
    own_pid: i32,
    memory: File,
    /// Addresses of the fields.
    generators: Vec<u64>,
}

impl OpenSsl {
    /// Finds the generators of these processes, which must be frozen, and replaces the known ones.
    pub fn find(&mut self, processes: &[(i32, String)]) {
        self.owners.clear();
        for (pid, name) in processes {
            // a process that has ended has none
            if let Ok(Some(owner)) = owner(*pid, name) {
                self.owners.push(owner);
            }
        }
    }

    /// Makes every generator that still exists reseed; returns the names of the processes.
    pub fn reseed(&mut self) -> io::Result<Vec<String>> {
        let mut names: Vec<String> = Vec::new();
        for owner in &self.owners {
            for at in &owner.generators {
                let mut fields = [0; FIELDS];
                // the process may have ended, and the memory may have another use now
                let is_there = owner.memory.read_at(&mut fields, *at).map_or(false, |n| n == FIELDS);
                if !is_there || !is_generator(&fields) {
                    continue;
                }
                owner.memory.write_all_at(&[0; 8], at + RESEEDED_AT)?;
                owner.disown(*at)?;
                if !owner.name.is_empty() && !names.contains(&owner.name) {
                    names.push(owner.name.clone());
                }
            }
        }
        Ok(names)
    }
}

impl Owner {
    /// Makes a generator reseed at its next use whatever happens to the time of its last reseeding before that.
    fn disown(&self, at: u64) -> io::Result<()> {
        for before in FORK_ID_BEFORE {
            let mut fork_id = [0; 4];
            let is_read = self
                .memory
                .read_at(&mut fork_id, at - before)
                .map_or(false, |n| n == fork_id.len());
            // a word with another value is another pid, which makes the generator reseed, or another field
            if is_read && i32::from_ne_bytes(fork_id) == self.own_pid {
                self.memory.write_all_at(&OTHER_PROCESS, at - before)?;
            }
        }
        Ok(())
    }
}

/// The pid of a process in its innermost pid namespace.
fn own_pid(pid: i32) -> io::Result<i32> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid))?;
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    Ok(pids
        .and_then(|pids| pids.split_ascii_whitespace().last()?.parse().ok())
        .unwrap_or(pid))
}

fn owner(pid: i32, name: &str) -> io::Result<Option<Owner>> {
    let own_pid = own_pid(pid)?;
    let heaps = heaps(&fs::read_to_string(format!("/proc/{}/maps", pid))?);
    let memory = OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/{}/mem", pid))?;
    let mut generators = Vec::new();
    for (from, to) in heaps {
        search(&memory, from, to, &mut generators);
    }
    let name = name.to_string();
    Ok((!generators.is_empty()).then(|| Owner {
        name,
        own_pid,
        memory,
        generators,
    }))
}

/// The heaps in which the C library's `malloc` places small blocks.
fn heaps(maps: &str) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (range, rights) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let (from, to) = match range.split_once('-') {
            Some((from, to)) => (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16)),
            None => continue,
        };
        if let (Ok(from), Ok(to), "rw-p") = (from, to, rights) {
            match words.nth(3) {
                Some("[heap]") => found.push((from, to.min(from + MOST_BYTES))),
                None if from % ARENA == 0 => found.push((from, to.min(from + ARENA))),
                _ => {}
            }
        }
    }
    found
}

fn search(memory: &File, from: u64, to: u64, found: &mut Vec<u64>) {
    let mut buffer = vec![0; PIECE + FIELDS];
    let mut at = from;
    while at < to {
        let wanted = (PIECE + FIELDS).min((to - at) as usize);
        let count = match memory.read_at(&mut buffer[..wanted], at) {
            Ok(count) if count >= FIELDS => count,
            _ => return,
        };
        let places = (0..=count - FIELDS).step_by(8).filter(|at| *at < PIECE);
        found.extend(
            places
                .filter(|start| is_generator(&buffer[*start..*start + FIELDS]))
                .map(|start| at + start as u64),
        );
        at += PIECE as u64;
    }
}

fn is_generator(fields: &[u8]) -> bool {
    let number = |at: usize| u64::from_ne_bytes(fields[at..at + 8].try_into().unwrap_or_default());
    let interval = number(16) as i64;
    // this comparison rules out nearly every position
    LIMITS.iter().any(|(requests, seconds)| {
        let (count, most) = (number(0) as u32, (number(0) >> 32) as u32);
        interval == *seconds && most == *requests && count <= most + 1 && is_time(number(8) as i64)
    })
}

/// A time of the last decades, or zero.
fn is_time(seconds: i64) -> bool {
    seconds == 0 || (1_000_000_000..1 << 34).contains(&seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    use std::time::{SystemTime, UNIX_EPOCH};

    fn fields(count: u32, most: u32, time: i64, interval: i64) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&count.to_ne_bytes());
        out.extend_from_slice(&most.to_ne_bytes());
        out.extend_from_slice(&time.to_ne_bytes());
        out.extend_from_slice(&interval.to_ne_bytes());
        out
    }

    #[test]
    fn identifies_a_generator_by_its_limits() {
        assert!(is_generator(&fields(5, 256, 1_794_842_158, 3600)));
        assert!(is_generator(&fields(2, 65536, 1_794_842_158, 420)));
        assert!(is_generator(&fields(2, 65536, 0, 420)));
        for (count, most, time, interval) in [
            (5, 256, 1_794_842_158, 420),
            (5, 65536, 1_794_842_158, 3600),
            (300, 256, 1_794_842_158, 3600),
            (5, 256, 12, 3600),
            (0, 0, 0, 0),
        ] {
            assert!(!is_generator(&fields(count, most, time, interval)));
        }
    }

    #[test]
    fn searches_heaps_and_arenas_only() {
        let maps = "42e43000-43043000 rw-p 00000000 00:00 0                                  [heap]\n\
                    7f9898000000-7f9898021000 rw-p 00000000 00:00 0 \n\
                    7f9898021000-7f989c000000 ---p 00000000 00:00 0 \n\
                    7f98a1000000-7f98a1021000 rw-p 00000000 00:00 0 \n\
                    7f98a4000000-7f98a4021000 rw-p 00001000 08:01 77                         /usr/lib/x.so\n";
        assert_eq!(
            heaps(maps),
            [(0x42e4_3000, 0x4304_3000), (0x7f98_9800_0000, 0x7f98_9802_1000)]
        );
    }

    #[test]
    fn finds_a_record_between_two_pieces_with_its_time() {
        let mut memory = vec![0u8; 2 * PIECE];
        let at = PIECE - 8;
        memory[at..at + FIELDS].copy_from_slice(&fields(2, 65536, 1_794_842_158, 420));
        let base = memory.as_ptr() as u64;
        let own = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .open("/proc/self/mem")
                .unwrap()
        };
        let mut generators = Vec::new();
        search(&own(), base, base + memory.len() as u64, &mut generators);
        assert_eq!(generators, [base + at as u64]);
        let mut known = OpenSsl {
            owners: vec![Owner {
                name: "python/openssl".into(),
                own_pid: std::process::id() as i32,
                memory: own(),
                generators,
            }],
        };
        assert_eq!(known.reseed().unwrap(), ["python/openssl"]);
        assert_eq!(memory[at..at + FIELDS], fields(2, 65536, 0, 420)[..]);
        // memory with another use is not changed
        memory[at..at + FIELDS].copy_from_slice(&fields(2, 65536, 1_794_842_158, 421));
        assert!(known.reseed().unwrap().is_empty());
        assert_eq!(memory[at..at + FIELDS], fields(2, 65536, 1_794_842_158, 421)[..]);
    }
    /// A generator of the C library that this machine's python3 uses, in a process that draws when it reads a line.
    #[test]
    fn reseeds_a_generator_that_was_frozen_during_a_reseed() {
        let program = "import ssl, sys\n\
                       for line in sys.stdin:\n\
                       \x20   for _ in range(int(line)): ssl.RAND_bytes(16)\n\
                       \x20   print(line, end='', flush=True)\n";
        let mut python = match Command::new("python3")
            .args(["-c", program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
        {
            Ok(python) => python,
            Err(error) => return println!("skipped: there is no python3: {}", error),
        };
        let (mut stdin, stdout) = (python.stdin.take().unwrap(), python.stdout.take().unwrap());
        let mut answers = BufReader::new(stdout);
        let mut draw = |times: u32| {
            writeln!(stdin, "{}", times).unwrap();
            let mut answer = String::new();
            answers.read_line(&mut answer).unwrap();
            assert_eq!(answer.trim(), times.to_string());
        };
        draw(10);
        let mut known = OpenSsl::default();
        known.find(&[(python.id() as i32, "python/openssl".into())]);
        let owner = &known.owners[0];
        let requests = |at: &u64| {
            let mut count = [0; 4];
            owner.memory.read_exact_at(&mut count, *at).unwrap();
            u32::from_ne_bytes(count)
        };
        let at = *owner
            .generators
            .iter()
            .find(|at| requests(at) > 10)
            .expect("the one that was used");
        known.reseed().unwrap();
        // what the process does at the end of a reseeding that began before the freeze
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let owner = &known.owners[0];
        for at in &owner.generators {
            owner.memory.write_all_at(&now.to_ne_bytes(), at + RESEEDED_AT).unwrap();
        }
        draw(1);
        let mut count = [0; 4];
        owner.memory.read_exact_at(&mut count, at).unwrap();
        python.kill().unwrap();
        python.wait().unwrap();
        assert!(
            u32::from_ne_bytes(count) <= 2,
            "{} requests since it was reseeded",
            u32::from_ne_bytes(count)
        );
    }
}
