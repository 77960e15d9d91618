//! Makes a fork independent of its siblings: clock, randomness, names, ids and environment.

use crate::generators::write_names;
use crate::spawn::Env;
use crate::sys;
use forkd_wire::errno;
use forkd_wire::{Malformed, Reader, Writer};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

const FOLDER: &str = "/run/forkd";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const MACHINE_ID: &str = "/etc/machine-id";
/// A copy of the machine id in some images; a link in others.
const DBUS_MACHINE_ID: &str = "/var/lib/dbus/machine-id";
/// The value until the first RESYNC, before which no program runs.
const NO_BOOT_ID: &str = "00000000-0000-0000-0000-000000000000\n";

/// Files of the guest's identity. They are opened and mounted before the snapshot, because every system call and every
/// new piece of code costs time after a fork.
pub struct Identity {
    random: File,
    machine_id: File,
    machine_id_bound: bool,
    boot_id: File,
    boot_id_bound: io::Result<()>,
    sandbox_id: File,
    sandbox_id_length: usize,
    pub env: Env,
}

fn own_file(name: &str, content: &str) -> io::Result<File> {
    let path = format!("{}/{}", FOLDER, name);
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    file.write_all_at(content.as_bytes(), 0)?;
    Ok(file)
}

fn bind(name: &str, target: &str) -> io::Result<()> {
    sys::mount(&format!("{}/{}", FOLDER, name), target, "", libc::MS_BIND, "")
}

impl Identity {
    pub fn new() -> io::Result<Identity> {
        fs::create_dir_all(FOLDER)?;
        let first_machine_id = fs::read_to_string(MACHINE_ID).unwrap_or_default();
        // a bootstrapped image has no machine id, and a bind mount needs a file. If it cannot be made (no /etc), no
        // program can read it either.
        let _ = OpenOptions::new().append(true).create(true).open(MACHINE_ID);
        Ok(Identity {
            random: OpenOptions::new().write(true).open("/dev/urandom")?,
            machine_id: own_file("machine-id", &first_machine_id)?,
            machine_id_bound: bind("machine-id", MACHINE_ID).is_ok(),
            // The guest kernel makes its own boot id at the first read and keeps it. The agent does not read it: a
            // program that reads it in its own procfs after a fork gets a value that no other fork has.
            boot_id: own_file("boot_id", NO_BOOT_ID)?,
            boot_id_bound: bind("boot_id", BOOT_ID),
            sandbox_id: own_file("sandbox-id", "")?,
            sandbox_id_length: 0,
            env: Env::new(),
        })
    }

    /// Before a snapshot: also mounts the identity over copies of the machine id that the image or the warm-up made.
    pub fn cover_copies(&self) {
        if fs::symlink_metadata(DBUS_MACHINE_ID).map_or(false, |found| found.is_file()) {
            // if it cannot be mounted, it keeps its value like any other file of the image
            let _ = bind("machine-id", DBUS_MACHINE_ID);
        }
    }

    /// Performs the steps of a RESYNC on the machine itself.
    pub fn resync(&mut self, payload: &[u8]) -> Result<Steps, Malformed> {
        let mut reader = Reader::new(payload);
        let clock = reader.i64()?;
        let entropy = reader.bytes()?;
        let hostname = reader.str()?;
        let machine_id = reader.str()?;
        let sandbox_id = reader.str()?;
        let env = reader.map()?;
        // an older host does not send the field
        let given_boot_id = if reader.is_empty() {
            String::new()
        } else {
            reader.str()?
        };
        if !given_boot_id.is_empty() && !is_uuid(&given_boot_id) {
            return Err(Malformed);
        }
        if !(32..=512).contains(&entropy.len()) || machine_id.len() != 32 {
            return Err(Malformed);
        }

        // generator and clock first: in a fork of a branch, processes already run
        let mut steps = Steps::default();
        steps.take("rng", sys::add_entropy(&self.random, entropy));
        steps.take("clock", sys::set_wall_clock_ns(clock));
        steps.unique_ns = sys::monotonic_ns();
        steps.take("hostname", sys::set_hostname(&hostname));
        steps.take("machine_id", self.set_machine_id(&machine_id));
        steps.boot_id = given_boot_id;
        let boot_id = self.set_boot_id(&mut steps.boot_id);
        steps.take("boot_id", boot_id);
        steps.take("sandbox_id", self.set_sandbox_id(&sandbox_id));
        self.env = env;
        Ok(steps)
    }

    /// Sandbox ids have one length, so that a fork need not truncate the file; the value before the first RESYNC is
    /// shorter.
    fn set_sandbox_id(&mut self, id: &str) -> io::Result<()> {
        if id.len() != self.sandbox_id_length {
            self.sandbox_id.set_len(0)?;
            self.sandbox_id_length = id.len();
        }
        set(&self.sandbox_id, id)
    }

    fn set_machine_id(&mut self, id: &str) -> io::Result<()> {
        set(&self.machine_id, &format!("{}\n", id))?;
        if !self.machine_id_bound {
            match bind("machine-id", MACHINE_ID) {
                // an image without the file needs none
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                result => {
                    result?;
                    self.machine_id_bound = true;
                }
            }
        }
        Ok(())
    }

    /// Sets the given boot id, or a new one if it is empty.
    fn set_boot_id(&mut self, new: &mut String) -> io::Result<()> {
        if new.is_empty() {
            *new = uuid(sys::random_bytes()?);
        }
        set(&self.boot_id, &format!("{}\n", new))?;
        if self.boot_id_bound.is_err() {
            self.boot_id_bound = bind("boot_id", BOOT_ID);
        }
        match &self.boot_id_bound {
            Ok(()) => Ok(()),
            Err(e) => Err(io::Error::new(e.kind(), e.to_string())),
        }
    }
}

/// Results of a RESYNC so far.
#[derive(Default)]
pub struct Steps {
    boot_id: String,
    failures: Vec<(&'static str, String)>,
    /// Monotonic time at which the guest kernel's generator and clock were independent.
    unique_ns: u64,
}

impl Steps {
    /// The step's result, or the default if it failed.
    pub fn take<T: Default>(&mut self, step: &'static str, result: io::Result<T>) -> T {
        result.unwrap_or_else(|e| {
            self.failures.push((step, errno::text(&e)));
            T::default()
        })
    }

    pub fn are_done(&self) -> bool {
        self.failures.is_empty()
    }

    /// The payload of the RESULT.
    pub fn answer(self, filled: &[String], was_held: bool) -> Vec<u8> {
        let answer = Writer::default()
            .i64(sys::wall_clock_ns())
            .str(&self.boot_id)
            .u32(self.failures.len() as u32);
        let answer = self
            .failures
            .iter()
            .fold(answer, |answer, (step, why)| answer.str(step).str(why));
        write_names(answer, filled).u8(was_held as u8).u64(self.unique_ns).0
    }
}

fn set(file: &File, content: &str) -> io::Result<()> {
    file.write_all_at(content.as_bytes(), 0)
}

/// A random UUID (version 4) from random bytes.
fn uuid(mut bytes: [u8; 16]) -> String {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut out = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        out.push(HEX[(byte >> 4) as usize] as char);
        out.push(HEX[(byte & 15) as usize] as char);
    }
    out
}

fn is_uuid(text: &str) -> bool {
    let fits = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    };
    text.len() == 36 && text.bytes().enumerate().all(fits)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_boot_id_has_the_form_of_a_uuid() {
        assert!(super::is_uuid(&super::uuid([0x5a; 16])));
        for wrong in [
            "",
            "x",
            "4d14c069-3b9c-4d98-90fd-0d45148c903",
            "4d14c069_3b9c-4d98-90fd-0d45148c9033",
        ] {
            assert!(!super::is_uuid(wrong), "{}", wrong);
        }
    }

    #[test]
    fn boot_ids_are_version_4() {
        assert_eq!(super::uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(super::uuid([0; 16]), "00000000-0000-4000-8000-000000000000");
    }
}
