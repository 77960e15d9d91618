//! TCP ports with listeners in the guest.

use crate::failure::Failure;
use forkd_wire::{Reader, Writer};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Fits in one frame.
const MOST: usize = 512;
/// Limits of the search for owners: the agent does nothing else meanwhile.
const MOST_PROCESSES: usize = 1024;
const MOST_DESCRIPTORS: usize = 4096;
const LISTENING: &str = "0A";

#[derive(Debug, PartialEq)]
struct Listener {
    address: IpAddr,
    port: u16,
    inode: u64,
    /// 0: unknown.
    pid: u32,
    name: String,
}

/// Answers LISTENERS, without the agent's own port.
pub fn answer(payload: &[u8], own_port: Option<u16>) -> Result<Vec<u8>, Failure> {
    let wants_owners = Reader::new(payload).u8()? != 0;
    let mut found: Vec<Listener> = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        // a guest kernel without IPv6 has no such table
        if let Ok(file) = File::open(table) {
            read_table(BufReader::new(file), &mut found);
        }
    }
    found.retain(|listener| Some(listener.port) != own_port || !listener.address.is_unspecified());
    if wants_owners {
        find_owners(&mut found);
    }
    let mut out = Writer::default().u32(found.len() as u32);
    for listener in &found {
        out = out
            .str(&listener.address.to_string())
            .u32(listener.port.into())
            .u32(listener.pid)
            .str(&listener.name);
    }
    Ok(out.0)
}

/// The table begins with the listening sockets, so the rest, which may be long, is not read.
fn read_table(table: impl BufRead, found: &mut Vec<Listener>) {
    let lines = table.lines().skip(1).map_while(|line| parse(&line.ok()?));
    for listener in lines {
        let is_new = |known: &Listener| (known.address, known.port) != (listener.address, listener.port);
        if found.len() < MOST && found.iter().all(is_new) {
            found.push(listener);
        }
    }
}

// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
fn parse(line: &str) -> Option<Listener> {
    let fields: Vec<&str> = line.split_whitespace().take(10).collect();
    if fields.len() < 10 || fields[3] != LISTENING {
        return None;
    }
    let (address, port) = fields[1].split_once(':')?;
    Some(Listener {
        address: parse_address(address)?,
        port: u16::from_str_radix(port, 16).ok()?,
        inode: fields[9].parse().ok()?,
        pid: 0,
        name: String::new(),
    })
}

/// 32-bit words in hexadecimal, in the byte order of this processor.
fn parse_address(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        Some(
            u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16)
                .ok()?
                .to_ne_bytes(),
        )
    };
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for at in 0..4 {
                bytes[at * 4..at * 4 + 4].copy_from_slice(&word(at)?);
            }
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

/// Sets the first process of each socket.
fn find_owners(found: &mut [Listener]) {
    let mut left = MOST_DESCRIPTORS;
    let mut pids: Vec<u32> = names("/proc").filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    for pid in pids.into_iter().take(MOST_PROCESSES) {
        let folder = format!("/proc/{}/fd", pid);
        for fd in names(&folder) {
            if left == 0 || found.iter().all(|listener| listener.pid != 0) {
                return;
            }
            left -= 1;
            // the descriptor may be closed already
            let inode = match fs::read_link(format!("{}/{}", folder, fd)) {
                Ok(target) => inode_of(&target.to_string_lossy()),
                Err(_) => None,
            };
            let owned = |listener: &&mut Listener| listener.pid == 0 && Some(listener.inode) == inode;
            if let Some(listener) = found.iter_mut().find(owned) {
                listener.pid = pid;
                let name = fs::read(format!("/proc/{}/comm", pid)).unwrap_or_default();
                listener.name = String::from_utf8_lossy(&name).trim_end().to_string();
            }
        }
    }
}

// socket:[12345]
fn inode_of(target: &str) -> Option<u64> {
    target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Entries of a folder; none if the process has ended.
fn names(folder: &str) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
    const REST: &str = "00000000:00000000 00:00000000 00000000     0        0";

    fn line(local: &str, state: &str, inode: u64) -> String {
        format!("   0: {} 00000000:0000 {} {} {} 1 0\n", local, state, REST, inode)
    }

    fn read(lines: &[String]) -> Vec<(String, u16, u64)> {
        let mut found = Vec::new();
        read_table((HEAD.to_string() + &lines.concat()).as_bytes(), &mut found);
        found
            .into_iter()
            .map(|l| (l.address.to_string(), l.port, l.inode))
            .collect()
    }

    #[test]
    fn reads_addresses_of_both_families() {
        let found = read(&[
            line("0100007F:1F40", "0A", 11),
            line("00000000:0050", "0A", 12),
            line("00000000000000000000000001000000:1F90", "0A", 13),
            line("B80D0120000000000000000001000000:01BB", "0A", 14),
        ]);
        let expected = [
            ("127.0.0.1", 8000, 11),
            ("0.0.0.0", 80, 12),
            ("::1", 8080, 13),
            ("2001:db8::1", 443, 14),
        ];
        assert_eq!(
            found,
            expected.map(|(address, port, inode)| (address.to_string(), port, inode))
        );
    }

    #[test]
    fn stops_after_the_last_listener_and_lists_a_socket_once() {
        let found = read(&[
            line("0100007F:1F40", "0A", 11),
            line("0100007F:1F40", "0A", 12),
            line("0100007F:1F41", "01", 13),
            line("0100007F:1F42", "0A", 14),
        ]);
        assert_eq!(found, [("127.0.0.1".to_string(), 8000, 11)]);
    }

    #[test]
    fn ignores_garbage() {
        for local in [
            "",
            "0100007F",
            "0100007F:",
            "0100007F:1F401",
            "010000:1F40",
            "0100007G:1F40",
            "é00007F:1F40",
        ] {
            assert_eq!(read(&[line(local, "0A", 1)]), [], "{}", local);
        }
        assert_eq!(inode_of("socket:[77]"), Some(77));
        for target in ["socket:[]", "socket:[7", "pipe:[7]", "/dev/null"] {
            assert_eq!(inode_of(target), None, "{}", target);
        }
    }

    #[test]
    fn is_at_most_as_large_as_a_frame() {
        let many: Vec<String> = (0..2000)
            .map(|port| line(&format!("0100007F:{:04X}", port), "0A", port))
            .collect();
        assert_eq!(read(&many).len(), MOST);
    }
}
