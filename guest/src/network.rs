//! The guest's way out: no network card, but every connection and every DNS query is taken and carried to the host.

mod names;
mod netlink;
mod steer;

use crate::failure::Failure;
use crate::outbox::Outbox;
use crate::protocol::{kind, Reader, Writer};
use crate::sys::{self, Route};
use names::Names;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};

/// Streams that the agent opens have numbers from here on.
pub const FIRST_OWN: u32 = 0x8000_0000;
// addresses that nobody has: TEST-NET-1, and a prefix of local addresses made of the letters of "forkd"
const SELF4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const SELF6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd66, 0x6f72, 0x6b64, 0, 0, 0, 0, 2));
const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DNS_PORT: u16 = 53;
/// Nobody else wants it; what is steered here was meant for another port anyway.
const TCP_PORT: u16 = 1;
const RESOLV_CONF: &str = "/etc/resolv.conf";
const MOST_QUERIES: usize = 256;
const LONGEST_QUERY: usize = 4096;

/// What takes connections and queries.
struct Gate {
    tcp: TcpListener,
    udp: UdpSocket,
    families: Vec<IpAddr>,
    _steering: OwnedFd,
}

#[derive(Clone, Copy)]
pub enum Door {
    Connections,
    Queries,
}

#[derive(Default)]
pub struct Network {
    gate: Option<Gate>,
    on: bool,
    names: Names,
    /// Queries that the host has not answered, by stream.
    queries: BTreeMap<u32, Route>,
}

impl Network {
    /// NETWORK: opens or closes the way out.
    pub fn switch(&mut self, payload: &[u8]) -> Result<(), Failure> {
        let on = match Reader::new(payload).u8()? {
            0 => false,
            1 => true,
            _ => return Err(Failure::Malformed),
        };
        if on == self.on {
            return Ok(());
        }
        if on && self.gate.is_none() {
            self.gate = Some(Gate::build().map_err(Failure::Unsupported)?);
        }
        if let Some(gate) = &self.gate {
            for family in &gate.families {
                netlink::set_rules(family, on).map_err(Failure::Unsupported)?;
            }
        }
        self.on = on;
        Ok(())
    }

    /// The TCP port on which programs' connections are taken, once that was ever so.
    pub fn own_port(&self) -> Option<u16> {
        self.gate.as_ref().map(|_| TCP_PORT)
    }

    /// The descriptors to wait for.
    pub fn interests(&self, mut add: impl FnMut(Door, RawFd)) {
        if let (true, Some(gate)) = (self.on, &self.gate) {
            add(Door::Connections, gate.tcp.as_raw_fd());
            if self.queries.len() < MOST_QUERIES {
                add(Door::Queries, gate.udp.as_raw_fd());
            }
        }
    }

    /// A connection of a program, and the payload of the DIAL for it.
    pub fn accept(&self) -> Option<(TcpStream, Vec<u8>)> {
        // one that failed is gone already
        let (tcp, _) = self.gate.as_ref()?.tcp.accept().ok()?;
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

    /// Takes a query to the host, over the stream of this number.
    pub fn ask(&mut self, stream: u32, outbox: &mut Outbox, scratch: &mut [u8]) {
        let gate = match &self.gate {
            Some(gate) => gate,
            None => return,
        };
        // a datagram that cannot be read, or is too long, is lost as on any network
        if let Ok((count, Some(route))) = sys::receive(&gate.udp, &mut scratch[..LONGEST_QUERY]) {
            outbox.frame(kind::RESOLVE, stream, &Writer::default().bytes(&scratch[..count]).0);
            self.queries.insert(stream, route);
        }
    }

    /// A frame for a stream of ours that is a query; `false`: it is none.
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
            if let Some(gate) = &self.gate {
                // the program may be gone
                let _ = sys::reply(&gate.udp, response, &route);
            }
        }
        Ok(true)
    }

    pub fn is_query(&self, stream: u32) -> bool {
        self.queries.contains_key(&stream)
    }

    /// The host end is gone, and with it who would answer.
    pub fn detach(&mut self) {
        self.queries.clear();
    }
}

impl Gate {
    fn build() -> io::Result<Gate> {
        netlink::add_address(&SELF4)?;
        netlink::add_route(&SELF4)?;
        let mut families = vec![SELF4];
        // a guest in which IPv6 was switched off does without
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
        Ok(Gate {
            tcp,
            udp,
            families,
            _steering: steering,
        })
    }
}

/// Whatever the image names cannot be meant for here, and a link may lead to nowhere. A file that cannot be replaced stays:
/// whoever it names, it is the host who answers.
fn name_the_server() {
    let _ = fs::remove_file(RESOLV_CONF);
    let _ = fs::write(RESOLV_CONF, format!("nameserver {}\n", NAME_SERVER));
}

/// An IPv4 address that an IPv6 socket shows is one all the same.
fn plain(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}
