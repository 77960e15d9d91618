//! The BPF program that passes each connection and each DNS query to an outside address to the agent.

use crate::sys;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::io::{AsRawFd, OwnedFd};

// positions in the sockmap
const TCP: i32 = 0;
const UDP: i32 = 1;

// struct bpf_sk_lookup
const FAMILY: i16 = 8;
const PROTOCOL: i16 = 12;
const REMOTE_IP4: i16 = 16;
const REMOTE_IP6: i16 = 20;
const LOCAL_IP4: i16 = 40;
const LOCAL_IP6: i16 = 44;
const LOCAL_PORT: i16 = 60;

const MAP_LOOKUP_ELEM: i32 = 1;
const SK_RELEASE: i32 = 86;
const SK_ASSIGN: i32 = 124;
const SK_DROP: i32 = 0;
const SK_PASS: i32 = 1;

// operation codes
const LOAD_MAP: u8 = 0x18;
const LOAD_WORD: u8 = 0x61;
const STORE_WORD: u8 = 0x63;
const JUMP: u8 = 0x05;
const JUMP_IF_EQUAL: u8 = 0x15;
const JUMP_IF_EQUAL_REGISTER: u8 = 0x1d;
const JUMP_UNLESS_EQUAL: u8 = 0x55;
const JUMP_UNLESS_EQUAL_REGISTER: u8 = 0x5d;
const AND: u8 = 0x57;
const ADD: u8 = 0x07;
const MOVE: u8 = 0xb7;
const MOVE_REGISTER: u8 = 0xbf;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const FRAME: u8 = 10;

/// Target of a jump.
#[derive(Clone, Copy, PartialEq)]
enum Label {
    Ip6,
    Outside,
    Steer,
    Found,
    Pass,
}

#[derive(Default)]
struct Assembler {
    code: Vec<(u8, u8, u8, i16, i32)>,
    jumps: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

impl Assembler {
    fn op(&mut self, code: u8, to: u8, from: u8, offset: i16, value: i32) {
        self.code.push((code, to, from, offset, value));
    }

    fn jump(&mut self, code: u8, left: u8, right: u8, value: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.op(code, left, right, 0, value);
    }

    fn label(&mut self, label: Label) {
        self.labels.push((label, self.code.len()));
    }

    fn answer(&mut self, verdict: i32) {
        self.op(MOVE, 0, 0, 0, verdict);
        self.op(EXIT, 0, 0, 0, 0);
    }

    fn finish(mut self) -> Vec<u64> {
        for (at, label) in &self.jumps {
            let target = self.labels.iter().find(|(known, _)| known == label);
            self.code[*at].3 = target.map_or(0, |(_, target)| *target as i16 - *at as i16 - 1);
        }
        let encode = |(code, to, from, offset, value): &(u8, u8, u8, i16, i32)| {
            let mut bytes = [*code, from << 4 | to, 0, 0, 0, 0, 0, 0];
            bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
            bytes[4..8].copy_from_slice(&value.to_ne_bytes());
            u64::from_ne_bytes(bytes)
        };
        self.code.iter().map(encode).collect()
    }
}

/// Local traffic stays in the guest: an own address is used as source for itself, and 127.0.0.1 for 127/8.
fn program(map: i32) -> Vec<u64> {
    let mut a = Assembler::default();
    a.op(MOVE_REGISTER, 6, 1, 0, 0);
    a.op(MOVE, 7, 0, 0, TCP);
    a.op(LOAD_WORD, 1, 6, FAMILY, 0);
    a.jump(JUMP_IF_EQUAL, 1, 0, libc::AF_INET6, Label::Ip6);
    a.op(LOAD_WORD, 1, 6, LOCAL_IP4, 0);
    a.op(LOAD_WORD, 2, 6, REMOTE_IP4, 0);
    a.jump(JUMP_IF_EQUAL_REGISTER, 1, 2, 0, Label::Pass);
    // network order: the first byte of the address is the lowest
    a.op(AND, 1, 0, 0, 0xff);
    a.jump(JUMP_IF_EQUAL, 1, 0, 127, Label::Pass);
    a.jump(JUMP, 0, 0, 0, Label::Outside);

    a.label(Label::Ip6);
    for word in 0..4 {
        a.op(LOAD_WORD, 1, 6, LOCAL_IP6 + 4 * word, 0);
        a.op(LOAD_WORD, 2, 6, REMOTE_IP6 + 4 * word, 0);
        a.jump(JUMP_UNLESS_EQUAL_REGISTER, 1, 2, 0, Label::Outside);
    }
    a.jump(JUMP, 0, 0, 0, Label::Pass);

    a.label(Label::Outside);
    a.op(LOAD_WORD, 1, 6, PROTOCOL, 0);
    a.jump(JUMP_IF_EQUAL, 1, 0, libc::IPPROTO_TCP, Label::Steer);
    a.op(MOVE, 7, 0, 0, UDP);
    a.op(LOAD_WORD, 1, 6, LOCAL_PORT, 0);
    a.jump(JUMP_UNLESS_EQUAL, 1, 0, 53, Label::Pass);

    a.label(Label::Steer);
    a.op(STORE_WORD, FRAME, 7, -4, 0);
    a.op(LOAD_MAP, 1, 1, 0, map);
    a.op(0, 0, 0, 0, 0);
    a.op(MOVE_REGISTER, 2, FRAME, 0, 0);
    a.op(ADD, 2, 0, 0, -4);
    a.op(CALL, 0, 0, 0, MAP_LOOKUP_ELEM);
    a.jump(JUMP_UNLESS_EQUAL, 0, 0, 0, Label::Found);
    a.answer(SK_DROP);
    a.label(Label::Found);
    a.op(MOVE_REGISTER, 7, 0, 0, 0);
    a.op(MOVE_REGISTER, 1, 6, 0, 0);
    a.op(MOVE_REGISTER, 2, 7, 0, 0);
    a.op(MOVE, 3, 0, 0, 0);
    a.op(CALL, 0, 0, 0, SK_ASSIGN);
    a.op(MOVE_REGISTER, 6, 0, 0, 0);
    a.op(MOVE_REGISTER, 1, 7, 0, 0);
    a.op(CALL, 0, 0, 0, SK_RELEASE);
    a.jump(JUMP_IF_EQUAL, 6, 0, 0, Label::Pass);
    a.answer(SK_DROP);
    a.label(Label::Pass);
    a.answer(SK_PASS);
    a.finish()
}

/// Steers until the returned descriptor is dropped.
pub fn steer(tcp: &TcpListener, udp: &UdpSocket) -> io::Result<OwnedFd> {
    let map = sys::socket_map(&[tcp, udp])?;
    sys::attach_socket_lookup(&program(map.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::{program, EXIT, JUMP, JUMP_IF_EQUAL};

    #[test]
    fn jumps_go_forward_and_stay_inside() {
        let code = program(7);
        for (at, instruction) in code.iter().enumerate() {
            let bytes = instruction.to_ne_bytes();
            // jumps, except calls and exit
            if matches!(bytes[0], JUMP | JUMP_IF_EQUAL | 0x1d | 0x55 | 0x5d) {
                let offset = i16::from_ne_bytes([bytes[2], bytes[3]]);
                assert!(offset >= 0 && at + 1 + (offset as usize) < code.len());
            }
        }
        assert_eq!(code[code.len() - 1].to_ne_bytes()[0], EXIT);
        assert_eq!(code[0], u64::from_ne_bytes([0xbf, 0x16, 0, 0, 0, 0, 0, 0]));
    }
}
