//! Where the pages of a RAM image are: sorted, disjoint parts, each in contiguous slots of one delta file.

use crate::delta::Run;

/// Contiguous pages in contiguous slots of one file
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub run: Run,
    /// Index of the file in the caller's list
    pub file: u32,
}

impl Part {
    pub fn first(&self) -> u64 {
        self.run.first
    }

    pub fn end(&self) -> u64 {
        self.run.end()
    }

    /// The pages from `from` to `to`, which must be inside of it
    fn cut(&self, from: u64, to: u64) -> Part {
        let run = Run {
            first: from,
            count: (to - from) as u32,
            slot: self.run.slot + (from - self.run.first) as u32,
        };
        Part { run, file: self.file }
    }
}

pub fn parts_of(runs: &[Run], file: u32) -> Vec<Part> {
    runs.iter().map(|run| Part { run: *run, file }).collect()
}

/// The parts of `below` that are in no range of `above`, which is sorted
pub fn without(below: &[Part], above: impl Iterator<Item = (u64, u64)>) -> Vec<Part> {
    let mut kept = Vec::with_capacity(below.len());
    let mut above = above.peekable();
    for part in below {
        let mut at = part.first();
        while at < part.end() {
            match above.peek().copied() {
                Some((_, end)) if end <= at => {
                    above.next();
                }
                Some((first, _)) if first >= part.end() => break,
                Some((first, end)) => {
                    if first > at {
                        kept.push(part.cut(at, first));
                    }
                    at = end;
                }
                None => break,
            }
        }
        if at < part.end() {
            kept.push(part.cut(at, part.end()));
        }
    }
    kept
}

/// The parts of `parts` that are in `ranges`, which are sorted (first, end)
pub fn within(parts: &[Part], ranges: &[(u64, u64)]) -> Vec<Part> {
    let mut found = Vec::new();
    let mut from = 0;
    for (first, end) in ranges {
        from += parts[from..].partition_point(|part| part.end() <= *first);
        for part in parts[from..].iter().take_while(|part| part.first() < *end) {
            found.push(part.cut(part.first().max(*first), part.end().min(*end)));
        }
    }
    found
}

/// All pages of both; where both have a page, that of `above`
pub fn overlay(below: &[Part], above: &[Part]) -> Vec<Part> {
    let mut all = without(below, above.iter().map(|part| (part.first(), part.end())));
    all.extend_from_slice(above);
    all.sort_unstable_by_key(Part::first);
    all
}

/// The newest content of each page in a chain of deltas, oldest first; the index of a delta is that of its file
pub fn merge<'a>(chain: impl Iterator<Item = &'a [Run]>) -> Vec<Part> {
    chain.enumerate().fold(Vec::new(), |below, (file, runs)| {
        overlay(&below, &parts_of(runs, file as u32))
    })
}

pub fn count(parts: &[Part]) -> u64 {
    parts.iter().map(|part| u64::from(part.run.count)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const PAGES: u64 = 64;

    /// xorshift64*: the same numbers on every run
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
        }

        /// Sorted, disjoint runs, whose slots are in any order
        fn runs(&mut self) -> Vec<Run> {
            let mut runs = Vec::new();
            let mut first = self.below(8);
            while first < PAGES {
                let count = (1 + self.below(9)).min(PAGES - first) as u32;
                let slot = self.below(1000) as u32;
                runs.push(Run { first, count, slot });
                first += u64::from(count) + self.below(6);
            }
            runs
        }
    }

    fn by_page(parts: &[Part]) -> BTreeMap<u64, (u32, u32)> {
        let pages = parts.iter().flat_map(|part| {
            (0..part.run.count).map(move |at| (part.run.first + u64::from(at), (part.file, part.run.slot + at)))
        });
        let all: Vec<_> = pages.collect();
        assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0), "sorted and disjoint");
        all.into_iter().collect()
    }

    #[test]
    fn the_newest_delta_of_a_chain_has_each_page() {
        let mut random = Random(7);
        for _ in 0..500 {
            let chain: Vec<_> = (0..random.below(6)).map(|_| random.runs()).collect();
            let mut expected = BTreeMap::new();
            for (file, runs) in chain.iter().enumerate() {
                expected.extend(by_page(&parts_of(runs, file as u32)));
            }
            let merged = merge(chain.iter().map(Vec::as_slice));
            assert_eq!(by_page(&merged), expected);
            assert_eq!(count(&merged), expected.len() as u64);
        }
    }

    #[test]
    fn parts_are_cut_by_ranges() {
        let mut random = Random(11);
        for _ in 0..500 {
            let parts = parts_of(&random.runs(), 3);
            let ranges: Vec<_> = random.runs().iter().map(|run| (run.first, run.end())).collect();
            let is_in = |page: &u64| ranges.iter().any(|(first, end)| first <= page && page < end);
            let all = by_page(&parts);
            let (inside, outside): (BTreeMap<_, _>, _) = all.into_iter().partition(|(page, _)| is_in(page));
            assert_eq!(by_page(&within(&parts, &ranges)), inside);
            assert_eq!(by_page(&without(&parts, ranges.iter().copied())), outside);
        }
    }
}
