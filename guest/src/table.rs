//! The process table: starting, finding, listing, time-outs and exits of processes.

use crate::outbox::Outbox;
use crate::process::{Part, Process};
use crate::protocol::{kind, MAX_PAYLOAD};
use crate::spawn::{Refusal, Request, Spawned};
use crate::sys;
use forkd_wire::Writer;
use std::collections::BTreeMap;
use std::fs;

/// Ended processes that can still be attached.
const KEPT: usize = 64;
/// Between SIGTERM and SIGKILL after a time-out.
const GRACE_MS: u64 = 500;
/// Tags of warm interpreters.
pub const KERNEL_TAGS: &str = "kernel/";
/// Time that a tool has to clean up when its result is no longer needed.
const CLEAR_UP_MS: u64 = 10_000;
/// Bytes of an argv shown in a list.
const LISTED_ARGV: usize = 512;

#[derive(Default)]
pub struct Table {
    processes: BTreeMap<u64, Process>,
    last_id: u64,
    /// Ended processes, oldest first.
    finished: Vec<u64>,
    /// Process groups that get SIGKILL at this time.
    doomed: Vec<(u64, i32)>,
    live: usize,
    /// The process that sends next.
    turn: u64,
}

impl Table {
    /// Whether a process can have this tag: no other process with it lives or is being started.
    pub fn check(&self, tag: &str, starting: bool) -> Result<(), Refusal> {
        let in_use = |p: &Process| p.ended.is_none() && p.tag == tag;
        if !tag.is_empty() && (starting || self.processes.values().any(in_use)) {
            return Err(Refusal {
                code: "in_use".to_string(),
                message: format!("the tag {} is in use", tag),
            });
        }
        Ok(())
    }

    /// Adds a started program and attaches it to the stream; returns its id.
    pub fn add(&mut self, request: Request, spawned: Spawned, stream: Option<u32>, outbox: &mut Outbox) -> u64 {
        if request.tag.starts_with(KERNEL_TAGS) {
            // the state of a kernel is what the snapshot was made for: other processes are killed before it when memory
            // runs out
            let _ = fs::write(format!("/proc/{}/oom_score_adj", spawned.pid), "-500");
        }
        self.last_id += 1;
        let timeout_ms = request.timeout_ms;
        let mut process = Process::new(self.last_id, request, spawned);
        if timeout_ms > 0 {
            process.deadline = Some(sys::monotonic_ms().saturating_add(timeout_ms));
        }
        match stream {
            Some(stream) => process.attach(stream, [0, 0], outbox),
            None => process.detach(),
        }
        self.processes.insert(self.last_id, process);
        self.live += 1;
        self.last_id
    }

    /// Adds a tool that was started for a stream; returns its id.
    pub fn tool(&mut self, spawned: Spawned, stream: u32, outbox: &mut Outbox) -> u64 {
        self.last_id += 1;
        let mut process = Process::tool(self.last_id, spawned);
        process.attach(stream, [0, 0], outbox);
        self.processes.insert(self.last_id, process);
        self.live += 1;
        self.last_id
    }

    pub fn get(&mut self, id: u64) -> Option<&mut Process> {
        self.processes.get_mut(&id)
    }

    /// A process by id or, with id 0, by tag: the live one, otherwise the one that ended last.
    pub fn find(&mut self, id: u64, tag: &str) -> Option<&mut Process> {
        if id != 0 {
            return self.processes.get_mut(&id).filter(|p| !p.is_tool);
        }
        self.processes
            .values_mut()
            .filter(|p| !tag.is_empty() && p.tag == tag)
            .max_by_key(|p| (p.ended.is_none(), p.id))
    }

    /// The tag of a live process.
    pub fn tag_of(&self, pid: i32) -> Option<&str> {
        let found = self.processes.values().find(|p| p.pid == pid && p.ended.is_none());
        found.map(|process| process.tag.as_str())
    }

    /// Interpreters that run: their pids and contexts.
    pub fn interpreters(&self) -> impl Iterator<Item = (i32, &str)> {
        let living = self.processes.values().filter(|process| process.ended.is_none());
        living.filter_map(|process| Some((process.pid, process.tag.strip_prefix(KERNEL_TAGS)?)))
    }

    /// The id of the process that was started last.
    pub fn last_id(&self) -> u64 {
        self.last_id
    }

    /// Forgets processes that were started later than this one and have ended: the next one gets the id after it again.
    pub fn rewind(&mut self, last_id: u64) {
        self.processes
            .retain(|id, process| *id <= last_id || process.ended.is_none());
        self.finished.retain(|id| *id <= last_id);
        self.last_id = self
            .processes
            .keys()
            .next_back()
            .map_or(last_id, |newest| last_id.max(*newest));
    }

    /// The host has dropped its stream of a process.
    pub fn detach(&mut self, id: u64) {
        if let Some(process) = self.processes.get_mut(&id) {
            process.detach();
            if process.is_tool {
                process.abandon();
                if process.ended.is_none() {
                    self.doomed.push((sys::monotonic_ms() + CLEAR_UP_MS, process.pid));
                }
            }
        }
    }

    pub fn detach_all(&mut self) {
        let attached = |p: &&Process| p.stream.is_some();
        let ids: Vec<u64> = self.processes.values().filter(attached).map(|p| p.id).collect();
        for id in ids {
            self.detach(id);
        }
    }

    /// Moves output of all processes; reports the streams that have ended.
    pub fn pump(&mut self, outbox: &mut Outbox, scratch: &mut [u8], mut over: impl FnMut(u32)) {
        let mut next = None;
        for range in [self.turn..u64::MAX, 0..self.turn] {
            for process in self.processes.range_mut(range).map(|(_, process)| process) {
                let was_finished = process.is_finished();
                if was_finished && process.stream.is_none() {
                    continue;
                }
                if outbox.is_full() && process.stream.is_some() {
                    next.get_or_insert(process.id);
                }
                let stream = process.stream;
                if process.pump(outbox, scratch) {
                    stream.map(&mut over);
                }
                if !was_finished && process.is_finished() && !process.is_tool {
                    self.finished.push(process.id);
                }
            }
        }
        self.turn = next.unwrap_or(0);
        self.processes
            .retain(|_, p| !p.is_tool || p.stream.is_some() || !p.is_finished());
        while self.finished.len() > KEPT {
            let processes = &self.processes;
            let detached = |id: &u64| processes.get(id).map_or(true, |p| p.stream.is_none());
            match self.finished.iter().position(detached) {
                Some(at) => self.processes.remove(&self.finished.remove(at)),
                None => break,
            };
        }
    }

    pub fn interests(&self, outbox: &Outbox, mut add: impl FnMut(u64, Part, i32, i16)) {
        for process in self.processes.values() {
            process.interests(outbox, |part, fd, events| add(process.id, part, fd, events));
        }
    }

    /// A child has ended: a process of the table, or an orphan that PID 1 inherited.
    pub fn ended(&mut self, (pid, code, signal): (i32, i32, u32), scratch: &mut [u8]) {
        let ours = |p: &&mut Process| p.pid == pid && p.ended.is_none();
        if let Some(process) = self.processes.values_mut().find(ours) {
            process.end(code, signal, scratch);
            process.deadline = None;
            // without remaining output it is finished here and not in a later pump
            if process.is_finished() && !process.is_tool {
                self.finished.push(process.id);
            }
            if process.is_tool {
                self.doomed.retain(|(_, group)| *group != pid);
            }
            self.live -= 1;
        }
    }

    /// Handles time-outs that have passed; returns the time until the next one.
    pub fn time_outs(&mut self) -> Option<u64> {
        if self.live == 0 && self.doomed.is_empty() {
            return None;
        }
        let mut now = None;
        let mut next = u64::MAX;
        for process in self.processes.values_mut() {
            let deadline = match process.deadline {
                Some(deadline) => deadline,
                None => continue,
            };
            let now = *now.get_or_insert_with(sys::monotonic_ms);
            if deadline > now {
                next = next.min(deadline);
                continue;
            }
            process.deadline = None;
            process.timed_out = true;
            // the process group may have ended already
            let _ = sys::kill(-process.pid, libc::SIGTERM);
            self.doomed.push((now + GRACE_MS, process.pid));
        }
        if !self.doomed.is_empty() {
            let now = *now.get_or_insert_with(sys::monotonic_ms);
            self.doomed.retain(|(at, group)| {
                if *at <= now {
                    let _ = sys::kill(-group, libc::SIGKILL);
                }
                *at > now
            });
        }
        next = self.doomed.iter().map(|d| d.0).fold(next, u64::min);
        now.filter(|_| next != u64::MAX).map(|now| next - now)
    }

    /// Answers LIST: the processes with higher ids, as many as fit one frame, and whether there are more.
    pub fn list(&self, after: u64, stream: u32, outbox: &mut Outbox) {
        let mut body = Vec::new();
        let mut count = 0;
        let mut more = 0;
        let later = self.processes.range(after.saturating_add(1)..);
        for process in later.map(|(_, process)| process).filter(|p| !p.is_tool) {
            let entry = entry(process);
            if 4 + body.len() + entry.len() + 1 > MAX_PAYLOAD {
                more = 1;
                break;
            }
            body.extend_from_slice(&entry);
            count += 1;
        }
        let mut payload = Writer::default().u32(count).0;
        payload.extend_from_slice(&body);
        payload.push(more);
        outbox.frame(kind::RESULT, stream, &payload);
    }
}

fn entry(process: &Process) -> Vec<u8> {
    let (code, signal) = process.ended.unwrap_or((0, 0));
    let argv = shown(&process.argv);
    let mut entry = Writer::default()
        .u64(process.id)
        .u32(process.pid as u32)
        .str(&process.tag)
        .u32(argv.len() as u32);
    for argument in argv {
        entry = entry.str(argument);
    }
    let [stdout, stderr] = process.output_ends();
    entry
        .u8(process.ended.is_none() as u8)
        .i32(code)
        .u32(signal)
        .u8(process.timed_out as u8)
        .u8(process.terminal as u8)
        .u8(process.takes_stdin() as u8)
        .i64(process.started_ms)
        .str(&process.cwd)
        .str(&process.user)
        .u64(stdout)
        .u64(stderr)
        .0
}

/// The first arguments, within the limit of a list.
fn shown(argv: &[String]) -> Vec<&str> {
    let mut room = LISTED_ARGV;
    let mut out = Vec::new();
    for argument in argv {
        let mut end = argument.len().min(room);
        while !argument.is_char_boundary(end) {
            end -= 1;
        }
        out.push(&argument[..end]);
        if end < argument.len() || out.len() == 64 {
            break;
        }
        room -= end;
    }
    out
}
