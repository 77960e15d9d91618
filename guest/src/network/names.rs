//! Names that led to an address: a program that connects gives only the address.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

const MOST_ADDRESSES: usize = 1024;
const MOST_NAMES: usize = 8;
const LONGEST_NAME: usize = 255;

#[derive(Default)]
pub struct Names {
    /// The newest name last.
    by_address: BTreeMap<IpAddr, Vec<String>>,
    /// The address that was learnt first is dropped first.
    order: VecDeque<IpAddr>,
}

impl Names {
    pub fn learn(&mut self, ip: IpAddr, name: &str) {
        if name.is_empty() || name.len() > LONGEST_NAME {
            return;
        }
        if !self.by_address.contains_key(&ip) {
            self.order.push_back(ip);
            if self.order.len() > MOST_ADDRESSES {
                if let Some(oldest) = self.order.pop_front() {
                    self.by_address.remove(&oldest);
                }
            }
        }
        let names = self.by_address.entry(ip).or_default();
        names.retain(|known| known != name);
        names.push(name.to_string());
        if names.len() > MOST_NAMES {
            names.remove(0);
        }
    }

    pub fn of(&self, ip: &IpAddr) -> &[String] {
        self.by_address.get(ip).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::{Names, MOST_ADDRESSES, MOST_NAMES};
    use std::net::{IpAddr, Ipv4Addr};

    fn ip(number: usize) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(number as u32))
    }

    #[test]
    fn keeps_the_newest_names_of_an_address() {
        let mut names = Names::default();
        for at in 0..MOST_NAMES + 2 {
            names.learn(ip(1), &format!("n{}", at));
        }
        names.learn(ip(1), "n5");
        names.learn(ip(1), "");
        names.learn(ip(1), &"x".repeat(256));
        let known = names.of(&ip(1));
        assert_eq!(known.len(), MOST_NAMES);
        assert_eq!(known[MOST_NAMES - 1], "n5");
        assert!(!known.contains(&"n1".to_string()));
        assert!(names.of(&ip(2)).is_empty());
    }

    #[test]
    fn is_bounded() {
        let mut names = Names::default();
        for at in 0..MOST_ADDRESSES + 10 {
            names.learn(ip(at), "name");
        }
        assert_eq!(names.by_address.len(), MOST_ADDRESSES);
        assert_eq!(names.order.len(), MOST_ADDRESSES);
        assert!(names.of(&ip(9)).is_empty());
        assert_eq!(names.of(&ip(10)), ["name"]);
    }
}
