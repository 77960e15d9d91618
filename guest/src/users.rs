//! Users and groups from the guest's files: a static binary cannot use the system's name services.

use std::fs;
use std::io;

pub struct User {
    pub name: String,
    pub home: String,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

/// The user that a request names: empty for root, a name, `uid` or `uid:gid`.
pub fn find(wanted: &str) -> io::Result<User> {
    if wanted.is_empty() {
        return Ok(User {
            name: "root".to_string(),
            home: "/root".to_string(),
            uid: 0,
            gid: 0,
            groups: vec![0],
        });
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let group = fs::read_to_string("/etc/group").unwrap_or_default();
    resolve(wanted, &passwd, &group)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no such user: {}", wanted)))
}

/// Ids of an owner and a group, by name or number; `u32::MAX` for an empty name, which means unchanged.
pub fn ids(owner: &str, group: &str) -> io::Result<(u32, u32)> {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let unknown =
        |what: &str, name: &str| io::Error::new(io::ErrorKind::NotFound, format!("no such {}: {}", what, name));
    let uid = id_in(&passwd, owner).ok_or_else(|| unknown("user", owner))?;
    let gid = id_in(&groups, group).ok_or_else(|| unknown("group", group))?;
    Ok((uid, gid))
}

/// Both files have lines `name:password:id:…`.
fn id_in(file: &str, wanted: &str) -> Option<u32> {
    if wanted.is_empty() {
        return Some(u32::MAX);
    }
    let named = file.lines().find_map(|line| {
        let mut fields = line.split(':');
        let id = (fields.next()? == wanted).then(|| fields.nth(1))??;
        id.parse().ok()
    });
    // -1 is no id: it would mean "unchanged"
    named.or_else(|| wanted.parse().ok()).filter(|id| *id != u32::MAX)
}

/// Names of all users and groups, to show owners.
pub struct Names {
    users: Vec<(u32, String)>,
    groups: Vec<(u32, String)>,
}

impl Names {
    pub fn load() -> Names {
        Names {
            users: names_in(&fs::read_to_string("/etc/passwd").unwrap_or_default()),
            groups: names_in(&fs::read_to_string("/etc/group").unwrap_or_default()),
        }
    }

    /// Empty if there is none.
    pub fn user(&self, uid: u32) -> &str {
        name_of(&self.users, uid)
    }

    pub fn group(&self, gid: u32) -> &str {
        name_of(&self.groups, gid)
    }
}

fn names_in(file: &str) -> Vec<(u32, String)> {
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_string();
        Some((fields.nth(1)?.parse().ok()?, name))
    };
    file.lines().filter_map(entry).collect()
}

fn name_of(names: &[(u32, String)], id: u32) -> &str {
    names
        .iter()
        .find(|(known, _)| *known == id)
        .map_or("", |(_, name)| name)
}

fn resolve(wanted: &str, passwd: &str, group: &str) -> Option<User> {
    let (id, explicit_gid) = match wanted.split_once(':') {
        Some((uid, gid)) => (Some(uid.parse().ok()?), Some(gid.parse().ok()?)),
        None => (wanted.parse::<u32>().ok(), None),
    };
    let known = passwd.lines().filter_map(entry).find(|user| match id {
        Some(uid) => user.uid == uid,
        None => user.name == wanted,
    });
    let mut user = match (known, id) {
        (Some(user), _) => user,
        (None, Some(uid)) => User {
            name: uid.to_string(),
            home: "/".to_string(),
            uid,
            gid: uid,
            groups: Vec::new(),
        },
        (None, None) => return None,
    };
    match explicit_gid {
        Some(gid) => user.gid = gid,
        None => user.groups = memberships(&user.name, group),
    }
    if !user.groups.contains(&user.gid) {
        user.groups.push(user.gid);
    }
    Some(user)
}

// name:password:uid:gid:comment:home:shell
fn entry(line: &str) -> Option<User> {
    let fields: Vec<&str> = line.split(':').collect();
    if fields.len() < 6 || fields[0].is_empty() {
        return None;
    }
    Some(User {
        name: fields[0].to_string(),
        home: fields[5].to_string(),
        uid: fields[2].parse().ok()?,
        gid: fields[3].parse().ok()?,
        groups: Vec::new(),
    })
}

// name:password:gid:member,member
fn memberships(name: &str, group: &str) -> Vec<u32> {
    let member_of = |line: &str| {
        let mut fields = line.split(':').skip(2);
        let gid = fields.next()?.parse().ok()?;
        let is_member = fields.next()?.trim().split(',').any(|m| m == name);
        if is_member {
            Some(gid)
        } else {
            None
        }
    };
    group.lines().filter_map(member_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1000:1001:,,,:/home/ann:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nann:x:1001:\nvideo:x:44:bob,ann\naudio:x:29:ann\nannex:x:30:annex\n";

    #[test]
    fn finds_by_name_number_and_pair() {
        let ann = resolve("ann", PASSWD, GROUP).unwrap();
        assert_eq!((ann.uid, ann.gid, ann.home.as_str()), (1000, 1001, "/home/ann"));
        assert_eq!(ann.groups, [44, 29, 1001]);
        assert_eq!(resolve("1000", PASSWD, GROUP).unwrap().name, "ann");
        let pair = resolve("1000:7", PASSWD, GROUP).unwrap();
        assert_eq!((pair.uid, pair.gid, pair.groups), (1000, 7, vec![7]));
        let stranger = resolve("4242", PASSWD, GROUP).unwrap();
        assert_eq!((stranger.uid, stranger.gid, stranger.home.as_str()), (4242, 4242, "/"));
    }

    #[test]
    fn finds_ids_and_names() {
        assert_eq!(id_in(PASSWD, "ann"), Some(1000));
        assert_eq!(id_in(GROUP, "ann"), Some(1001));
        assert_eq!(id_in(PASSWD, "4242"), Some(4242));
        assert_eq!(id_in(PASSWD, ""), Some(u32::MAX));
        for wanted in ["bob", "4294967295", "-1", "broken"] {
            assert_eq!(id_in(PASSWD, wanted), None, "{}", wanted);
        }
        let names = names_in(PASSWD);
        assert_eq!((name_of(&names, 1000), name_of(&names, 7)), ("ann", ""));
    }

    #[test]
    fn refuses_unknown_users() {
        for wanted in ["bob", "an", "1000:x", ":", "-1", "root:root"] {
            assert!(resolve(wanted, PASSWD, GROUP).is_none(), "{}", wanted);
        }
    }
}
