//! A stopped process: its threads with their registers, its memory, and system calls made on its main thread. All of it
//! must be called on the thread that called `seize`: the kernel accepts ptrace requests from no other.

use crate::error::{Context, Error, Outcome};
use libc::{c_int, c_void, user_regs_struct};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use std::{mem, ptr, thread};

/// The largest state of the processor's vector units that the kernel gives
const MAX_XSTATE: usize = 16 * 1024;
const NT_X86_XSTATE: c_int = 0x202;
const SIGNAL_SET_BYTES: usize = 8;
/// All signals but SIGTRAP, by which injected code returns control: a handler of the process must not run in between
const ALL_BUT_TRAP: u64 = !(1 << (libc::SIGTRAP - 1));
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// New threads may appear while others are being stopped
const ROUNDS: usize = 16;
const PTRACE_EVENT_STOP: c_int = 128;
const POLL: Duration = Duration::from_micros(50);
/// What a call returns that the kernel restarts (ERESTARTSYS to ERESTART_RESTARTBLOCK); user code never sees these
const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;

pub struct Tracee {
    pub pid: i32,
    /// The main thread first
    tids: Vec<i32>,
    memory: File,
    /// Address of a `syscall` instruction in the vDSO
    gadget: u64,
    /// A wait that lasts longer is an error
    deadline: Option<Instant>,
}

/// What a thread is, apart from memory
pub struct Thread {
    pub tid: i32,
    /// As the process itself knows it: in its own pid namespace
    pub inner_tid: i32,
    /// With a call that was interrupted about to be made again
    pub registers: user_regs_struct,
    pub xstate: Vec<u8>,
    pub mask: u64,
    /// Address and length
    pub robust_list: (u64, u64),
    pub rseq: Option<Rseq>,
    pub name: Vec<u8>,
    /// The call in which it was stopped; None: it ran code of its own
    pub call: Option<i64>,
    /// It waited in that call; otherwise the call was complete, or one that does not wait
    pub is_blocked: bool,
}

#[derive(Clone, Copy)]
pub struct Rseq {
    pub address: u64,
    pub length: u32,
    pub signature: u32,
    pub flags: u32,
}

impl Thread {
    /// Call after a second stop. A thread that was let go and got no processor since has not entered its call again: its
    /// registers are as they were, and it counts as waiting if it did then.
    pub fn waits_since(&mut self, earlier: &[Thread]) {
        let same = |other: &&Thread| other.tid == self.tid && words(&other.registers) == words(&self.registers);
        if let (None, Some(before)) = (self.call, earlier.iter().find(same)) {
            self.call = before.call;
            self.is_blocked = before.is_blocked;
        }
    }
}

impl Tracee {
    /// Stops every thread. On error all threads continue. The process is killed when this process ends first. `gadget` is
    /// the one that was found in it before.
    pub fn seize(pid: i32, gadget: u64) -> Outcome<Tracee> {
        Tracee::stopped(pid, Some(gadget), tasks_of, None)
    }

    /// The same, with a limit for all waits: a VMM that was broken into can spend any time in a call that cannot be
    /// interrupted. After an error with the code EIO a thread of it may stay traced, so the process must be killed.
    pub fn seize_within(pid: i32, gadget: u64, limit: Duration) -> Outcome<Tracee> {
        Tracee::stopped(pid, Some(gadget), tasks_of, Some(Instant::now() + limit))
    }

    /// Stops only the main thread, which is enough to make calls.
    pub fn seize_main(pid: i32) -> Outcome<Tracee> {
        Tracee::stopped(pid, None, |pid| Ok(vec![pid]), None)
    }

    /// As `seize_main` and `seize_within`
    pub fn seize_main_within(pid: i32, limit: Duration) -> Outcome<Tracee> {
        Tracee::stopped(pid, None, |pid| Ok(vec![pid]), Some(Instant::now() + limit))
    }

    fn stopped(
        pid: i32,
        gadget: Option<u64>,
        tasks: fn(i32) -> Outcome<Vec<i32>>,
        deadline: Option<Instant>,
    ) -> Outcome<Tracee> {
        let memory = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))
            .during(|| "memory of the process")?;
        let mut tracee = Tracee {
            pid,
            tids: Vec::new(),
            memory,
            gadget: 0,
            deadline,
        };
        // dropped on error, and so released
        tracee.stop(tasks)?;
        tracee.gadget = match gadget {
            Some(known) if tracee.is_gadget(known) => known,
            Some(_) => {
                return Err(Error::new(
                    "refused",
                    "the process has changed the code that makes its calls",
                ))
            }
            None => tracee.find_gadget()?,
        };
        Ok(tracee)
    }

    /// Address of a `syscall` instruction, which is the same in copies of the process
    pub fn gadget(&self) -> u64 {
        self.gadget
    }

    fn stop(&mut self, tasks: fn(i32) -> Outcome<Vec<i32>>) -> Outcome<()> {
        for _ in 0..ROUNDS {
            let new: Vec<i32> = tasks(self.pid)?
                .into_iter()
                .filter(|tid| !self.tids.contains(tid))
                .collect();
            if new.is_empty() {
                return Ok(());
            }
            // all get the request before the first is waited for
            let mut asked: Vec<(i32, Outcome<bool>)> =
                new.into_iter().map(|tid| (tid, self.ask_to_stop(tid))).collect();
            // the main thread last: its end is reported only after the ends of all others were taken
            asked.sort_unstable_by_key(|(tid, _)| *tid == self.pid);
            let mut failed = None;
            for (tid, asked) in asked {
                // also after an error: only a thread that has stopped can be let go
                match asked.and_then(|is_there| Ok(is_there && self.await_stop(tid)?)) {
                    Ok(true) => self.tids.push(tid),
                    Ok(false) => {}
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            self.tids.sort_unstable_by_key(|tid| (*tid != self.pid, *tid));
            if let Some(error) = failed {
                return Err(error);
            }
            if self.tids.first() != Some(&self.pid) {
                return Err(Error::new("ESRCH", "the process has ended"));
            }
        }
        Err(Error::new("EBUSY", "the process makes threads all the time"))
    }

    /// False: it has ended meanwhile
    fn ask_to_stop(&self, tid: i32) -> Outcome<bool> {
        match request(libc::PTRACE_SEIZE, tid, 0, libc::PTRACE_O_EXITKILL as u64) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) && tid != self.pid => return Ok(false),
            Err(error) => return Err(Error::io(&error, "ptrace")),
        }
        request(libc::PTRACE_INTERRUPT, tid, 0, 0).during(|| "ptrace")?;
        Ok(true)
    }

    /// Every thread continues where it was stopped, or where its registers were set to.
    pub fn release(&mut self) {
        for tid in mem::take(&mut self.tids) {
            // fails only when the thread has ended
            let _ = request(libc::PTRACE_DETACH, tid, 0, 0);
        }
    }

    pub fn threads(&self) -> Outcome<Vec<Thread>> {
        self.tids.iter().map(|tid| thread(self.pid, *tid)).collect()
    }

    pub fn main_thread(&self) -> Outcome<Thread> {
        thread(self.pid, self.pid)
    }

    pub fn read(&self, address: u64, into: &mut [u8]) -> Outcome<()> {
        self.memory.read_exact_at(into, address).during(|| "reading memory")
    }

    pub fn read_u32(&self, address: u64) -> Outcome<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    pub fn read_u64(&self, address: u64) -> Outcome<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Also where the process itself may only read
    pub fn write(&self, address: u64, bytes: &[u8]) -> Outcome<()> {
        self.memory.write_all_at(bytes, address).during(|| "writing memory")
    }

    /// The result of one system call, made by the main thread; the arguments are in registers only.
    pub fn call(&self, main: &Thread, number: i64, arguments: [u64; 6]) -> Outcome<u64> {
        let mut registers = main.registers;
        registers.rip = self.gadget;
        registers.rax = number as u64;
        registers.orig_rax = u64::MAX;
        [
            registers.rdi,
            registers.rsi,
            registers.rdx,
            registers.r10,
            registers.r8,
            registers.r9,
        ] = arguments;
        let after = self.step(main, &registers, libc::PTRACE_SINGLESTEP)?;
        match after.rax as i64 {
            error @ -4095..=-1 => Err(Error::io(
                &io::Error::from_raw_os_error(-error as i32),
                "a call in the process",
            )),
            _ => Ok(after.rax),
        }
    }

    /// Runs code on the main thread until it traps, and gives the registers as they are then.
    pub fn run(&self, main: &Thread, address: u64, rbx: u64) -> Outcome<user_regs_struct> {
        let mut registers = main.registers;
        registers.rip = address;
        registers.rbx = rbx;
        registers.orig_rax = u64::MAX;
        self.step(main, &registers, libc::PTRACE_CONT)
    }

    /// Runs code with these registers on the main thread until it traps before `end`, and gives the registers as they are
    /// then. The process may have sent itself signals of the same kind before; its own are not delivered.
    pub fn run_to(&self, main: &Thread, registers: &user_regs_struct, end: u64) -> Outcome<user_regs_struct> {
        set_mask(self.pid, ALL_BUT_TRAP)?;
        set_registers(self.pid, registers)?;
        let after = self.await_trap(end)?;
        set_registers(self.pid, &main.registers)?;
        set_mask(self.pid, main.mask)?;
        Ok(after)
    }

    fn await_trap(&self, end: u64) -> Outcome<user_regs_struct> {
        for _ in 0..ROUNDS {
            request(libc::PTRACE_CONT, self.pid, 0, 0).during(|| "ptrace")?;
            let status = self.wait(self.pid)?;
            status.ok_or_else(|| Error::new("ESRCH", "the process has ended"))?;
            let after = registers_of(self.pid)?;
            if after.rip == end {
                return Ok(after);
            }
        }
        Err(Error::new("EIO", "injected code does not come to its end"))
    }

    fn step(&self, main: &Thread, registers: &user_regs_struct, how: libc::c_uint) -> Outcome<user_regs_struct> {
        set_mask(self.pid, ALL_BUT_TRAP)?;
        set_registers(self.pid, registers)?;
        request(how, self.pid, 0, 0).during(|| "ptrace")?;
        let status = self
            .wait(self.pid)?
            .ok_or_else(|| Error::new("ESRCH", "the process has ended"))?;
        if libc::WSTOPSIG(status) != libc::SIGTRAP || status >> 16 != 0 {
            let message = format!(
                "the process stopped by signal {} in injected code",
                libc::WSTOPSIG(status)
            );
            return Err(Error::new("EIO", message));
        }
        let after = registers_of(self.pid)?;
        set_registers(self.pid, &main.registers)?;
        set_mask(self.pid, main.mask)?;
        Ok(after)
    }

    /// False: the thread has ended
    fn await_stop(&self, tid: i32) -> Outcome<bool> {
        while let Some(status) = self.wait(tid)? {
            if status >> 16 == PTRACE_EVENT_STOP {
                return Ok(true);
            }
            // a signal is about to be delivered; the stop that was asked for follows
            let signal = libc::WSTOPSIG(status);
            request(libc::PTRACE_CONT, tid, 0, signal as u64).during(|| "ptrace")?;
        }
        Ok(false)
    }

    /// Status of a thread that has stopped; None: it has ended. The end of the process is not taken here: the warden's main
    /// loop would never learn of it, and who ends the VM would wait forever.
    fn wait(&self, tid: i32) -> Outcome<Option<c_int>> {
        if tid != self.pid {
            self.await_event(libc::P_PID, tid)?;
            return Ok(Some(take(tid)?).filter(|status| libc::WIFSTOPPED(*status)));
        }
        loop {
            if let Some(event) = peek(libc::P_PID, tid, libc::WNOHANG)? {
                return Ok(if event.is_stop { Some(take(tid)?) } else { None });
            }
            // The kernel reports the end of a main thread only after the other threads, which this process traces, were
            // reaped: to wait for the main thread alone would last forever if the process is killed now.
            match self.await_event(libc::P_ALL, 0)? {
                Some(event) if event.tid == tid => {}
                Some(event) if self.tids.contains(&event.tid) => {
                    take(event.tid)?;
                }
                // another child has ended, and stays so until the main loop takes it
                _ => thread::sleep(POLL),
            }
        }
    }

    fn await_event(&self, kind: libc::idtype_t, tid: i32) -> Outcome<Option<Event>> {
        let deadline = match self.deadline {
            Some(deadline) => deadline,
            None => return peek(kind, tid, 0),
        };
        loop {
            match peek(kind, tid, libc::WNOHANG)? {
                // the end of another child stays for the main loop, so this one may never come
                Some(event) if Instant::now() < deadline => return Ok(Some(event)),
                None if Instant::now() < deadline => thread::sleep(POLL),
                _ => return Err(Error::new("EIO", "a thread of the process does not stop")),
            }
        }
    }

    fn is_gadget(&self, address: u64) -> bool {
        let mut found = [0; SYSCALL.len()];
        self.read(address, &mut found).is_ok() && found == SYSCALL
    }

    fn find_gadget(&self) -> Outcome<u64> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid)).during(|| "maps")?;
        let range = maps.lines().find(|line| line.ends_with("[vdso]")).and_then(|line| {
            let (start, rest) = line.split_once('-')?;
            let (end, _) = rest.split_once(' ')?;
            Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
        });
        let missing = || Error::new("ENOSYS", "the kernel gives no vDSO with a system call");
        let (start, end) = range.ok_or_else(missing)?;
        let mut code = vec![0; (end - start) as usize];
        self.read(start, &mut code)?;
        let at = code.windows(2).position(|pair| pair == SYSCALL).ok_or_else(missing)?;
        Ok(start + at as u64)
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        self.release();
    }
}

pub fn tasks_of(pid: i32) -> Outcome<Vec<i32>> {
    let mut tids = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task")).during(|| "threads of the process")? {
        let name = entry.during(|| "threads of the process")?.file_name();
        tids.extend(name.to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    // the main thread first: it is the one that is continued
    tids.sort_unstable_by_key(|tid| (*tid != pid, *tid));
    Ok(tids)
}

fn thread(pid: i32, tid: i32) -> Outcome<Thread> {
    let mut registers = registers_of(tid)?;
    let call = (registers.orig_rax as i64 >= 0).then_some(registers.orig_rax as i64);
    let result = registers.rax as i64;
    // calls that the kernel does not restart after a signal, such as epoll_wait, give EINTR
    let is_blocked = call.is_some() && (RESTARTS.contains(&result) || result == -i64::from(libc::EINTR));
    if call.is_some() && RESTARTS.contains(&result) {
        registers.rax = registers.orig_rax;
        registers.rip -= SYSCALL.len() as u64;
    }
    registers.orig_rax = u64::MAX;
    // at once, for a thread that is let go: the kernel would make another call in its place (restart_syscall), in which the
    // thread could not be copied later
    set_registers(tid, &registers)?;
    Ok(Thread {
        tid,
        inner_tid: inner_tid(pid, tid)?,
        registers,
        xstate: xstate_of(tid)?,
        mask: mask_of(tid)?,
        robust_list: robust_list_of(tid)?,
        rseq: rseq_of(tid)?,
        name: fs::read(format!("/proc/{pid}/task/{tid}/comm")).during(|| "name of a thread")?,
        call,
        is_blocked,
    })
}

/// The number of a thread in the innermost pid namespace
fn inner_tid(pid: i32, tid: i32) -> Outcome<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).during(|| "status of a thread")?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let last = line.and_then(|line| line.split_whitespace().last()?.parse().ok());
    last.ok_or_else(|| Error::new("ENOSYS", "the kernel does not report the pids of a namespace"))
}

/// Status of a child or a traced thread that has stopped or ended, which stays to be taken; None: nothing has happened yet
fn peek(kind: libc::idtype_t, tid: i32, options: c_int) -> Outcome<Option<Event>> {
    let options = options | libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL | libc::__WNOTHREAD;
    loop {
        // SAFETY: all zeroes are valid, and the kernel writes one structure.
        let (result, info) = unsafe {
            let mut info: libc::siginfo_t = mem::zeroed();
            (libc::waitid(kind, tid as libc::id_t, &mut info, options), info)
        };
        if result == 0 {
            // SAFETY: the kernel has set the fields of a child, or left zeroes.
            let tid = unsafe { info.si_pid() };
            let is_stop = [libc::CLD_STOPPED, libc::CLD_TRAPPED].contains(&info.si_code);
            return Ok((tid != 0).then_some(Event { tid, is_stop }));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(Error::io(&error, "waiting for a thread"));
        }
    }
}

struct Event {
    tid: i32,
    is_stop: bool,
}

/// Takes the status that `peek` has found.
fn take(tid: i32) -> Outcome<c_int> {
    let mut status = 0;
    // SAFETY: writes one int.
    match unsafe { libc::waitpid(tid, &mut status, libc::__WALL | libc::WNOHANG) } == tid {
        true => Ok(status),
        // it was killed in between, and its end is not reported yet
        false => Err(Error::new("ESRCH", "the process has ended")),
    }
}

fn request(what: libc::c_uint, tid: i32, address: u64, data: u64) -> io::Result<()> {
    // SAFETY: the requests of this file read and write only what `data` points to.
    match unsafe { libc::ptrace(what, tid, address as *mut c_void, data as *mut c_void) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn registers_of(tid: i32) -> Outcome<user_regs_struct> {
    // SAFETY: all zeroes are valid registers.
    let mut registers: user_regs_struct = unsafe { mem::zeroed() };
    request(libc::PTRACE_GETREGS, tid, 0, &mut registers as *mut _ as u64).during(|| "registers")?;
    Ok(registers)
}

const REGISTERS: usize = mem::size_of::<user_regs_struct>() / 8;

fn words(registers: &user_regs_struct) -> &[u64; REGISTERS] {
    // SAFETY: the structure consists of words of 64 bits.
    unsafe { &*(registers as *const user_regs_struct).cast() }
}

fn set_registers(tid: i32, registers: &user_regs_struct) -> Outcome<()> {
    request(libc::PTRACE_SETREGS, tid, 0, registers as *const _ as u64).during(|| "registers")
}

fn xstate_of(tid: i32) -> Outcome<Vec<u8>> {
    let mut bytes = vec![0; MAX_XSTATE];
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let kind = NT_X86_XSTATE as u64;
    request(libc::PTRACE_GETREGSET, tid, kind, &mut part as *mut _ as u64).during(|| "vector registers")?;
    bytes.truncate(part.iov_len);
    Ok(bytes)
}

fn mask_of(tid: i32) -> Outcome<u64> {
    let mut mask = 0u64;
    let size = SIGNAL_SET_BYTES as u64;
    request(libc::PTRACE_GETSIGMASK, tid, size, &mut mask as *mut _ as u64).during(|| "signal mask")?;
    Ok(mask)
}

fn set_mask(tid: i32, mask: u64) -> Outcome<()> {
    let size = SIGNAL_SET_BYTES as u64;
    request(libc::PTRACE_SETSIGMASK, tid, size, &mask as *const _ as u64).during(|| "signal mask")
}

fn robust_list_of(tid: i32) -> Outcome<(u64, u64)> {
    let (mut head, mut length) = (0u64, 0u64);
    // SAFETY: the kernel writes two words.
    let result = unsafe { libc::syscall(libc::SYS_get_robust_list, tid, &mut head, &mut length) };
    if result != 0 {
        return Err(Error::io(&io::Error::last_os_error(), "list of robust mutexes"));
    }
    Ok((head, length))
}

fn rseq_of(tid: i32) -> Outcome<Option<Rseq>> {
    // SAFETY: all zeroes is a configuration of nothing.
    let mut found: libc::ptrace_rseq_configuration = unsafe { mem::zeroed() };
    let size = mem::size_of_val(&found) as u64;
    match request(
        libc::PTRACE_GET_RSEQ_CONFIGURATION,
        tid,
        size,
        ptr::addr_of_mut!(found) as u64,
    ) {
        Ok(()) => {}
        // Linux before 5.13, or one built without rseq; then a C library that uses it must not be copied
        Err(error) => return Err(Error::io(&error, "restartable sequences")),
    }
    Ok((found.rseq_abi_pointer != 0).then_some(Rseq {
        address: found.rseq_abi_pointer,
        length: found.rseq_abi_size,
        signature: found.signature,
        flags: found.flags,
    }))
}

/// Names of the threads, for messages
pub fn names(threads: &[Thread]) -> BTreeMap<i32, String> {
    let name = |thread: &Thread| String::from_utf8_lossy(&thread.name).trim().to_string();
    threads.iter().map(|thread| (thread.tid, name(thread))).collect()
}
