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
use std::time::Duration;

/// The kernel gives no memory above this address unless a program asks for that
const MEMORY_END: u64 = 0x7fff_ffff_f000;
/// Handlers of the VMM are not in the copy's memory
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
const RSEQ_UNREGISTER: u64 = 1;
const NAME: &[u8] = b"forkd-frozen\0";
/// A stopped guest's VMM stops at once, on a busy host later. Other VMMs wait meanwhile for what they need of the warden
const STOPS_WITHIN: Duration = Duration::from_millis(if cfg!(test) { 500 } else { 10_000 });
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
/// that of an earlier copy. After an error with the code EIO the state of the VMM is not known.
pub fn prepare(pid: i32, ram: &Path, ram_bytes: u64, area: Option<Area>) -> Outcome<Ready> {
    let address = maps::ram_address(pid, ram, ram_bytes)?;
    if waits_uninterruptibly(pid) {
        return Err(Error::new(
            "EAGAIN",
            "the process is in a call that cannot be interrupted",
        ));
    }
    let tracee = Tracee::seize_main_within(pid, STOPS_WITHIN)?;
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
    let tracee = Tracee::seize_within(pid, area.gadget, STOPS_WITHIN)?;
    let main = tracee.main_thread()?;
    let pidfd = descriptors::open_pid(pid).during(|| "pidfd")?;
    let mut found = vec![0; PAGE];
    if tracee.read(area.base, &mut found).is_err() || found != code() {
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
    // without a time limit; all signals are blocked
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

/// Whether the main thread does what no request to stop ends, as a write to a slow disk
fn waits_uninterruptibly(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").map_or(false, |(_, rest)| rest.starts_with('D'))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{self, patience};
    use crate::tracee;
    use std::fs::File;
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::FileExt;
    use std::os::unix::io::AsRawFd;
    use std::os::unix::process::CommandExt;
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};
    use std::ptr;
    use std::thread;
    use std::time::Instant;

    const VICTIM: &str = "FORKD_TEST_FROZEN";
    const STUCK: &str = "FORKD_TEST_STUCK";
    const RAM_PAGES: usize = 64;
    const RAM_BYTES: u64 = (RAM_PAGES * PAGE) as u64;
    const POLL: Duration = Duration::from_millis(1);

    /// Not a test: the process that is copied. It counts in memory that is left out of copies, in two threads.
    #[test]
    #[ignore = "it is a program that the tests start"]
    fn victim() {
        let path = match std::env::var_os(VICTIM) {
            Some(path) => path,
            None => return,
        };
        let file = File::open(path).unwrap();
        // SAFETY: a mapping of a file, which lives as long as the process.
        let ram = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(
                ptr::null_mut(),
                RAM_BYTES as usize,
                access,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            );
            assert_eq!(libc::madvise(at, RAM_BYTES as usize, libc::MADV_DONTFORK), 0);
            at as usize
        };
        let count = move |page: usize| loop {
            let at = (ram + page * PAGE) as *mut u64;
            // SAFETY: each thread writes its own page.
            unsafe { at.write_volatile(at.read_volatile() + 1) };
            thread::sleep(Duration::from_micros(100));
        };
        thread::spawn(move || count(1));
        if std::env::var_os(STUCK).is_some() {
            thread::spawn(wait_uninterruptibly);
        }
        println!("counts");
        count(2);
    }

    /// As the parent of a vfork waits, for some seconds
    fn wait_uninterruptibly() {
        extern "C" fn sleep(_: *mut libc::c_void) -> libc::c_int {
            // SAFETY: waits, and ends this process only.
            unsafe {
                libc::sleep(3);
                libc::_exit(0)
            }
        }
        let mut stack = vec![0u128; 4096];
        // SAFETY: this thread waits for the end of the new process, which has a stack of its own.
        unsafe {
            let top = stack.as_mut_ptr().add(stack.len()).cast();
            libc::clone(sleep, top, libc::CLONE_VM | libc::CLONE_VFORK, ptr::null_mut());
        }
    }

    struct Victim {
        child: Child,
        ram: PathBuf,
    }

    impl Victim {
        fn start(name: &str) -> Victim {
            Victim::start_with(name, &[])
        }

        fn start_with(name: &str, variables: &[&str]) -> Victim {
            let ram = std::env::temp_dir().join(format!("forkd-frozen-{name}-{}", std::process::id()));
            File::create(&ram).unwrap().set_len(RAM_BYTES).unwrap();
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args(["--ignored", "--exact", "--nocapture", "frozen::tests::victim"])
                .env(VICTIM, &ram)
                .envs(variables.iter().map(|name| (name, "1")))
                .stdin(Stdio::null())
                .stdout(Stdio::piped());
            // SAFETY: a system call between fork and exec.
            unsafe {
                command.pre_exec(|| {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    Ok(())
                });
            }
            let mut child = command.spawn().unwrap();
            let output = BufReader::new(child.stdout.take().unwrap());
            assert!(output.lines().any(|line| line.unwrap().contains("counts")));
            Victim { child, ram }
        }

        fn pid(&self) -> i32 {
            self.child.id() as i32
        }

        fn prepare(&self, area: Option<Area>) -> Ready {
            prepare(self.pid(), &self.ram, RAM_BYTES, area).unwrap()
        }

        /// What a process has counted in a page
        fn count(&self, pid: i32, page: usize) -> u64 {
            let at = maps::ram_address(pid, &self.ram, RAM_BYTES).unwrap() + (page * PAGE) as u64;
            let mut bytes = [0; 8];
            let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
            memory.read_exact_at(&mut bytes, at).unwrap();
            u64::from_le_bytes(bytes)
        }

        fn assert_runs(&self) {
            let deadline = Instant::now() + patience();
            for page in [1, 2] {
                let before = self.count(self.pid(), page);
                while self.count(self.pid(), page) == before {
                    assert!(Instant::now() < deadline, "it does not count");
                    thread::sleep(POLL);
                }
            }
        }
    }

    impl Drop for Victim {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = fs::remove_file(&self.ram);
        }
    }

    fn end(pid: i32) {
        sys::send_signal(pid, libc::SIGKILL).unwrap();
        // SAFETY: a copy is a child of this process.
        assert_eq!(unsafe { libc::waitpid(pid, ptr::null_mut(), libc::__WALL) }, pid);
    }

    fn entries(pid: i32, of: &str) -> usize {
        fs::read_dir(format!("/proc/{pid}/{of}")).unwrap().count()
    }

    /// The last call of the script is the one in which it stays
    fn await_frozen(pid: i32) {
        let deadline = Instant::now() + patience();
        let waits = |call: &String| call.starts_with(&format!("{} ", libc::SYS_ppoll));
        while !fs::read_to_string(format!("/proc/{pid}/syscall")).iter().any(waits) {
            assert!(Instant::now() < deadline, "it does not wait");
            thread::sleep(POLL);
        }
    }

    #[test]
    fn a_copy_has_the_memory_of_its_moment_and_nothing_else() {
        let victim = Victim::start("memory");
        let descriptors = entries(victim.pid(), "fd");
        let mut area = None;
        victim.assert_runs();
        for _ in 0..3 {
            let ready = victim.prepare(area);
            area = Some(ready.area());
            let copy = freeze(victim.pid(), &ready, 0).unwrap();
            let counts = [1, 2].map(|page| victim.count(copy, page));
            assert!(counts.iter().all(|count| *count > 0));
            await_frozen(copy);
            victim.assert_runs();
            assert_eq!([1, 2].map(|page| victim.count(copy, page)), counts);
            assert_eq!((entries(copy, "fd"), entries(copy, "task")), (0, 1));
            assert_eq!(entries(victim.pid(), "fd"), descriptors);
            let maps = fs::read_to_string(format!("/proc/{copy}/maps")).unwrap();
            let ram = victim.ram.to_str().unwrap();
            let others = maps
                .lines()
                .filter(|line| !line.ends_with(ram) && !line.contains(" [v"));
            assert_eq!(others.count(), 2, "{maps}");
            // those that a process can block do not end its wait
            for signal in [libc::SIGTERM, libc::SIGUSR1, libc::SIGCHLD] {
                sys::send_signal(copy, signal).unwrap();
            }
            await_frozen(copy);
            end(copy);
        }
        victim.assert_runs();
    }

    #[test]
    fn a_process_that_has_changed_the_code_is_not_copied() {
        let victim = Victim::start("code");
        let ready = victim.prepare(None);
        Tracee::seize_main(victim.pid())
            .unwrap()
            .write(ready.area().base + SPLIT as u64, &[0x90])
            .unwrap();
        assert_eq!(freeze(victim.pid(), &ready, 0).unwrap_err().code, "refused");
        victim.assert_runs();
    }

    #[test]
    fn a_signal_of_its_own_is_not_taken_for_the_end_of_the_script() {
        let victim = Victim::start("signal");
        let ready = victim.prepare(None);
        // pending while the main thread is stopped, and delivered when it runs the script
        // SAFETY: stops the process and sends it a signal.
        unsafe { libc::kill(victim.pid(), libc::SIGSTOP) };
        let tracee = Tracee::seize(victim.pid(), ready.area().gadget).unwrap();
        sys::send_signal(victim.pid(), libc::SIGTRAP).unwrap();
        sys::send_signal(victim.pid(), libc::SIGCONT).unwrap();
        let main = tracee.main_thread().unwrap();
        let mut registers = main.registers;
        registers.rip = ready.area().base + SPLIT as u64;
        registers.rax = libc::SYS_getpid as u64;
        registers.orig_rax = u64::MAX;
        let end = ready.area().base + (SPLIT + script::split_code().trap) as u64;
        let after = tracee.run_to(&main, &registers, end).unwrap();
        assert_eq!(after.rax as i32, victim.pid());
        drop(tracee);
        victim.assert_runs();
    }

    #[test]
    fn a_thread_that_does_not_stop_is_awaited_for_a_time() {
        let victim = Victim::start_with("stuck", &[STUCK]);
        let pid = victim.pid();
        let ready = victim.prepare(None);
        let is_stuck = || {
            let mut stats = tracee::tasks_of(pid).unwrap().into_iter();
            stats.any(|tid| {
                fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).map_or(false, |stat| stat.contains(") D "))
            })
        };
        let deadline = Instant::now() + patience();
        while !is_stuck() {
            assert!(Instant::now() < deadline, "no thread waits");
            thread::sleep(POLL);
        }
        assert_eq!(freeze(pid, &ready, 0).unwrap_err().code, "EIO");
        // as the warden ends it, and takes all ends
        sys::send_signal(pid, libc::SIGKILL).unwrap();
        // SAFETY: takes ends of this thread's own children only.
        while unsafe { libc::waitpid(-1, ptr::null_mut(), libc::__WALL | libc::__WNOTHREAD) } > 0 {}
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_process_without_the_memory_is_not_readied() {
        let victim = Victim::start("other");
        let other = prepare(victim.pid(), Path::new("/dev/null"), RAM_BYTES, None);
        assert_eq!(other.err().unwrap().code, "ENOENT");
        let longer = prepare(victim.pid(), &victim.ram, RAM_BYTES + PAGE as u64, None);
        assert_eq!(longer.err().unwrap().code, "EINVAL");
        assert_eq!(
            tracee::tasks_of(victim.pid()).unwrap().len(),
            3,
            "the test's own thread and two that count"
        );
        victim.assert_runs();
    }

    #[test]
    fn all_that_is_not_kept_is_removed() {
        assert_eq!(
            gaps_of(vec![
                (0x5000, 0x1000),
                (0x2000, 0x1000),
                (0x3000, 0x1000),
                (u64::MAX - 0xfff, 0xfff)
            ]),
            [(0, 0x2000), (0x4000, 0x1000), (0x6000, MEMORY_END - 0x6000)]
        );
        let maps = "7000-9000 rw-p 0 0:1 9 /ram\n\
            a000-c000 r--p 00000000 00:00 0                          [vvar]\n\
            c000-d000 r-xp 00000000 00:00 0                          [vdso]\n\
            e000-f000 rw-p 00000000 00:00 0                          [stack]\n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";
        assert_eq!(
            kernels_own(maps),
            [(0xa000, 0x2000), (0xc000, 0x1000), (0xffff_ffff_ff60_0000, 0x1000)]
        );
    }
}
