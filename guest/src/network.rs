//! Egress of the guest: there is no network card; the agent takes every connection and every DNS query and forwards it
//! to the host.

mod names;
mod netlink;
mod steer;

use crate::failure::Failure;
use crate::outbox::Outbox;
use crate::protocol::kind;
use crate::sys::{self, Route};
use forkd_wire::{Reader, Writer};
use names::Names;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};

/// Streams that the agent opens have numbers from here on.
pub const FIRST_AGENT_STREAM: u32 = 0x8000_0000;
// addresses that are never assigned: TEST-NET-1, and a unique local prefix
const SELF4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const SELF6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd66, 0x6f72, 0x6b64, 0, 0, 0, 0, 2));
const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DNS_PORT: u16 = 53;
/// Rarely used; connections that are steered here were for another port.
const TCP_PORT: u16 = 1;
const RESOLV_CONF: &str = "/etc/resolv.conf";
const MOST_QUERIES: usize = 256;
const LONGEST_QUERY: usize = 4096;

/// The sockets that take connections and queries.
struct EgressSockets {
    tcp: TcpListener,
    udp: UdpSocket,
    families: Vec<IpAddr>,
    _steering: OwnedFd,
}

#[derive(Clone, Copy)]
pub enum EgressSocket {
    Connections,
    Queries,
}

#[derive(Default)]
pub struct Network {
    sockets: Option<EgressSockets>,
    on: bool,
    names: Names,
    /// Queries without an answer, by stream.
    queries: BTreeMap<u32, Route>,
}

impl Network {
    /// NETWORK: switches egress on or off.
    pub fn switch(&mut self, payload: &[u8]) -> Result<(), Failure> {
        let on = match Reader::new(payload).u8()? {
            0 => false,
            1 => true,
            _ => return Err(Failure::Malformed),
        };
        if on == self.on {
            return Ok(());
        }
        if on && self.sockets.is_none() {
            self.sockets = Some(EgressSockets::build().map_err(Failure::Unsupported)?);
        }
        if let Some(sockets) = &self.sockets {
            for family in &sockets.families {
                netlink::set_rules(family, on).map_err(Failure::Unsupported)?;
            }
        }
        self.on = on;
        Ok(())
    }

    /// The TCP port that takes programs' connections, if egress was ever on.
    pub fn own_port(&self) -> Option<u16> {
        self.sockets.as_ref().map(|_| TCP_PORT)
    }

    /// The descriptors to poll.
    pub fn interests(&self, mut add: impl FnMut(EgressSocket, RawFd)) {
        if let (true, Some(sockets)) = (self.on, &self.sockets) {
            add(EgressSocket::Connections, sockets.tcp.as_raw_fd());
            if self.queries.len() < MOST_QUERIES {
                add(EgressSocket::Queries, sockets.udp.as_raw_fd());
            }
        }
    }

    /// A connection of a program, and the payload of its DIAL.
    pub fn accept(&self) -> Option<(TcpStream, Vec<u8>)> {
        // a failed connection is already closed
        let (tcp, _) = self.sockets.as_ref()?.tcp.accept().ok()?;
        tcp.set_nonblocking(true).ok()?;
        tcp.set_nodelay(true).ok()?;
        let to = tcp.local_addr().ok()?;
        let ip = plain(to.ip());
        if ip.is_loopback() {
            return None;
        }
        let names = self.names.of(&ip);
        let mut dial = Writer::default().str(&ip.to_string()).u32(to.port() as u32);
        dial = dial.u32(names.len() as u32);
        for name in names {
            dial = dial.str(name);
        }
        Some((tcp, dial.0))
    }

    /// Forwards a query to the host, over the stream of this number.
    pub fn ask(&mut self, stream: u32, outbox: &mut Outbox, scratch: &mut [u8]) {
        let sockets = match &self.sockets {
            Some(sockets) => sockets,
            None => return,
        };
        // a datagram that cannot be read, or is too long, is lost as on any network
        if let Ok((count, Some(route))) = sys::receive(&sockets.udp, &mut scratch[..LONGEST_QUERY]) {
            outbox.frame(kind::RESOLVE, stream, &Writer::default().bytes(&scratch[..count]).0);
            self.queries.insert(stream, route);
        }
    }

    /// A frame for a query's stream; `false`: the stream is not a query.
    pub fn answer(&mut self, stream: u32, frame: u8, payload: &[u8]) -> Result<bool, Failure> {
        let route = match self.queries.remove(&stream) {
            Some(route) => route,
            None => return Ok(false),
        };
        if frame == kind::RESULT {
            let mut reader = Reader::new(payload);
            let (response, name) = (reader.bytes()?, reader.str()?);
            for ip in reader.list(|r| r.str())? {
                self.names.learn(ip.parse().map_err(|_| Failure::Malformed)?, &name);
            }
            if let Some(sockets) = &self.sockets {
                // the program may have closed its socket
                let _ = sys::reply(&sockets.udp, response, &route);
            }
        }
        Ok(true)
    }

    pub fn is_query(&self, stream: u32) -> bool {
        self.queries.contains_key(&stream)
    }

    /// The host has detached, so queries get no answers.
    pub fn detach(&mut self) {
        self.queries.clear();
    }
}

impl EgressSockets {
    fn build() -> io::Result<EgressSockets> {
        netlink::add_address(&SELF4)?;
        netlink::add_route(&SELF4)?;
        let mut families = vec![SELF4];
        // IPv6 may be disabled in the guest
        if netlink::add_address(&SELF6)
            .and_then(|()| netlink::add_route(&SELF6))
            .is_ok()
        {
            families.push(SELF6);
        }
        let at = |ip: Ipv6Addr, port: u16| SocketAddrV6::new(ip, port, 0, 0);
        let tcp = sys::transparent_listener(&at(Ipv6Addr::UNSPECIFIED, TCP_PORT))?;
        let udp = sys::transparent_datagrams(&at(NAME_SERVER.to_ipv6_mapped(), DNS_PORT))?;
        let steering = steer::steer(&tcp, &udp)?;
        name_the_server();
        Ok(EgressSockets {
            tcp,
            udp,
            families,
            _steering: steering,
        })
    }
}

/// The image's name servers are not reachable from the guest, and its link may be broken. A file that cannot be
/// replaced stays: queries to any server are forwarded to the host.
fn name_the_server() {
    let _ = fs::remove_file(RESOLV_CONF);
    let _ = fs::write(RESOLV_CONF, format!("nameserver {}\n", NAME_SERVER));
}

/// Converts an IPv4-mapped IPv6 address to IPv4.
fn plain(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}
