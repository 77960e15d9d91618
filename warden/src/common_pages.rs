//! Pages that two processes have in common since one was forked from the other: they are equal without being compared. The
//! kernel reports frames only to a privileged process.

use crate::sys::PAGE;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const ENTRY: usize = 8;
const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;
/// The number of the page's frame; 0 for a process without privileges
const FRAME: u64 = (1 << 55) - 1;
/// Pages that are looked up at a time
const WINDOW: u64 = 8192;
/// A hole between two ranges that is looked up with them, which costs less than another call
const HOLE: u64 = 64;

/// The pages of `ranges`, sorted (first, end), that both processes have in common and of which each has a private mapping.
/// Both map them from the address `base` on, and do not write meanwhile.
pub fn common_pages(one: &File, other: &File, base: u64, ranges: &[(u64, u64)]) -> io::Result<Vec<(u64, u64)>> {
    let mut common: Vec<(u64, u64)> = Vec::new();
    let mut rest = ranges;
    while let Some((first, _)) = rest.first().copied() {
        let (window, after) = rest.split_at(window_of(rest));
        let end = window[window.len() - 1].1;
        let (here, there) = (entries(one, base, first, end)?, entries(other, base, first, end)?);
        // Again: the kernel may have moved pages between the two reads, and then a frame may have another content.
        let still_here = entries(one, base, first, end)?;
        for page in window.iter().flat_map(|(first, end)| *first..*end) {
            let at = (page - first) as usize;
            if frame_of(here[at]).is_none()
                || frame_of(here[at]) != frame_of(there[at])
                || frame_of(here[at]) != frame_of(still_here[at])
            {
                continue;
            }
            match common.last_mut() {
                Some((_, end)) if *end == page => *end += 1,
                _ => common.push((page, page + 1)),
            }
        }
        rest = after;
    }
    Ok(common)
}

/// What is left of `ranges` without `gone`; both are sorted (first, end), and `gone` is part of `ranges`.
pub fn except(ranges: &[(u64, u64)], gone: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut left = Vec::new();
    let mut gone = gone.iter().peekable();
    let mut at = 0;
    for (first, end) in ranges {
        at = at.max(*first);
        while let Some((from, to)) = gone.next_if(|(from, _)| from < end) {
            if at < *from {
                left.push((at, *from));
            }
            at = *to;
        }
        if at < *end {
            left.push((at, *end));
        }
    }
    left
}

/// How many of the ranges are looked up together
fn window_of(ranges: &[(u64, u64)]) -> usize {
    let first = ranges[0].0;
    let near = |pair: &&[(u64, u64)]| pair[1].0 - pair[0].1 <= HOLE && pair[1].1 - first <= WINDOW;
    1 + ranges.windows(2).take_while(near).count()
}

fn entries(pagemap: &File, base: u64, first: u64, end: u64) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; (end - first) as usize * ENTRY];
    // fewer if the process has ended
    pagemap.read_exact_at(&mut bytes, (base / PAGE as u64 + first) * ENTRY as u64)?;
    let words = bytes.chunks_exact(ENTRY);
    Ok(words.map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect())
}

fn frame_of(entry: u64) -> Option<u64> {
    let is_private = entry & PRESENT != 0 && entry & OF_FILE == 0;
    (is_private && entry & FRAME != 0).then_some(entry & FRAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Mapping;

    #[test]
    fn ranges_are_cut() {
        assert_eq!(except(&[(0, 10), (20, 30)], &[]), [(0, 10), (20, 30)]);
        assert_eq!(
            except(&[(0, 10), (20, 30)], &[(0, 2), (5, 6), (9, 10), (20, 30)]),
            [(2, 5), (6, 9)]
        );
        assert_eq!(except(&[(0, 10), (10, 30)], &[(5, 15)]), [(0, 5), (15, 30)]);
        assert_eq!(window_of(&[(0, 1), (2, 3), (1000, 1001)]), 2);
        assert_eq!(window_of(&[(0, 5000), (5001, 9000)]), 1);
    }

    #[test]
    fn a_page_without_a_frame_is_in_common_with_none() {
        assert_eq!(frame_of(PRESENT | 7), Some(7));
        assert_eq!(frame_of(PRESENT), None, "without privileges");
        assert_eq!(frame_of(PRESENT | OF_FILE | 7), None);
        assert_eq!(frame_of(7), None, "swapped or absent");
    }

    #[test]
    fn pages_that_no_one_wrote_since_the_fork_are_in_common() {
        const PAGES: u64 = 16;
        let mut memory = Mapping::buffer(PAGES as usize * PAGE).unwrap();
        memory.bytes_mut().fill(1);
        // SAFETY: the child makes one system call and waits for its end.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: as above.
                unsafe { libc::pause() };
            }
        }
        for page in [0, 5, 6, 15] {
            memory.bytes_mut()[page * PAGE] = 2;
        }
        let own = File::open("/proc/self/pagemap").unwrap();
        let its = File::open(format!("/proc/{child}/pagemap")).unwrap();
        let base = memory.bytes().as_ptr() as u64;
        let found = common_pages(&own, &its, base, &[(0, 10), (11, PAGES)]);
        // SAFETY: the child is this test's own.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        let is_told = frame_of(entries(&own, base, 0, 1).unwrap()[0]).is_some();
        let expected: &[(u64, u64)] = if is_told { &[(1, 5), (7, 10), (11, 15)] } else { &[] };
        assert_eq!(found.unwrap(), expected);
        assert!(
            common_pages(&own, &its, base, &[(0, 1)]).is_err(),
            "the other process has ended"
        );
    }
}
