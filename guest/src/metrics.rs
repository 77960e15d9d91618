//! Resource usage of the guest, as its kernel counts it. No program runs for it: clients without the right to run
//! programs may request it.

use crate::failure::Failure;
use crate::sys;
use forkd_wire::Writer;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// More than both files ever contain; the guest's root may have replaced them by a file without end.
const MOST: u64 = 65536;
const KIB: u64 = 1024;

/// Answers METRICS.
pub fn answer() -> Result<Vec<u8>, Failure> {
    let (busy, all) = cpu_ticks(&read("/proc/stat")?);
    let memory = read("/proc/meminfo")?;
    let bytes = |name| field(&memory, name) * KIB;
    let (disk, used) = sys::disk_usage(Path::new("/"))?;
    let out = Writer::default()
        .u64(busy)
        .u64(all)
        .u64(bytes("MemTotal:"))
        .u64(bytes("MemAvailable:"))
        .u64(bytes("Cached:") + bytes("Buffers:"))
        .u64(disk)
        .u64(used);
    Ok(out.0)
}

fn read(path: &str) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(path)?.take(MOST).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Ticks in use, and all ticks, of all CPUs since boot.
// cpu  user nice system idle iowait irq softirq steal guest guest_nice: the last two are part of the first two
fn cpu_ticks(stat: &str) -> (u64, u64) {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let ticks: Vec<u64> = line
        .unwrap_or("")
        .split_whitespace()
        .take(8)
        .map(|tick| tick.parse().unwrap_or(0))
        .collect();
    let all: u64 = ticks.iter().sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    (all - idle, all)
}

/// The number after a name; 0 if there is none.
fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkd_wire::Reader;

    #[test]
    fn counts_the_time_of_all_cpus_once() {
        let stat = "cpu  100 2 30 800 40 5 6 7 50 1\ncpu0 1 1 1 1 1 1 1 1 0 0\nintr 5\n";
        assert_eq!(cpu_ticks(stat), (150, 990));
        for garbage in ["", "cpu", "cpu ", "cpu  a b c", "cpu0 1 2 3 4"] {
            assert_eq!(cpu_ticks(garbage), (0, 0), "{}", garbage);
        }
    }

    #[test]
    fn finds_a_field_by_its_whole_name() {
        let text = "MemTotal:  1000 kB\nSwapCached: 5 kB\nCached:   200 kB\nBuffers: x kB\n";
        assert_eq!(field(text, "MemTotal:"), 1000);
        assert_eq!(field(text, "Cached:"), 200);
        assert_eq!(field(text, "Buffers:"), 0);
        assert_eq!(field(text, "MemFree:"), 0);
    }

    #[test]
    fn answers_about_this_machine() {
        let answer = answer().unwrap_or_default();
        let mut reader = Reader::new(&answer);
        let values: Vec<u64> = (0..7).map(|_| reader.u64().unwrap()).collect();
        assert!(reader.is_empty());
        assert!(values[0] <= values[1] && values[1] > 0, "{:?}", values);
        assert!(values[3] <= values[2] && values[2] > 0, "{:?}", values);
        assert!(values[6] <= values[5], "{:?}", values);
    }
}
