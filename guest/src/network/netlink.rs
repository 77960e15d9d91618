//! Addresses, routes and rules that make every destination of TCP and DNS local.

use crate::sys;
use std::io;
use std::net::IpAddr;

const LOOPBACK: u32 = 1;
/// The table in which every address is local; only the rules lead there.
const TABLE: u8 = 100;
const PRIORITY: u32 = 1000;
const DNS: u16 = 53;

const ACKNOWLEDGE: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
const MAKE: u16 = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
const IFA_F_NODAD: u8 = 2;
const FRA_PRIORITY: u16 = 6;
const FRA_IP_PROTO: u16 = 22;
const FRA_DPORT_RANGE: u16 = 24;
const FR_ACT_TO_TBL: u8 = 1;

fn octets(ip: &IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn family(ip: &IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend_from_slice(&(value.len() as u16 + 4).to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(value);
    out.resize((out.len() + 3) & !3, 0);
}

fn request(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let mut message = (body.len() as u32 + 16).to_ne_bytes().to_vec();
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&(ACKNOWLEDGE | flags).to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(body);
    sys::netlink(&message)
}

fn unless(expected: i32, result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.raw_os_error() == Some(expected) => Ok(()),
        other => other,
    }
}

/// Gives the loopback interface an address.
pub fn add_address(ip: &IpAddr) -> io::Result<()> {
    let bytes = octets(ip);
    let mut body = vec![family(ip), bytes.len() as u8 * 8, IFA_F_NODAD, 0];
    body.extend_from_slice(&LOOPBACK.to_ne_bytes());
    attribute(&mut body, libc::IFA_ADDRESS, &bytes);
    attribute(&mut body, libc::IFA_LOCAL, &bytes);
    unless(libc::EEXIST, request(libc::RTM_NEWADDR, MAKE, &body))
}

/// Makes every address of this family local, with `from` as source address.
pub fn add_route(from: &IpAddr) -> io::Result<()> {
    let mut body = vec![
        family(from),
        0,
        0,
        0,
        TABLE,
        libc::RTPROT_STATIC,
        libc::RT_SCOPE_HOST,
        libc::RTN_LOCAL,
    ];
    body.extend_from_slice(&[0; 4]);
    attribute(&mut body, libc::RTA_OIF, &LOOPBACK.to_ne_bytes());
    attribute(&mut body, libc::RTA_PREFSRC, &octets(from));
    unless(libc::EEXIST, request(libc::RTM_NEWROUTE, MAKE, &body))
}

/// Adds or removes the rules that lead TCP and DNS over UDP to that route. Other traffic has no route.
pub fn set_rules(of: &IpAddr, on: bool) -> io::Result<()> {
    for protocol in [libc::IPPROTO_TCP, libc::IPPROTO_UDP] {
        let mut body = vec![family(of), 0, 0, 0, TABLE, 0, 0, FR_ACT_TO_TBL, 0, 0, 0, 0];
        attribute(&mut body, FRA_PRIORITY, &PRIORITY.to_ne_bytes());
        attribute(&mut body, FRA_IP_PROTO, &[protocol as u8]);
        if protocol == libc::IPPROTO_UDP {
            let range = [DNS.to_ne_bytes(), DNS.to_ne_bytes()].concat();
            attribute(&mut body, FRA_DPORT_RANGE, &range);
        }
        if on {
            unless(libc::EEXIST, request(libc::RTM_NEWRULE, MAKE, &body))?;
        } else {
            unless(libc::ENOENT, request(libc::RTM_DELRULE, 0, &body))?;
        }
    }
    Ok(())
}
