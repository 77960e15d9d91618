//! bpf(2): the four commands that steering needs.

use super::check;
use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd};

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const MAP_TYPE_SOCKMAP: u32 = 15;
const PROG_TYPE_SK_LOOKUP: u32 = 30;
const ATTACH_SK_LOOKUP: u32 = 36;

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
}

/// # Safety
/// The attributes must be those of the command, and what they point to must be alive.
unsafe fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<libc::c_int> {
    let size = size_of::<T>() as libc::c_uint;
    check(libc::syscall(libc::SYS_bpf, command, attributes as *const T, size) as libc::c_int)
}

/// A map that holds these sockets, by their position.
pub fn socket_map(sockets: &[&dyn AsRawFd]) -> io::Result<OwnedFd> {
    let create = MapCreate {
        kind: MAP_TYPE_SOCKMAP,
        key_size: 4,
        value_size: 8,
        max_entries: sockets.len() as u32,
        flags: 0,
    };
    // SAFETY: the attributes point to nothing; the new descriptor is ours alone.
    let map = unsafe { OwnedFd::from_raw_fd(bpf(MAP_CREATE, &create)?) };
    for (at, socket) in sockets.iter().enumerate() {
        let (key, value) = (at as u32, socket.as_raw_fd() as u64);
        let update = MapUpdate {
            map: map.as_raw_fd() as u32,
            padding: 0,
            key: &key as *const u32 as u64,
            value: &value as *const u64 as u64,
            flags: 0,
        };
        // SAFETY: key and value live on the stack and have the sizes that the map was made with.
        unsafe { bpf(MAP_UPDATE_ELEM, &update)? };
    }
    Ok(map)
}

/// Loads an SK_LOOKUP program and attaches it to the network namespace; it is active until the descriptor is closed.
pub fn attach_socket_lookup(instructions: &[u64]) -> io::Result<OwnedFd> {
    let license = CStr::from_bytes_with_nul(b"Apache-2.0\0").unwrap_or_default();
    let mut name = [0; 16];
    name[..5].copy_from_slice(b"forkd");
    let load = ProgLoad {
        kind: PROG_TYPE_SK_LOOKUP,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name,
        interface: 0,
        attach_type: ATTACH_SK_LOOKUP,
    };
    let namespace = std::fs::File::open("/proc/self/ns/net")?;
    // SAFETY: the instructions and the license outlive the call; the new descriptors are ours alone.
    unsafe {
        let program = OwnedFd::from_raw_fd(bpf(PROG_LOAD, &load)?);
        let link = LinkCreate {
            program: program.as_raw_fd() as u32,
            target: namespace.as_raw_fd() as u32,
            attach_type: ATTACH_SK_LOOKUP,
            flags: 0,
        };
        Ok(OwnedFd::from_raw_fd(bpf(LINK_CREATE, &link)?))
    }
}
