//! The guest kernel's nodes of a share: each number stands for a path until the guest kernel forgets it.

use crate::fuse::{Attributes, ROOT};
use std::collections::HashMap;

/// The host's limit of a path.
const LONGEST_PATH: usize = 4096;
const LONGEST_NAME: usize = 255;

struct Node {
    parent: u64,
    name: Box<[u8]>,
    inode: u64,
    kind: u32,
    /// The guest kernel's lookup count of the node.
    told: u64,
}

pub struct Nodes {
    nodes: HashMap<u64, Node>,
    /// The current node of a name in a folder.
    names: HashMap<(u64, Box<[u8]>), u64>,
    last: u64,
}

impl Default for Nodes {
    fn default() -> Nodes {
        Nodes {
            nodes: HashMap::new(),
            names: HashMap::new(),
            last: ROOT,
        }
    }
}

impl Nodes {
    /// The path of a node below the share, and its inode (0: any); an errno if there is none.
    pub fn path(&self, node: u64) -> Result<(Vec<u8>, u64), i32> {
        let mut names = Vec::new();
        let mut length = 0;
        let mut at = node;
        while at != ROOT {
            let found = self.nodes.get(&at).ok_or(libc::ESTALE)?;
            length += found.name.len() + 1;
            if length > LONGEST_PATH {
                return Err(libc::ENAMETOOLONG);
            }
            names.push(&found.name[..]);
            at = found.parent;
        }
        names.reverse();
        Ok((names.join(&b'/'), self.nodes.get(&node).map_or(0, |found| found.inode)))
    }

    /// The path of a name in a folder.
    pub fn path_of(&self, parent: u64, name: &[u8]) -> Result<Vec<u8>, i32> {
        let (mut path, _) = self.path(parent)?;
        if name.len() > LONGEST_NAME || path.len() + 1 + name.len() > LONGEST_PATH {
            return Err(libc::ENAMETOOLONG);
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        Ok(path)
    }

    /// Counts one more lookup of a name; another file under a known name is another node.
    pub fn tell(&mut self, parent: u64, name: &[u8], found: &Attributes) -> u64 {
        let key = (parent, Box::from(name));
        if let Some(known) = self.names.get(&key) {
            if let Some(node) = self.nodes.get_mut(known) {
                if node.inode == found.inode && node.kind == found.kind() {
                    node.told += 1;
                    return *known;
                }
            }
        }
        self.last += 1;
        let node = Node {
            parent,
            name: Box::from(name),
            inode: found.inode,
            kind: found.kind(),
            told: 1,
        };
        self.nodes.insert(self.last, node);
        self.names.insert(key, self.last);
        self.last
    }

    /// Whether these attributes belong to the node's file.
    pub fn is_same(&self, node: u64, found: &Attributes) -> bool {
        match self.nodes.get(&node) {
            Some(node) => node.inode == found.inode && node.kind == found.kind(),
            None => node == ROOT && found.kind() == libc::S_IFDIR,
        }
    }

    /// The guest kernel drops this many lookups.
    pub fn forget(&mut self, number: u64, times: u64) {
        if let Some(node) = self.nodes.get_mut(&number) {
            node.told = node.told.saturating_sub(times);
            if node.told > 0 {
                return;
            }
        }
        if let Some(node) = self.nodes.remove(&number) {
            let key = (node.parent, node.name);
            if self.names.get(&key) == Some(&number) {
                self.names.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: u64, kind: u32) -> Attributes {
        Attributes {
            inode,
            size: 0,
            blocks: 0,
            times: [0; 3],
            mode: kind | 0o644,
            links: 1,
        }
    }

    #[test]
    fn a_node_is_a_path() {
        let mut nodes = Nodes::default();
        let a = nodes.tell(ROOT, b"a", &file(10, libc::S_IFDIR));
        let b = nodes.tell(a, b"\xff b", &file(11, libc::S_IFREG));
        assert_eq!(nodes.path(ROOT), Ok((Vec::new(), 0)));
        assert_eq!(nodes.path(b), Ok((b"a/\xff b".to_vec(), 11)));
        assert_eq!(nodes.path_of(ROOT, b"x"), Ok(b"x".to_vec()));
        assert_eq!(nodes.path_of(a, b"x"), Ok(b"a/x".to_vec()));
        assert_eq!(nodes.path(99), Err(libc::ESTALE));
    }

    #[test]
    fn a_replaced_file_is_another_node() {
        let mut nodes = Nodes::default();
        let first = nodes.tell(ROOT, b"a", &file(10, libc::S_IFREG));
        assert_eq!(nodes.tell(ROOT, b"a", &file(10, libc::S_IFREG)), first);
        let second = nodes.tell(ROOT, b"a", &file(11, libc::S_IFREG));
        assert_ne!(second, first);
        assert_ne!(nodes.tell(ROOT, b"a", &file(11, libc::S_IFLNK)), second);
        assert!(nodes.is_same(first, &file(10, libc::S_IFREG)));
        assert!(!nodes.is_same(first, &file(11, libc::S_IFREG)));
        assert!(nodes.is_same(ROOT, &file(77, libc::S_IFDIR)));
        assert!(!nodes.is_same(ROOT, &file(77, libc::S_IFREG)));
    }

    #[test]
    fn forgets_reported_changes() {
        let mut nodes = Nodes::default();
        let old = nodes.tell(ROOT, b"a", &file(10, libc::S_IFREG));
        nodes.tell(ROOT, b"a", &file(10, libc::S_IFREG));
        let new = nodes.tell(ROOT, b"a", &file(11, libc::S_IFREG));
        nodes.forget(old, 1);
        assert!(nodes.path(old).is_ok());
        nodes.forget(old, 1);
        assert_eq!(nodes.path(old), Err(libc::ESTALE));
        assert_eq!(nodes.tell(ROOT, b"a", &file(11, libc::S_IFREG)), new);
        nodes.forget(new, 9);
        nodes.forget(ROOT, 9);
        nodes.forget(4711, 1);
        assert!(nodes.nodes.is_empty() && nodes.names.is_empty());
    }

    #[test]
    fn paths_are_bounded() {
        let mut nodes = Nodes::default();
        let mut at = ROOT;
        for inode in 0..40 {
            at = nodes.tell(at, &[b'x'; 200], &file(inode, libc::S_IFDIR));
        }
        assert_eq!(nodes.path(at), Err(libc::ENAMETOOLONG));
        assert_eq!(nodes.path_of(ROOT, &[b'x'; 256]), Err(libc::ENAMETOOLONG));
    }
}
