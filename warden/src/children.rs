//! The processes that the warden started: running ones, and the exits that no client has received.

use crate::error::{Context, Error, Outcome};
use forkd_wire::Writer;
use std::collections::{BTreeMap, VecDeque};
use std::io;

/// With these two limits the longest list still fits one message
const MAX_LIVE: usize = 32 * 1024;
const MAX_ENDED: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub pid: i32,
    pub start_time: u64,
    /// -1 if a signal ended the process
    pub code: i32,
    /// 0 if the process exited
    pub signal: i32,
}

struct Live {
    start_time: u64,
    /// The client started or listed the child, so it can use a report of the exit
    known: bool,
}

#[derive(Default)]
pub struct Children {
    live: BTreeMap<i32, Live>,
    /// Not yet sent to a client, oldest first
    ended: VecDeque<Ended>,
}

impl Children {
    pub fn check_room(&self) -> Outcome<()> {
        if self.live.len() >= MAX_LIVE {
            return Err(Error::new("EAGAIN", "too many processes"));
        }
        Ok(())
    }

    /// Adds a child that the client knows.
    pub fn add(&mut self, pid: i32, start_time: u64) {
        let known = true;
        self.live.insert(pid, Live { start_time, known });
    }

    pub fn contains(&self, pid: i32) -> bool {
        self.live.contains_key(&pid)
    }

    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    pub fn pids(&self) -> impl Iterator<Item = i32> + '_ {
        self.live.keys().copied()
    }

    /// Records a reaped child: its exit, and whether the client knows it; None if the pid is not in the table.
    pub fn end(&mut self, pid: i32, code: i32, signal: i32) -> Option<(Ended, bool)> {
        let Live { start_time, known } = self.live.remove(&pid)?;
        let ended = Ended {
            pid,
            start_time,
            code,
            signal,
        };
        Some((ended, known))
    }

    /// Keeps an exit for the next client that lists; the oldest are dropped.
    pub fn keep(&mut self, ended: Ended) {
        if self.ended.len() == MAX_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(ended);
    }

    /// The next client knows none of the children.
    pub fn client_left(&mut self) {
        for child in self.live.values_mut() {
            child.known = false;
        }
    }

    /// All children as a message; the exits are removed from the table and returned.
    pub fn list(&mut self) -> (Writer, Vec<Ended>) {
        let ended: Vec<_> = self.ended.drain(..).collect();
        let mut list = Writer::default().u32((self.live.len() + ended.len()) as u32);
        for (pid, child) in &mut self.live {
            child.known = true;
            list = item(list, *pid, child.start_time, true).i32(0).u32(0);
        }
        for child in &ended {
            let head = item(list, child.pid, child.start_time, false);
            list = head.i32(child.code).u32(child.signal as u32);
        }
        (list, ended)
    }
}

fn item(list: Writer, pid: i32, start_time: u64, running: bool) -> Writer {
    list.u32(pid as u32).u64(start_time).u8(running.into())
}

/// Start time of a process in clock ticks since boot; a zombie still has it.
pub fn start_time(pid: i32) -> Outcome<u64> {
    let path = format!("/proc/{pid}/stat");
    let stat = std::fs::read(&path).during(|| &path)?;
    parse_start_time(&stat).ok_or_else(|| Error::io(&io::Error::from_raw_os_error(libc::EIO), path))
}

fn parse_start_time(stat: &[u8]) -> Option<u64> {
    // the name in field 2 may contain spaces and brackets, so count from its last bracket; the start time is field 22
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(stat.get(name_end + 2..)?).ok()?;
    fields.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{frame, MAX_MESSAGE, RESULT};
    use forkd_wire::Reader;

    fn listed(children: &mut Children) -> Vec<(u32, u64, u8, u32, u32)> {
        let (list, _) = children.list();
        let read = |r: &mut Reader| -> Outcome<_> { Ok((r.u32()?, r.u64()?, r.u8()?, r.u32()?, r.u32()?)) };
        Reader::new(&list.0).list(read).unwrap()
    }

    #[test]
    fn lists_running_ones_always_and_ended_ones_once() {
        let mut children = Children::default();
        children.add(7, 70);
        children.add(5, 50);
        let (ended, known) = children.end(7, -1, 9).unwrap();
        assert!(known);
        children.keep(ended);
        assert_eq!(listed(&mut children), [(5, 50, 1, 0, 0), (7, 70, 0, u32::MAX, 9)]);
        assert_eq!(listed(&mut children), [(5, 50, 1, 0, 0)]);
        assert_eq!(children.end(7, 0, 0), None);
    }

    #[test]
    fn the_next_client_can_use_a_child_after_listing_it() {
        let mut children = Children::default();
        children.add(5, 50);
        children.add(6, 60);
        children.client_left();
        assert!(!children.end(5, 0, 0).unwrap().1);
        children.list();
        assert!(children.end(6, 0, 0).unwrap().1);
    }

    #[test]
    fn the_oldest_exits_are_dropped() {
        let mut children = Children::default();
        for pid in 1..=MAX_ENDED as i32 + 3 {
            children.add(pid, 0);
            let (ended, _) = children.end(pid, 0, 0).unwrap();
            children.keep(ended);
        }
        let pids: Vec<_> = listed(&mut children).iter().map(|item| item.0).collect();
        assert_eq!((pids.len(), pids[0]), (MAX_ENDED, 4));
    }

    #[test]
    fn the_longest_list_is_one_message() {
        let mut children = Children::default();
        for pid in 0..(MAX_LIVE + MAX_ENDED) as i32 {
            children.add(pid, u64::MAX);
        }
        for pid in 0..MAX_ENDED as i32 {
            let (ended, _) = children.end(pid, -1, 9).unwrap();
            children.keep(ended);
        }
        assert_eq!(children.check_room().unwrap_err().code, "EAGAIN");
        assert!(frame(RESULT, 1, &children.list().0).len() <= MAX_MESSAGE);
    }

    #[test]
    fn start_time_with_any_name() {
        let stat = b"12 (a) b) \xff c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 19 20";
        assert_eq!(parse_start_time(stat), Some(777));
        assert_eq!(parse_start_time(b"12 (a"), None);
        assert_eq!(parse_start_time(b"12 (a)"), None);
        assert!(start_time(std::process::id() as i32).unwrap() > 0);
    }
}
