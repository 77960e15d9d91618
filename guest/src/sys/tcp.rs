//! TCP sockets that never block.

use super::check;
use std::io;
use std::mem::{size_of, size_of_val};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd};

/// Starts to connect; the socket is writable when it is connected or has failed.
pub fn tcp_connect(to: &SocketAddr) -> io::Result<TcpStream> {
    let family = match to {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    let flags = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: makes a new descriptor; this function is its only owner.
    let socket = unsafe { OwnedFd::from_raw_fd(check(libc::socket(family, flags, 0))?) };
    let fd = socket.as_raw_fd();
    let result = match to {
        SocketAddr::V4(to) => {
            let address = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: to.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(to.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: a pointer to an address of this size.
            check(unsafe {
                libc::connect(
                    fd,
                    (&address as *const libc::sockaddr_in).cast(),
                    size_of_val(&address) as u32,
                )
            })
        }
        SocketAddr::V6(to) => {
            let address = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: to.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: to.ip().octets(),
                },
                sin6_scope_id: to.scope_id(),
            };
            // SAFETY: as above.
            check(unsafe {
                libc::connect(
                    fd,
                    (&address as *const libc::sockaddr_in6).cast(),
                    size_of_val(&address) as u32,
                )
            })
        }
    };
    match result {
        Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(e),
        _ => {
            let tcp = TcpStream::from(socket);
            tcp.set_nodelay(true)?;
            Ok(tcp)
        }
    }
}

/// Acknowledges received bytes at once. A peer that writes its answer in two pieces may wait for the acknowledgement of
/// the first, which would otherwise come after 40 ms; the guest kernel resets the option with every read.
pub fn acknowledge(tcp: &TcpStream) {
    let on: libc::c_int = 1;
    // SAFETY: a pointer to an option of this size. Without it the peer only waits.
    unsafe {
        libc::setsockopt(
            tcp.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_QUICKACK,
            (&on as *const libc::c_int).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}

/// Makes close send a reset to the peer.
pub fn reset_on_close(tcp: &TcpStream) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: a pointer to an option of this size. If it fails, the socket is closed without a reset.
    unsafe {
        libc::setsockopt(
            tcp.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&linger as *const libc::linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        );
    }
}
