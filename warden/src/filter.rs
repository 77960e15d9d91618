//! System call filters of confined processes. QEMU has its own filter; this one does not rely on it.

use crate::allowed;
use crate::calls;
use crate::error::{Error, Outcome};
use forkd_wire::Reader;
use std::os::raw::{c_char, c_int, c_ulong, c_ushort};

/// Namespaces and mounts, other processes and their memory, new processes, new sockets, and kernel subsystems with a
/// history of vulnerabilities. Threads can still be made, and inherited sockets still work.
const DENIED: [i64; 51] = [
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_socket,
    libc::SYS_socketpair,
    // a file in memory is on no mount with noexec
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_execveat,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_personality,
    libc::SYS_modify_ldt,
];

/// What a process could do to others of its pid namespace. A member of a family (see `family.rs`) is refused these, too; a process that
/// is alone in its pid namespace reaches no other
const AMONG_RELATIVES: [i64; 20] = [
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
    libc::SYS_get_robust_list,
    libc::SYS_setpgid,
    libc::SYS_setsid,
];
/// Commands of fcntl and ioctl by which the kernel sends signals to a process of the caller's choice
const SIGNALLING_FCNTL: [c_int; 3] = [libc::F_SETOWN, F_SETSIG, F_SETOWN_EX];
const SIGNALLING_IOCTL: [u32; 2] = [0x8901, 0x8902];
const F_SETSIG: c_int = 10;
const F_SETOWN_EX: c_int = 15;

/// Number of the VMM that founds a family in the pid namespace of that family: number 1 is the namespace's first process
const FIRST_VMM: u32 = 2;

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// Numbers from here on belong to another ABI
const X32: u32 = 0x4000_0000;

/// Offsets in `struct seccomp_data`: the low halves of the first two arguments, each followed by its high half
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
const SECOND_ARGUMENT: u32 = 24;
const SIXTH_ARGUMENT: u32 = 56;
const HIGH: u32 = 4;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const IF_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const IF_ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
/// A C library falls back to clone, or to another older call
const NOT_THERE: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
pub const TELL: u32 = libc::SECCOMP_RET_USER_NOTIF;
pub const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

/// Programs that set up an image need these: other programs, sockets between them, files in memory, chroot
const NEEDED_BY_BUILDS: [i64; 8] = [
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_execveat,
    libc::SYS_memfd_create,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_chroot,
    libc::SYS_personality,
];
const NEW_NAMESPACES: c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP;

/// Strictness of a filter
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Denies the calls that help an intruder. For programs whose calls were not listed
    Denying,
    /// Denies these too, and allows only the listed calls. Any other call ends the process
    Allowing(&'static [i64]),
}

impl Kind {
    pub fn read(reader: &mut Reader) -> Outcome<Kind> {
        match reader.u8()? {
            0 => Ok(Kind::Denying),
            1 => Ok(Kind::Allowing(allowed::QEMU_7_2)),
            other => Err(Error::new("EINVAL", format!("filter {other}"))),
        }
    }
}

/// The arguments of the one execve that passes. They are addresses in the warden, which the started program does not
/// know, so it cannot repeat the call: a wrong address ends it.
#[derive(Clone, Copy)]
pub struct Start {
    pub program: *const c_char,
    pub argv: *const *const c_char,
}

/// What the filter of a family's member lets pass
#[derive(Clone, Copy)]
pub struct Member {
    /// A call with it as its sixth argument passes. The process cannot read its filter; the warden uses the secret in code
    /// that it injects
    pub secret: u64,
    /// Signals to its own threads pass, by which QEMU interrupts its vCPUs with KVM. Only for the first VMM of a family, of
    /// which frozen copies are made
    pub signals_itself: bool,
}

/// The filter as a BPF program. `stray`: the verdict for a call that ends the process.
pub fn program(kind: Kind, start: Start, stray: u32, member: Option<Member>) -> Vec<libc::sock_filter> {
    let mut program = beginning(member.map(|member| member.secret));
    if let Some(Member { signals_itself, .. }) = member {
        if signals_itself {
            program.extend(of_original());
        }
        program.extend(among_relatives());
    }
    program.extend([
        // allows threads only
        jump(IF_EQUAL, libc::SYS_clone as u32, 0, 4),
        step(LOAD, FIRST_ARGUMENT),
        jump(IF_ANY_BIT, libc::CLONE_THREAD as u32, 0, 1),
        step(RETURN, ALLOW),
        step(RETURN, REFUSE),
        // allows the first execve only
        jump(IF_EQUAL, libc::SYS_execve as u32, 0, 10),
        step(LOAD, FIRST_ARGUMENT),
        jump(IF_EQUAL, start.program as u64 as u32, 0, 6),
        step(LOAD, FIRST_ARGUMENT + HIGH),
        jump(IF_EQUAL, (start.program as u64 >> 32) as u32, 0, 4),
        step(LOAD, SECOND_ARGUMENT),
        jump(IF_EQUAL, start.argv as u64 as u32, 0, 2),
        step(LOAD, SECOND_ARGUMENT + HIGH),
        jump(IF_EQUAL, (start.argv as u64 >> 32) as u32, 1, 0),
        step(RETURN, stray),
        step(RETURN, ALLOW),
        jump(IF_AT_LEAST, calls::NEWEST + 1, 0, 1),
        step(RETURN, NOT_THERE),
    ]);
    let mut answer = |numbers: &[i64], verdict: u32| {
        for number in numbers {
            program.push(jump(IF_EQUAL, *number as u32, 0, 1));
            program.push(step(RETURN, verdict));
        }
    };
    answer(&DENIED, REFUSE);
    let rest = match kind {
        Kind::Denying => ALLOW,
        Kind::Allowing(numbers) => {
            answer(numbers, ALLOW);
            stray
        }
    };
    program.push(step(RETURN, rest));
    program
}

/// The filter for programs that run in a tree that becomes an image.
pub fn for_builds() -> Vec<libc::sock_filter> {
    let mut program = beginning(None);
    program.extend([
        jump(IF_EQUAL, libc::SYS_clone as u32, 0, 4),
        step(LOAD, FIRST_ARGUMENT),
        jump(IF_ANY_BIT, NEW_NAMESPACES as u32, 0, 1),
        step(RETURN, REFUSE),
        step(RETURN, ALLOW),
        jump(IF_AT_LEAST, calls::NEWEST + 1, 0, 1),
        step(RETURN, NOT_THERE),
    ]);
    for number in DENIED.iter().filter(|call| !NEEDED_BY_BUILDS.contains(call)) {
        program.push(jump(IF_EQUAL, *number as u32, 0, 1));
        program.push(step(RETURN, REFUSE));
    }
    program.push(step(RETURN, ALLOW));
    program
}

/// Refuses other ABIs, and clone3, whose flags a filter cannot see
fn beginning(secret: Option<u64>) -> Vec<libc::sock_filter> {
    let mut program = vec![
        step(LOAD, ARCHITECTURE),
        jump(IF_EQUAL, AUDIT_ARCH_X86_64, 1, 0),
        step(RETURN, REFUSE),
    ];
    if let Some(secret) = secret {
        program.extend([
            step(LOAD, SIXTH_ARGUMENT),
            jump(IF_EQUAL, secret as u32, 0, 3),
            step(LOAD, SIXTH_ARGUMENT + HIGH),
            jump(IF_EQUAL, (secret >> 32) as u32, 0, 1),
            step(RETURN, ALLOW),
        ]);
    }
    program.extend([
        step(LOAD, NUMBER),
        jump(IF_AT_LEAST, X32, 0, 1),
        step(RETURN, REFUSE),
        jump(IF_EQUAL, libc::SYS_clone3 as u32, 0, 1),
        step(RETURN, NOT_THERE),
    ]);
    program
}

/// Signals to threads of the family's first VMM, whose number is known; with the number of the call loaded
fn of_original() -> [libc::sock_filter; 5] {
    [
        jump(IF_EQUAL, libc::SYS_tgkill as u32, 0, 4),
        step(LOAD, FIRST_ARGUMENT),
        jump(IF_EQUAL, FIRST_VMM, 0, 1),
        step(RETURN, ALLOW),
        step(RETURN, REFUSE),
    ]
}

/// With the number of the call loaded, and loaded again after it. Asynchronous reads, which QEMU does not use here, are
/// refused: one could still write when all threads are stopped, so also into code of the warden's that was compared before.
fn among_relatives() -> Vec<libc::sock_filter> {
    let mut program = vec![jump(IF_EQUAL, libc::SYS_io_setup as u32, 0, 1), step(RETURN, REFUSE)];
    for number in AMONG_RELATIVES {
        program.push(jump(IF_EQUAL, number as u32, 0, 1));
        program.push(step(RETURN, REFUSE));
    }
    // its own limits only
    program.extend([
        jump(IF_EQUAL, libc::SYS_prlimit64 as u32, 0, 4),
        step(LOAD, FIRST_ARGUMENT),
        jump(IF_EQUAL, 0, 1, 0),
        step(RETURN, REFUSE),
        step(LOAD, NUMBER),
    ]);
    let [own, signal, own_ex] = SIGNALLING_FCNTL;
    program.extend([
        jump(IF_EQUAL, libc::SYS_fcntl as u32, 0, 6),
        step(LOAD, SECOND_ARGUMENT),
        jump(IF_EQUAL, own as u32, 2, 0),
        jump(IF_EQUAL, signal as u32, 1, 0),
        jump(IF_EQUAL, own_ex as u32, 0, 1),
        step(RETURN, REFUSE),
        step(LOAD, NUMBER),
    ]);
    let [set_own, set_group] = SIGNALLING_IOCTL;
    program.extend([
        jump(IF_EQUAL, libc::SYS_ioctl as u32, 0, 5),
        step(LOAD, SECOND_ARGUMENT),
        jump(IF_EQUAL, set_own, 1, 0),
        jump(IF_EQUAL, set_group, 0, 1),
        step(RETURN, REFUSE),
        step(LOAD, NUMBER),
    ]);
    program
}

fn step(code: u32, value: u32) -> libc::sock_filter {
    jump(code, value, 0, 0)
}

fn jump(code: u32, value: u32, then: u8, otherwise: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as c_ushort,
        jt: then,
        jf: otherwise,
        k: value,
    }
}

/// Installs the filter for this process and everything it executes. With `flags` the result may be a descriptor; -1
/// with errno set.
///
/// # Safety
/// To be called in a child of vfork that gains no privileges.
pub unsafe fn install(program: &[libc::sock_filter], flags: c_ulong) -> c_int {
    let program = libc::sock_fprog {
        len: program.len() as c_ushort,
        // the kernel only reads it
        filter: program.as_ptr() as *mut libc::sock_filter,
    };
    libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &program) as c_int
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const ALLOWING: Kind = Kind::Allowing(allowed::QEMU_7_2);
    const PROGRAM: u64 = 0x7f12_3456_789a;
    const ARGV: u64 = 0x7f12_3456_8000;

    /// The verdict of the program, run as the kernel runs it
    fn verdict(kind: Kind, architecture: u32, number: u32, arguments: [u64; 2]) -> u32 {
        let start = Start {
            program: PROGRAM as *const c_char,
            argv: ARGV as *const *const c_char,
        };
        answer(&program(kind, start, TELL, None), architecture, number, arguments)
    }

    fn answer(program: &[libc::sock_filter], architecture: u32, number: u32, arguments: [u64; 2]) -> u32 {
        answer_with(program, architecture, number, [arguments[0], arguments[1], 0, 0, 0, 0])
    }

    fn answer_with(program: &[libc::sock_filter], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        assert!(program.len() <= 4096, "the kernel takes no longer one");
        let (mut at, mut value) = (0, 0);
        loop {
            let step = program[at];
            let code = u32::from(step.code);
            let taken = match code {
                LOAD => {
                    value = match step.k {
                        NUMBER => number,
                        ARCHITECTURE => architecture,
                        offset => {
                            let argument = arguments[((offset - FIRST_ARGUMENT) / 8) as usize];
                            (argument >> (offset % 8 * 8)) as u32
                        }
                    };
                    0
                }
                IF_EQUAL => branch(value == step.k, &step),
                IF_AT_LEAST => branch(value >= step.k, &step),
                IF_ANY_BIT => branch(value & step.k != 0, &step),
                _ => return step.k,
            };
            at += 1 + taken;
        }
    }

    fn branch(holds: bool, step: &libc::sock_filter) -> usize {
        usize::from(if holds { step.jt } else { step.jf })
    }

    fn of(kind: Kind, number: i64, argument: u64) -> u32 {
        verdict(kind, AUDIT_ARCH_X86_64, number as u32, [argument, 0])
    }

    #[test]
    fn builds_may_start_programs_and_make_no_namespace() {
        let of = |number: i64, argument: c_int| {
            answer(&for_builds(), AUDIT_ARCH_X86_64, number as u32, [argument as u64, 0])
        };
        for number in NEEDED_BY_BUILDS {
            assert_eq!(of(number, 0), ALLOW, "{number}");
        }
        assert_eq!(of(libc::SYS_execve, 0), ALLOW);
        assert_eq!(of(libc::SYS_clone, libc::SIGCHLD), ALLOW);
        assert_eq!(of(libc::SYS_clone, libc::CLONE_NEWUSER | libc::SIGCHLD), REFUSE);
        assert_eq!(of(libc::SYS_clone3, 0), NOT_THERE);
        for number in [
            libc::SYS_unshare,
            libc::SYS_mount,
            libc::SYS_ptrace,
            libc::SYS_bpf,
            libc::SYS_keyctl,
        ] {
            assert_eq!(of(number, 0), REFUSE, "{number}");
        }
    }

    #[test]
    fn denied_calls_are_refused_and_others_allowed() {
        for kind in [Kind::Denying, ALLOWING] {
            for number in DENIED {
                assert_eq!(of(kind, number, 0), REFUSE, "{number}");
            }
            for number in [libc::SYS_read, libc::SYS_accept4, libc::SYS_ioctl, libc::SYS_mmap] {
                assert_eq!(of(kind, number, 0), ALLOW, "{number}");
            }
        }
        assert_eq!(of(Kind::Denying, libc::SYS_chmod, 0), ALLOW);
    }

    #[test]
    fn an_unlisted_call_ends_a_process_with_a_complete_list() {
        for number in [
            libc::SYS_chmod,
            libc::SYS_connect,
            libc::SYS_rename,
            libc::SYS_io_setup,
            400,
        ] {
            assert_eq!(of(ALLOWING, number, 0), TELL, "{number}");
        }
        for number in allowed::QEMU_7_2 {
            assert_eq!(of(ALLOWING, *number, 0), ALLOW, "{number}");
        }
    }

    #[test]
    fn no_call_is_listed_twice() {
        let mut seen = HashSet::new();
        for number in DENIED.iter().chain(allowed::QEMU_7_2) {
            assert!(seen.insert(number), "{number}");
        }
    }

    #[test]
    fn calls_newer_than_the_table_are_missing() {
        for kind in [Kind::Denying, ALLOWING] {
            assert_eq!(of(kind, i64::from(calls::NEWEST) + 1, 0), NOT_THERE);
        }
        assert_eq!(of(Kind::Denying, i64::from(calls::NEWEST), 0), ALLOW);
    }

    #[test]
    fn threads_are_allowed_and_processes_are_not() {
        for kind in [Kind::Denying, ALLOWING] {
            let thread = libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND;
            assert_eq!(of(kind, libc::SYS_clone, thread as u64), ALLOW);
            assert_eq!(of(kind, libc::SYS_clone, libc::SIGCHLD as u64), REFUSE);
            assert_eq!(of(kind, libc::SYS_clone, libc::CLONE_NEWUSER as u64), REFUSE);
            assert_eq!(of(kind, libc::SYS_clone3, 0), NOT_THERE);
        }
    }

    #[test]
    fn a_program_is_started_once() {
        let execve = |arguments| verdict(Kind::Denying, AUDIT_ARCH_X86_64, libc::SYS_execve as u32, arguments);
        assert_eq!(execve([PROGRAM, ARGV]), ALLOW);
        for wrong in [
            [PROGRAM + 1, ARGV],
            [PROGRAM, ARGV + 1],
            [PROGRAM ^ 1 << 40, ARGV],
            [PROGRAM, ARGV ^ 1 << 40],
            [0, 0],
        ] {
            assert_eq!(execve(wrong), TELL, "{wrong:?}");
        }
    }

    const SECRET: u64 = 0xfeed_0123_4567_89ab;

    /// Of a member of a family
    fn of_member(kind: Kind, number: i64, arguments: [u64; 6]) -> u32 {
        of_kicking_member(kind, number, arguments, false)
    }

    fn of_kicking_member(kind: Kind, number: i64, arguments: [u64; 6], signals_itself: bool) -> u32 {
        let start = Start {
            program: PROGRAM as *const c_char,
            argv: ARGV as *const *const c_char,
        };
        let member = Member {
            secret: SECRET,
            signals_itself,
        };
        let program = program(kind, start, TELL, Some(member));
        answer_with(&program, AUDIT_ARCH_X86_64, number as u32, arguments)
    }

    #[test]
    fn only_the_whole_secret_lets_a_call_pass() {
        for kind in [Kind::Denying, ALLOWING] {
            for number in [libc::SYS_clone3, libc::SYS_socketpair, libc::SYS_unshare] {
                assert_eq!(of_member(kind, number, [0, 0, 0, 0, 0, SECRET]), ALLOW, "{number}");
                for wrong in [
                    0,
                    SECRET as u32 as u64,
                    SECRET & !0xffff_ffff,
                    SECRET ^ 1,
                    SECRET ^ 1 << 63,
                ] {
                    assert_ne!(
                        of_member(kind, number, [SECRET, SECRET, 0, 0, 0, wrong]),
                        ALLOW,
                        "{number}"
                    );
                }
            }
            assert_eq!(of_member(kind, libc::SYS_read, [0; 6]), ALLOW);
            assert_eq!(of(kind, libc::SYS_socket, 0), REFUSE);
        }
    }

    #[test]
    fn a_vmm_that_may_signal_itself_reaches_no_other() {
        for kind in [Kind::Denying, ALLOWING] {
            let of = |number: i64, process: u64| of_kicking_member(kind, number, [process, 5, 10, 0, 0, 0], true);
            assert_eq!(of(libc::SYS_tgkill, FIRST_VMM.into()), ALLOW);
            for other in [0, 1, 3, 2000, u64::MAX] {
                assert_eq!(of(libc::SYS_tgkill, other), REFUSE, "{other}");
            }
            for number in AMONG_RELATIVES.iter().filter(|number| **number != libc::SYS_tgkill) {
                assert_eq!(of(*number, FIRST_VMM.into()), REFUSE, "{number}");
            }
            assert_eq!(of(libc::SYS_io_setup, 1), REFUSE);
            assert_eq!(of(libc::SYS_read, 0), ALLOW);
            assert_eq!(of(libc::SYS_clone, libc::SIGCHLD as u64), REFUSE);
        }
    }

    #[test]
    fn a_member_of_a_family_reaches_no_other() {
        for kind in [Kind::Denying, ALLOWING] {
            for number in AMONG_RELATIVES {
                assert_eq!(of_member(kind, number, [0; 6]), REFUSE, "{number}");
            }
            let of = |number: i64, first: u64, second: u64| of_member(kind, number, [first, second, 0, 0, 0, 0]);
            assert_eq!(of(libc::SYS_io_setup, 1, 0), REFUSE);
            assert_eq!(of(libc::SYS_prlimit64, 0, 7), ALLOW);
            assert_eq!(of(libc::SYS_prlimit64, 12, 7), REFUSE);
            assert_eq!(of(libc::SYS_fcntl, 3, libc::F_SETFL as u64), ALLOW);
            for command in SIGNALLING_FCNTL {
                assert_eq!(of(libc::SYS_fcntl, 3, command as u64), REFUSE, "{command}");
            }
            assert_eq!(of(libc::SYS_ioctl, 3, 0x5401), ALLOW);
            for command in SIGNALLING_IOCTL {
                assert_eq!(of(libc::SYS_ioctl, 3, command.into()), REFUSE, "{command}");
            }
            assert_eq!(of(libc::SYS_read, 0, 0), ALLOW, "the number is loaded again");
        }
    }

    #[test]
    fn calls_of_other_abis_are_refused() {
        for kind in [Kind::Denying, ALLOWING] {
            assert_eq!(verdict(kind, 0x4000_0003, libc::SYS_read as u32, [0, 0]), REFUSE);
            assert_eq!(
                verdict(kind, AUDIT_ARCH_X86_64, X32 | libc::SYS_read as u32, [0, 0]),
                REFUSE
            );
        }
    }
}
