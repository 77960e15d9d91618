//! The system calls that a confined VMM does not need, and that would be of use to somebody who broke into it.
//! QEMU has a filter of its own; this one does not rely on it.

use std::os::raw::{c_int, c_ulong, c_ushort};

/// New namespaces and mounts, other processes and their memory, new processes, sockets of any kind, and parts of the kernel in which
/// holes were found before. Threads go on to be made, and the sockets that were handed over go on to work.
const DENIED: [i64; 45] = [
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
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_socket,
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
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_personality,
    libc::SYS_modify_ldt,
];

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// Numbers from here on are those of another ABI
const X32: u32 = 0x4000_0000;

/// Offsets in `struct seccomp_data`; the low half of the first argument
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const IF_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const IF_ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
/// What a C library takes as "use clone"
const NOT_THERE: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

/// The filter as a program for the kernel.
pub fn program() -> Vec<libc::sock_filter> {
    let mut program = vec![
        step(LOAD, ARCHITECTURE),
        jump(IF_EQUAL, AUDIT_ARCH_X86_64, 1, 0),
        step(RETURN, REFUSE),
        step(LOAD, NUMBER),
        jump(IF_AT_LEAST, X32, 0, 1),
        step(RETURN, REFUSE),
        jump(IF_EQUAL, libc::SYS_clone3 as u32, 0, 1),
        step(RETURN, NOT_THERE),
        // a thread, and nothing else
        jump(IF_EQUAL, libc::SYS_clone as u32, 0, 4),
        step(LOAD, FIRST_ARGUMENT),
        jump(IF_ANY_BIT, libc::CLONE_THREAD as u32, 0, 1),
        step(RETURN, ALLOW),
        step(RETURN, REFUSE),
    ];
    for number in DENIED {
        program.push(jump(IF_EQUAL, number as u32, 0, 1));
        program.push(step(RETURN, REFUSE));
    }
    program.push(step(RETURN, ALLOW));
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

/// From here on the filter holds for this process, and whatever it becomes.
///
/// # Safety
/// To be called in a child of vfork that gains no privileges.
pub unsafe fn install(program: &[libc::sock_filter]) -> c_int {
    let program = libc::sock_fprog {
        len: program.len() as c_ushort,
        // the kernel only reads it
        filter: program.as_ptr() as *mut libc::sock_filter,
    };
    libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER as c_ulong, &program)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the program answers, run as the kernel does
    fn verdict(architecture: u32, number: u32, argument: u32) -> u32 {
        let program = program();
        let (mut at, mut value) = (0, 0);
        loop {
            let step = program[at];
            let code = u32::from(step.code);
            let taken = match code {
                LOAD => {
                    value = match step.k {
                        NUMBER => number,
                        ARCHITECTURE => architecture,
                        _ => argument,
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

    fn of(number: i64, argument: u32) -> u32 {
        verdict(AUDIT_ARCH_X86_64, number as u32, argument)
    }

    #[test]
    fn what_is_denied_is_refused_and_the_rest_allowed() {
        for number in DENIED {
            assert_eq!(of(number, 0), REFUSE, "{number}");
        }
        for number in [
            libc::SYS_read,
            libc::SYS_execve,
            libc::SYS_accept4,
            libc::SYS_ioctl,
            libc::SYS_mmap,
        ] {
            assert_eq!(of(number, 0), ALLOW, "{number}");
        }
    }

    #[test]
    fn threads_are_made_and_processes_are_not() {
        let thread = libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND;
        assert_eq!(of(libc::SYS_clone, thread as u32), ALLOW);
        assert_eq!(of(libc::SYS_clone, libc::SIGCHLD as u32), REFUSE);
        assert_eq!(of(libc::SYS_clone, libc::CLONE_NEWUSER as u32), REFUSE);
        assert_eq!(of(libc::SYS_clone3, 0), NOT_THERE);
    }

    #[test]
    fn no_other_abi_leads_around_it() {
        assert_eq!(verdict(0x4000_0003, libc::SYS_read as u32, 0), REFUSE);
        assert_eq!(verdict(AUDIT_ARCH_X86_64, X32 | libc::SYS_read as u32, 0), REFUSE);
    }
}
