//! What makes a fork somebody of its own: clock, randomness, names, ids and environment.

use crate::errno;
use crate::generators::{write_names, Generators};
use crate::protocol::{Malformed, Reader, Writer};
use crate::spawn::Env;
use crate::sys;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

const FOLDER: &str = "/run/forkd";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const MACHINE_ID: &str = "/etc/machine-id";

/// Files of the guest's identity. They are opened and mounted before the freeze, because every system call and every
/// new piece of code after a fork costs time there.
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
        let first_boot_id = fs::read_to_string(BOOT_ID)?;
        let first_machine_id = fs::read_to_string(MACHINE_ID).unwrap_or_default();
        // a bootstrapped image has none; without something to mount on, the guest could not see its own. Where it cannot
        // be made (no /etc), there is nobody to read it either.
        let _ = OpenOptions::new().append(true).create(true).open(MACHINE_ID);
        Ok(Identity {
            random: OpenOptions::new().write(true).open("/dev/urandom")?,
            machine_id: own_file("machine-id", &first_machine_id)?,
            machine_id_bound: bind("machine-id", MACHINE_ID).is_ok(),
            boot_id: own_file("boot_id", &first_boot_id)?,
            boot_id_bound: bind("boot_id", BOOT_ID),
            sandbox_id: own_file("sandbox-id", "")?,
            sandbox_id_length: 0,
            env: Env::new(),
        })
    }

    /// Does what a RESYNC asks; the payload of its RESULT.
    pub fn resync(
        &mut self,
        payload: &[u8],
        generators: &mut Generators,
        scratch: &mut [u8],
    ) -> Result<Vec<u8>, Malformed> {
        let mut reader = Reader::new(payload);
        let clock = reader.i64()?;
        let entropy = reader.bytes()?;
        let hostname = reader.str()?;
        let machine_id = reader.str()?;
        let sandbox_id = reader.str()?;
        let env = reader.map()?;
        if !(32..=512).contains(&entropy.len()) || machine_id.len() != 32 {
            return Err(Malformed);
        }

        let clock = sys::set_wall_clock_ns(clock);
        let rng = sys::add_entropy(&self.random, entropy);
        let hostname = sys::set_hostname(&hostname);
        let machine_id = self.set_machine_id(&machine_id);
        let mut new_boot_id = String::new();
        let boot_id = self.set_boot_id(&mut new_boot_id);
        let sandbox_id = self.set_sandbox_id(&sandbox_id);
        self.env = env;
        // after the guest kernel's own randomness is fresh
        let (filled, generators) = match generators.refill(scratch) {
            Ok(names) => (names, Ok(())),
            Err(why) => (Vec::new(), Err(io::Error::new(io::ErrorKind::Other, why))),
        };

        let steps = [
            ("clock", clock),
            ("rng", rng),
            ("hostname", hostname),
            ("machine_id", machine_id),
            ("boot_id", boot_id),
            ("sandbox_id", sandbox_id),
            ("generators", generators),
        ];
        let failures = steps.iter().filter(|(_, result)| result.is_err()).count();
        let mut answer = Writer::default()
            .i64(sys::wall_clock_ns())
            .str(&new_boot_id)
            .u32(failures as u32);
        for (step, result) in steps {
            if let Err(e) = result {
                answer = answer.str(step).str(&errno::text(&e));
            }
        }
        Ok(write_names(answer, &filled).0)
    }

    /// Sandboxes' ids have one length, so that a fork need not shorten the file; what runs before has another.
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

    fn set_boot_id(&mut self, new: &mut String) -> io::Result<()> {
        *new = uuid(sys::random_bytes()?);
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

#[cfg(test)]
mod tests {
    #[test]
    fn boot_ids_are_version_4() {
        assert_eq!(super::uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(super::uuid([0; 16]), "00000000-0000-4000-8000-000000000000");
    }
}
