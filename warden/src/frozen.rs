//! Frozen copies: a process that has the guest's memory as a VMM had it at one moment, and nothing else. It has one thread, no
//! descriptor and none of the VMM's code and other memory; it waits until it is ended. A VMM with KVM can be copied like
//! this, too, because the copy does not run: the kernel ties the state of KVM to the process that made it.
//!
//! The VMM makes the copy of itself in injected code, with all its threads stopped. It runs on at once; what it writes from
//! then on is copied by the kernel.

use crate::descriptors;
use crate::error::{Context, Error, Outcome};
use crate::maps;
use crate::script::{self, Layout, Table};
use crate::sys::PAGE;
use crate::tracee::{Rseq, Thread, Tracee};
use std::fs;
use std::io;
use std::mem;
use std::path::Path;

/// The kernel gives no memory above this address unless a program asks for that
const MEMORY_END: u64 = 0x7fff_ffff_f000;
/// Handlers of the VMM are not in the copy's memory
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
const RSEQ_UNREGISTER: u64 = 1;
const NAME: &[u8] = b"forkd-frozen\0";
/// Where the code of the split is, behind the interpreter
const SPLIT: usize = 512;

/// What is done before the VMM is stopped
pub struct Ready {
    area: Area,
    /// Start and length of what the copy does not keep
    gaps: Vec<(u64, u64)>,
}

/// Two pages of the VMM: code, and data of the script. They stay for its further copies.
#[derive(Clone, Copy)]
pub struct Area {
    base: u64,
    /// As `Tracee::gadget`
    gadget: u64,
}

impl Area {
    const BYTES: u64 = 2 * PAGE as u64;

    fn data(self) -> u64 {
        self.base + PAGE as u64
    }
}

impl Ready {
    pub fn area(&self) -> Area {
        self.area
    }
}

/// Readies a running VMM for a copy: its guest's memory is no longer left out of copies, and the script has a place. `area` is
/// that of an earlier copy.
pub fn prepare(pid: i32, ram: &Path, ram_bytes: u64, area: Option<Area>) -> Outcome<Ready> {
    let address = maps::ram_address(pid, ram, ram_bytes)?;
    let tracee = Tracee::seize_main(pid)?;
    let main = tracee.main_thread()?;
    let advice = libc::MADV_DOFORK as u64;
    tracee.call(&main, libc::SYS_madvise, [address, ram_bytes, advice, 0, 0, 0])?;
    let area = match area {
        Some(area) => area,
        None => make_area(&tracee, &main)?,
    };
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).during(|| "mappings of the process")?;
    let mut kept = kernels_own(&maps);
    kept.extend([(address, ram_bytes), (area.base, Area::BYTES)]);
    let gaps = gaps_of(kept);
    Ok(Ready { area, gaps })
}

/// The pid of the copy. The VMM runs on, also after an error; but after one with the code EIO its state is not known.
pub fn freeze(pid: i32, ready: &Ready, secret: u64) -> Outcome<i32> {
    let Ready { area, gaps } = ready;
    // All threads: none can change the script before it has run, or see the secret, which is in registers only.
    let tracee = Tracee::seize(pid, area.gadget)?;
    let main = tracee.main_thread()?;
    let pidfd = descriptors::open_pid(pid).during(|| "pidfd")?;
    let mut found = vec![0; PAGE];
    tracee.read(area.base, &mut found)?;
    if found != code() {
        return Err(Error::new("refused", "the process has changed the code of the warden"));
    }
    let mut layout = Layout::new(area.data());
    let table = copy_table(&mut layout, gaps, main.rseq);
    let number_at = layout.words(&[u64::MAX]);
    let arguments = clone_arguments(&mut layout, number_at);
    if layout.bytes().len() > PAGE {
        return Err(Error::new("E2BIG", "the script of a frozen copy is too long"));
    }
    tracee.write(area.data(), layout.bytes())?;

    let split = script::split_code();
    let mut registers = main.registers;
    registers.rip = area.base + SPLIT as u64;
    registers.rax = libc::SYS_clone3 as u64;
    registers.orig_rax = u64::MAX;
    registers.rdi = arguments;
    registers.rsi = mem::size_of::<libc::clone_args>() as u64;
    registers.r9 = secret;
    registers.r12 = table;
    registers.r13 = area.base;
    let after = tracee.run_to(&main, &registers, area.base + (SPLIT + split.trap) as u64)?;
    if let error @ -4095..=-1 = after.rax as i64 {
        let error = io::Error::from_raw_os_error(-error as i32);
        return Err(Error::io(&error, "clone3 in the process"));
    }
    let number = tracee.read_u32(number_at)? as i32;
    let copy = descriptors::take(&pidfd, number)
        .during(|| "pidfd of the copy")
        .and_then(|file| descriptors::pid_of(&file));
    let closed = tracee.call(&main, libc::SYS_close, [number as u64, 0, 0, 0, 0, 0]);
    let copy = copy.map_err(|error| {
        Error::new(
            "EIO",
            format!("the copy is not where it is expected: {}", error.message),
        )
    })?;
    if let Err(error) = closed {
        let _ = crate::sys::send_signal(copy, libc::SIGKILL);
        return Err(Error::new("EIO", error.message));
    }
    Ok(copy)
}

/// What the new process does: it gives up all that it shares with the VMM, and waits. A call that fails ends it.
fn copy_table(layout: &mut Layout, gaps: &[(u64, u64)], rseq: Option<Rseq>) -> u64 {
    let mut table = Table::default();
    table.call(libc::SYS_prctl, &[libc::PR_SET_PDEATHSIG as u64, libc::SIGKILL as u64]);
    table.call(libc::SYS_close_range, &[0, u32::MAX.into(), 0]);
    if let Some(rseq) = rseq {
        // the kernel writes there whenever the thread continues, and would end the process when it is gone
        let arguments = [rseq.address, rseq.length.into(), RSEQ_UNREGISTER, rseq.signature.into()];
        table.call(libc::SYS_rseq, &arguments);
    }
    // also what KVM has mapped into the VMM, which would keep the VM alive
    for (start, length) in gaps {
        table.call(libc::SYS_munmap, &[*start, *length]);
    }
    let name = layout.put(NAME, 16);
    table.try_call(libc::SYS_prctl, &[libc::PR_SET_NAME as u64, name]);
    // for ever: all signals are blocked
    table.call(libc::SYS_ppoll, &[0, 0, 0, 0, 0]);
    table.trap();
    layout.put(&table.bytes(), 16)
}

fn clone_arguments(layout: &mut Layout, pidfd: u64) -> u64 {
    let flags = (libc::CLONE_PARENT | libc::CLONE_UNTRACED | libc::CLONE_PIDFD) as u64 | CLONE_CLEAR_SIGHAND;
    layout.words(&[flags, pidfd, 0, 0, 0, 0, 0, 0, 0, 0, 0])
}

/// The interpreter, and the code that makes the new process
fn code() -> Vec<u8> {
    let mut bytes = vec![0; PAGE];
    let (stub, split) = (script::stub(), script::split_code().bytes);
    bytes[..stub.len()].copy_from_slice(stub);
    bytes[SPLIT..SPLIT + split.len()].copy_from_slice(split);
    bytes
}

fn make_area(tracee: &Tracee, main: &Thread) -> Outcome<Area> {
    let anonymous = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let writable = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let executable = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let nowhere = u64::MAX;
    let base = tracee.call(main, libc::SYS_mmap, [0, Area::BYTES, writable, anonymous, nowhere, 0])?;
    let gadget = tracee.gadget();
    let protected = tracee.call(main, libc::SYS_mprotect, [base, PAGE as u64, executable, 0, 0, 0]);
    // the warden may write where the process may not
    match protected.and_then(|_| tracee.write(base, &code())) {
        Ok(()) => Ok(Area { base, gadget }),
        Err(error) => {
            let _ = tracee.call(main, libc::SYS_munmap, [base, Area::BYTES, 0, 0, 0, 0]);
            Err(error)
        }
    }
}

/// Start and length of the kernel's own mappings ([vdso], [vvar] and others), which some kernels do not let a process remove
fn kernels_own(maps: &str) -> Vec<(u64, u64)> {
    let own = maps.lines().filter(|line| line.contains(" [v"));
    own.filter_map(|line| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        Some((start, u64::from_str_radix(end, 16).ok()? - start))
    })
    .collect()
}

/// Start and length of all that is not kept
fn gaps_of(mut kept: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    kept.retain(|(start, _)| *start < MEMORY_END);
    kept.sort_unstable();
    kept.push((MEMORY_END, 0));
    let mut gaps = Vec::new();
    let mut at = 0;
    for (start, length) in kept {
        if at < start {
            gaps.push((at, start - at));
        }
        at = at.max(start + length);
    }
    gaps
}
