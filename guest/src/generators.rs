//! Random generators inside running processes: the agent overwrites their state at every fork, without the help of the
//! process.

use crate::failure::Failure;
use crate::process::Process;
use crate::sys;
use forkd_wire::errno;
use forkd_wire::{Malformed, Reader, Writer};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// Far above the largest known generator state.
const MOST_BYTES: usize = 65536;
const FILL_ZERO: u8 = 1;

#[derive(Default)]
pub struct Generators {
    owners: Vec<Owner>,
}

struct Owner {
    process: u64,
    /// Opened when the regions are registered, so that a fork needs only one write for each.
    memory: File,
    regions: Vec<Region>,
}

struct Region {
    name: String,
    address: u64,
    length: usize,
    zero: bool,
}

impl Generators {
    /// Replaces the regions of one process.
    pub fn set(&mut self, process: &Process, reader: &mut Reader) -> Result<(), Failure> {
        let regions = read_regions(reader)?;
        let path = format!("/proc/{}/mem", process.pid);
        let memory = OpenOptions::new().write(true).open(path)?;
        self.owners.retain(|owner| owner.process != process.id);
        let process = process.id;
        self.owners.push(Owner {
            process,
            memory,
            regions,
        });
        Ok(())
    }

    /// Fills every region through a buffer of at least `MOST_BYTES` that is already in memory. Returns the names of the
    /// filled ones, or the first error.
    pub fn refill(&mut self, fresh: &mut [u8]) -> io::Result<Vec<String>> {
        let mut names: Vec<String> = Vec::new();
        let mut failure = None;
        self.owners.retain(|owner| {
            for region in &owner.regions {
                let bytes = &mut fresh[..region.length];
                let random = if region.zero {
                    bytes.fill(0);
                    Ok(())
                } else {
                    sys::fill_random(bytes)
                };
                match random.and_then(|()| owner.memory.write_at(bytes, region.address)) {
                    // the process has ended, or runs another program
                    Ok(0) => return false,
                    Ok(_) if names.contains(&region.name) => {}
                    Ok(_) => names.push(region.name.clone()),
                    Err(e) => failure = Some(format!("{}: {}", region.name, errno::text(&e))),
                }
            }
            true
        });
        failure.map_or(Ok(names), |why| Err(io::Error::new(io::ErrorKind::Other, why)))
    }
}

fn read_regions(reader: &mut Reader) -> Result<Vec<Region>, Malformed> {
    let regions = reader.list(|reader| {
        Ok(Region {
            name: reader.str()?,
            address: reader.u64()?,
            length: reader.u32()? as usize,
            zero: reader.u8()? == FILL_ZERO,
        })
    })?;
    let fits = |region: &Region| (1..=MOST_BYTES).contains(&region.length);
    if regions.iter().all(fits) {
        Ok(regions)
    } else {
        Err(Malformed)
    }
}

/// The end of a RESYNC's answer: the names of the filled generators.
pub fn write_names(answer: Writer, names: &[String]) -> Writer {
    names
        .iter()
        .fold(answer.u32(names.len() as u32), |answer, name| answer.str(name))
}
