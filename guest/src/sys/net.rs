//! Sockets that accept connections and datagrams for other addresses, and netlink.

use super::check;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{Ipv6Addr, SocketAddrV6, TcpListener, UdpSocket};
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd};

const BACKLOG: libc::c_int = 512;
/// Room for one control message with the destination of a datagram.
const CONTROL: usize = 64;

/// Source and original destination of a datagram.
#[derive(Clone, Copy)]
pub struct Route {
    pub from: SocketAddrV6,
    to: libc::in6_pktinfo,
}

/// # Safety
/// `T` must be the type of this option.
unsafe fn set<T>(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let size = size_of::<T>() as libc::socklen_t;
    check(libc::setsockopt(
        socket.as_raw_fd(),
        level,
        name,
        (value as *const T).cast(),
        size,
    ))
    .map(|_| ())
}

fn native(address: &SocketAddrV6) -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as libc::sa_family_t,
        sin6_port: address.port().to_be(),
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr {
            s6_addr: address.ip().octets(),
        },
        sin6_scope_id: address.scope_id(),
    }
}

/// A socket of both families that may send from any address.
fn transparent(kind: libc::c_int, at: &SocketAddrV6) -> io::Result<OwnedFd> {
    let (on, off): (libc::c_int, libc::c_int) = (1, 0);
    let flags = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the new descriptor is ours alone; all options are ints; a pointer to an address of this size.
    unsafe {
        let socket = OwnedFd::from_raw_fd(check(libc::socket(libc::AF_INET6, flags, 0))?);
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &off)?;
        set(&socket, libc::SOL_IP, libc::IP_TRANSPARENT, &on)?;
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT, &on)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, &on)?;
        let address = native(at);
        let size = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
        check(libc::bind(
            socket.as_raw_fd(),
            (&address as *const libc::sockaddr_in6).cast(),
            size,
        ))?;
        Ok(socket)
    }
}

pub fn transparent_listener(at: &SocketAddrV6) -> io::Result<TcpListener> {
    let socket = transparent(libc::SOCK_STREAM, at)?;
    // SAFETY: listen touches no memory.
    check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
    Ok(TcpListener::from(socket))
}

pub fn transparent_datagrams(at: &SocketAddrV6) -> io::Result<UdpSocket> {
    let socket = transparent(libc::SOCK_DGRAM, at)?;
    let on: libc::c_int = 1;
    // SAFETY: the option is an int.
    unsafe { set(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &on)? };
    Ok(UdpSocket::from(socket))
}

/// Receives one datagram: its length and route; None without a route.
pub fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, Option<Route>)> {
    let mut control = [0u64; CONTROL / 8];
    // SAFETY: plain data for which zero is valid; all pointers and lengths are those of live buffers. The control
    // message is read only if the guest kernel says that it is there, and is of the type that is asked for.
    unsafe {
        let mut from: libc::sockaddr_in6 = zeroed();
        let mut piece = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        let mut message: libc::msghdr = zeroed();
        message.msg_name = (&mut from as *mut libc::sockaddr_in6).cast();
        message.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
        message.msg_iov = &mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL as _;
        let count = check(libc::recvmsg(socket.as_raw_fd(), &mut message, 0) as libc::c_int)? as usize;
        let header = libc::CMSG_FIRSTHDR(&message);
        let is_route = !header.is_null()
            && (*header).cmsg_level == libc::IPPROTO_IPV6
            && (*header).cmsg_type == libc::IPV6_PKTINFO;
        if !is_route || message.msg_flags & libc::MSG_TRUNC != 0 {
            return Ok((count, None));
        }
        let ip = Ipv6Addr::from(from.sin6_addr.s6_addr);
        let from = SocketAddrV6::new(ip, u16::from_be(from.sin6_port), 0, from.sin6_scope_id);
        let to = libc::CMSG_DATA(header).cast::<libc::in6_pktinfo>().read_unaligned();
        Ok((count, Some(Route { from, to })))
    }
}

/// Answers a datagram from its original destination.
pub fn reply(socket: &UdpSocket, bytes: &[u8], route: &Route) -> io::Result<()> {
    let mut control = [0u64; CONTROL / 8];
    // SAFETY: as above; the control buffer has room for one in6_pktinfo, and nothing is written through the other
    // pointers.
    unsafe {
        let mut to = native(&route.from);
        let mut piece = libc::iovec {
            iov_base: bytes.as_ptr() as *mut libc::c_void,
            iov_len: bytes.len(),
        };
        let size = size_of::<libc::in6_pktinfo>() as libc::c_uint;
        let mut message: libc::msghdr = zeroed();
        message.msg_name = (&mut to as *mut libc::sockaddr_in6).cast();
        message.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
        message.msg_iov = &mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size) as _;
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::IPPROTO_IPV6;
        (*header).cmsg_type = libc::IPV6_PKTINFO;
        (*header).cmsg_len = libc::CMSG_LEN(size) as _;
        libc::CMSG_DATA(header)
            .cast::<libc::in6_pktinfo>()
            .write_unaligned(route.to);
        check(libc::sendmsg(socket.as_raw_fd(), &message, 0) as libc::c_int).map(|_| ())
    }
}

/// Sends one request to the guest kernel's routing tables; the answer is an errno.
pub fn netlink(request: &[u8]) -> io::Result<()> {
    let mut answer = [0u8; 1024];
    // SAFETY: the new descriptor is ours alone; pointers and lengths are those of live slices.
    let count = unsafe {
        let socket = OwnedFd::from_raw_fd(check(libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            libc::NETLINK_ROUTE,
        ))?);
        let fd = socket.as_raw_fd();
        check(libc::send(fd, request.as_ptr().cast(), request.len(), 0) as libc::c_int)?;
        check(libc::recv(fd, answer.as_mut_ptr().cast(), answer.len(), 0) as libc::c_int)? as usize
    };
    // struct nlmsghdr, then struct nlmsgerr, which begins with the error
    match answer.get(16..20) {
        Some(error) if count >= 20 => match i32::from_ne_bytes([error[0], error[1], error[2], error[3]]) {
            0 => Ok(()),
            number => Err(io::Error::from_raw_os_error(-number)),
        },
        _ => Err(io::Error::from_raw_os_error(libc::EPROTO)),
    }
}
