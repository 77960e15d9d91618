//! What a process does to become two: tables of system calls, the code that makes them, and the signal frames by which
//! threads of the new process get their registers back.
//!
//! The code is an interpreter, so that one piece of it serves every table: it makes the calls of a table one after another
//! until a trap. A call that returns 0 in a new process or thread continues with a table of its own.

use crate::tracee::Thread;
use libc::user_regs_struct;
use std::arch::global_asm;

global_asm!(
    ".pushsection .rodata",
    ".balign 16",
    "forkd_stub_start:",
    "2: mov rax, [rbx]",
    "cmp rax, -1",
    "je 5f",
    "mov rdi, [rbx + 8]",
    "mov rsi, [rbx + 16]",
    "mov rdx, [rbx + 24]",
    "mov r10, [rbx + 32]",
    "mov r8, [rbx + 40]",
    "mov r9, [rbx + 48]",
    // read before the call: in a new process the page of the source's table is empty
    "mov r12, [rbx + 56]",
    "syscall",
    "test rax, rax",
    "jnz 3f",
    "test r12, r12",
    "jz 3f",
    "mov rbx, r12",
    "jmp 2b",
    "3: mov [rbx + 64], rax",
    "test rax, rax",
    "jns 4f",
    "cmp qword ptr [rbx + 72], 0",
    "jne 4f",
    "int3",
    "4: add rbx, 80",
    "jmp 2b",
    "5: int3",
    "forkd_stub_end:",
    // With all arguments of the call in registers. The new process forgets the last one, and runs the interpreter (r13) for
    // its table (r12).
    ".balign 16",
    "forkd_split_start:",
    "syscall",
    "test rax, rax",
    "jz 6f",
    "int3",
    "forkd_split_trap:",
    "6: xor r9d, r9d",
    "mov rbx, r12",
    "jmp r13",
    "forkd_split_end:",
    ".popsection",
);

extern "C" {
    static forkd_stub_start: u8;
    static forkd_stub_end: u8;
    static forkd_split_start: u8;
    static forkd_split_trap: u8;
    static forkd_split_end: u8;
}

/// The interpreter's code; it runs at any address.
pub fn stub() -> &'static [u8] {
    // SAFETY: the two symbols bound the bytes that are assembled above.
    unsafe {
        let start = std::ptr::addr_of!(forkd_stub_start);
        let end = std::ptr::addr_of!(forkd_stub_end);
        std::slice::from_raw_parts(start, end as usize - start as usize)
    }
}

/// Code that makes a new process by a call whose arguments are in registers
pub struct Split {
    pub bytes: &'static [u8],
    /// Where the process that made it has trapped
    pub trap: usize,
}

pub fn split_code() -> Split {
    // SAFETY: the symbols bound the bytes that are assembled above.
    unsafe {
        let start = std::ptr::addr_of!(forkd_split_start);
        let end = std::ptr::addr_of!(forkd_split_end);
        Split {
            bytes: std::slice::from_raw_parts(start, end as usize - start as usize),
            trap: std::ptr::addr_of!(forkd_split_trap) as usize - start as usize,
        }
    }
}

const ENTRY_BYTES: usize = 80;
const RESULT_OFFSET: usize = 64;
const END: u64 = u64::MAX;

/// System calls that are made one after another
#[derive(Default)]
pub struct Table {
    words: Vec<u64>,
}

impl Table {
    /// A call that must succeed: otherwise the process traps.
    pub fn call(&mut self, number: i64, arguments: &[u64]) {
        self.entry(number, arguments, 0, false);
    }

    /// A call whose failure changes nothing
    pub fn try_call(&mut self, number: i64, arguments: &[u64]) {
        self.entry(number, arguments, 0, true);
    }

    /// A call that makes a process or thread, which continues with the table at `child`
    pub fn split(&mut self, number: i64, arguments: &[u64], child: u64) {
        self.entry(number, arguments, child, false);
    }

    fn entry(&mut self, number: i64, arguments: &[u64], child: u64, may_fail: bool) {
        let mut words = [0; ENTRY_BYTES / 8];
        words[0] = number as u64;
        words[1..=arguments.len()].copy_from_slice(arguments);
        words[7] = child;
        words[9] = may_fail.into();
        self.words.extend_from_slice(&words);
    }

    /// The process traps, so that its tracer has control
    pub fn trap(&mut self) {
        self.words.push(END);
        self.words.extend_from_slice(&[0; ENTRY_BYTES / 8 - 1]);
    }

    /// Offset of the entry that is added next
    pub fn len(&self) -> usize {
        self.words.len() * 8
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Where the result of the entry at an offset is stored
    pub fn result_of(entry: usize) -> u64 {
        (entry + RESULT_OFFSET) as u64
    }
}

/// Memory of the process that is written in one piece: things are laid out in it one after another.
pub struct Layout {
    base: u64,
    bytes: Vec<u8>,
}

impl Layout {
    pub fn new(base: u64) -> Layout {
        Layout {
            base,
            bytes: Vec::new(),
        }
    }

    /// The address at which the bytes will be
    pub fn put(&mut self, bytes: &[u8], align: usize) -> u64 {
        let at = self.bytes.len().next_multiple(align);
        self.bytes.resize(at, 0);
        self.bytes.extend_from_slice(bytes);
        self.base + at as u64
    }

    pub fn words(&mut self, words: &[u64]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.put(&bytes, 16)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

trait NextMultiple {
    fn next_multiple(self, of: usize) -> usize;
}

impl NextMultiple for usize {
    /// As `next_multiple_of`, which needs a later Rust
    fn next_multiple(self, of: usize) -> usize {
        (self + of - 1) / of * of
    }
}

const LEGACY_BYTES: usize = 512;
/// Where the kernel describes the rest of the state, in the legacy part
const DESCRIPTION: usize = 464;
const XSTATE_HEADER_END: usize = LEGACY_BYTES + 64;
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;
/// Tile data of AMX: a process has it only after it asked the kernel, and the frame of others has no room for it
const AMX_DATA: u32 = 18;
/// UC_FP_XSTATE, UC_SIGCONTEXT_SS and UC_STRICT_RESTORE_SS
const CONTEXT_FLAGS: u64 = 7;
const SS_DISABLE: u64 = 2;

/// The vector registers as a signal frame has them; None when they cannot be restored that way
fn floating_state(xstate: &[u8]) -> Option<Vec<u8>> {
    let word = |at: usize| Some(u64::from_le_bytes(xstate.get(at..at + 8)?.try_into().ok()?));
    let enabled = word(DESCRIPTION)?;
    let in_use = word(LEGACY_BYTES)?;
    if in_use >> AMX_DATA & 1 == 1 {
        return None;
    }
    let enabled = enabled & !(1 << AMX_DATA);
    let length = default_length(enabled).min(xstate.len());
    let mut state = xstate[..length].to_vec();
    state[DESCRIPTION..LEGACY_BYTES].fill(0);
    let mut put = |at: usize, bytes: &[u8]| state[at..at + bytes.len()].copy_from_slice(bytes);
    put(DESCRIPTION, &MAGIC1.to_le_bytes());
    put(DESCRIPTION + 4, &(length as u32 + 4).to_le_bytes());
    put(DESCRIPTION + 8, &enabled.to_le_bytes());
    put(DESCRIPTION + 16, &(length as u32).to_le_bytes());
    state.extend_from_slice(&MAGIC2.to_le_bytes());
    Some(state)
}

/// Bytes of the state of these features, in the layout that is not compacted
fn default_length(enabled: u64) -> usize {
    let end = (2..63).filter(|feature| enabled >> feature & 1 == 1).map(|feature| {
        // SAFETY: leaf 0xd is there where the kernel gives such a state.
        #[allow(unused_unsafe)] // later versions of Rust need none
        let size = unsafe { std::arch::x86_64::__cpuid_count(0xd, feature) };
        (size.ebx + size.eax) as usize
    });
    end.max().unwrap_or(0).max(XSTATE_HEADER_END)
}

/// A frame for rt_sigreturn. The address is the stack pointer with which that is called.
pub fn signal_frame(layout: &mut Layout, thread: &Thread) -> Option<u64> {
    let floating = layout.put(&floating_state(&thread.xstate)?, 64);
    let user_regs_struct {
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
        rdi,
        rsi,
        rbp,
        rbx,
        rdx,
        rax,
        rcx,
        rsp,
        rip,
        eflags,
        cs,
        ss,
        ..
    } = thread.registers;
    let segments = cs & 0xffff | (ss & 0xffff) << 48;
    let frame = [
        0, // the return address, which the handler's return would have taken from the stack
        CONTEXT_FLAGS,
        0, // no other context
        0,
        SS_DISABLE,
        0, // no stack for signals
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
        rdi,
        rsi,
        rbp,
        rbx,
        rdx,
        rax,
        rcx,
        rsp,
        rip,
        eflags,
        segments,
        0, // error and trap number, old mask, address of a error
        0,
        0,
        0,
        floating,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        thread.mask,
    ];
    Some(layout.words(&frame) + 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_as_the_code_reads_them() {
        let mut table = Table::default();
        table.call(1, &[2, 3]);
        table.split(4, &[5], 6);
        table.try_call(7, &[]);
        table.trap();
        let words: Vec<u64> = table
            .bytes()
            .chunks(8)
            .map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap()))
            .collect();
        assert_eq!(words.len(), 4 * 10);
        assert_eq!(words[..10], [1, 2, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(words[10..20], [4, 5, 0, 0, 0, 0, 0, 6, 0, 0]);
        assert_eq!(words[20..30], [7, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(words[30], u64::MAX);
        assert_eq!(stub().last(), Some(&0xcc), "it ends with a trap");
        assert!(stub().windows(2).filter(|pair| *pair == [0x0f, 0x05]).count() == 1);
    }

    #[test]
    fn things_lie_at_their_addresses() {
        let mut layout = Layout::new(0x10000);
        assert_eq!(layout.put(b"abc", 1), 0x10000);
        let at = layout.words(&[7]);
        assert_eq!(at, 0x10010);
        assert_eq!(layout.bytes()[16], 7);
    }

    #[test]
    fn tiles_in_use_are_refused() {
        let mut state = vec![0; 4096];
        state[DESCRIPTION] = 3;
        assert_eq!(floating_state(&state).unwrap().len(), XSTATE_HEADER_END + 4);
        state[LEGACY_BYTES + 2] = 1 << 2;
        assert!(floating_state(&state).is_none());
        assert!(floating_state(&state[..100]).is_none());
    }
}
