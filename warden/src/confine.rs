//! A VMM's own namespaces: what it sees of the host, and how it gets there between clone and exec.

use crate::fault::{Context, Fault, Outcome};
use crate::wire::Reader;
use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::io;
use std::os::raw::{c_char, c_int, c_ulong};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// All of them belong to the new user namespace, so an ordinary user may make them
pub const NAMESPACES: c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWNET;

/// Who the VMM is inside. Not 0: only so exec leaves no capability
const INSIDE_ID: u32 = 1000;
/// Where programs and libraries are; each as it is on the host, a folder or a link
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Saves the loader a search through all folders of libraries
const LOADER_CACHE: &str = "/etc/ld.so.cache";
const DEVICES: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/urandom"];
/// The new root holds folders, links and places for mounts, and then nothing more
const ROOT_OPTIONS: &[u8] = b"size=1m,nr_inodes=4096,mode=700\0";
const MAX_CAPABILITY: c_ulong = 63;

const SHOWN: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
const OWN: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;
const DEVICE: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;

/// As it was asked for
pub struct Confinement {
    /// Folders and files that it may write
    writable: Vec<PathBuf>,
    /// Folders and files that it may read, beside the system's
    readable: Vec<PathBuf>,
    /// Beside those that are always there
    devices: Vec<PathBuf>,
    /// The longest file that it may write
    pub file_bytes: u64,
}

impl Confinement {
    pub fn read(reader: &mut Reader) -> Outcome<Confinement> {
        Ok(Confinement {
            writable: reader.list(plain_path)?,
            readable: reader.list(plain_path)?,
            devices: reader.list(plain_path)?,
            file_bytes: reader.u64()?,
        })
    }

    /// Everything that the child needs, which may not allocate. The new root is put over `base` first, a folder of the VM.
    pub fn prepare(&self, base: &CStr) -> Outcome<Cell> {
        let mut layout = Layout::default();
        for path in SYSTEM.iter().map(Path::new) {
            match fs::symlink_metadata(path) {
                Ok(found) if found.file_type().is_symlink() => layout.link(path)?,
                Ok(_) => layout.show(path, SHOWN)?,
                Err(_) => {}
            }
        }
        if Path::new(LOADER_CACHE).exists() {
            layout.show(Path::new(LOADER_CACHE), SHOWN)?;
        }
        for path in DEVICES
            .iter()
            .map(Path::new)
            .chain(self.devices.iter().map(PathBuf::as_path))
        {
            layout.show(path, DEVICE)?;
        }
        let shown = self.readable.iter().map(|path| (path, SHOWN));
        let mut rest: Vec<_> = shown.chain(self.writable.iter().map(|path| (path, OWN))).collect();
        // what lies in another one is put onto it
        rest.sort_by_key(|(path, _)| path.components().count());
        for (path, attributes) in rest {
            layout.show(path, attributes)?;
        }
        // SAFETY: reads this process's user and group.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let map = |outside: u32| format!("{INSIDE_ID} {outside} 1\n").into_bytes();
        Ok(Cell {
            base: base.to_owned(),
            users: map(uid),
            groups: map(gid),
            makes: layout.makes,
            mounts: layout.mounts,
        })
    }
}

/// Absolute, and what it says: a path that goes up could leave the new root's folders
fn plain_path(reader: &mut Reader) -> Outcome<PathBuf> {
    let path = reader.path()?;
    let mut parts = path.components();
    let plain = parts.next() == Some(Component::RootDir) && parts.all(|part| matches!(part, Component::Normal(_)));
    if !plain || path == Path::new("/") {
        return Err(Fault::new("EINVAL", format!("{} is no plain path", path.display())));
    }
    Ok(path)
}

/// Made in the new root, by paths relative to it
enum Make {
    Folder(CString),
    File(CString),
    Link { at: CString, to: CString },
}

struct Mount {
    from: CString,
    /// Relative to the new root
    at: CString,
    attributes: u64,
    /// The child's, while it moves
    tree: c_int,
}

#[derive(Default)]
struct Layout {
    makes: Vec<Make>,
    mounts: Vec<Mount>,
    made: Vec<PathBuf>,
}

impl Layout {
    fn link(&mut self, path: &Path) -> Outcome<()> {
        let to = fs::read_link(path).during(|| path.display())?;
        self.makes.push(Make::Link {
            at: inside(path),
            to: c_string(to.as_os_str()),
        });
        Ok(())
    }

    fn show(&mut self, path: &Path, attributes: u64) -> Outcome<()> {
        let is_folder = fs::metadata(path).during(|| path.display())?.is_dir();
        self.folder(path.parent().unwrap_or_else(|| Path::new("/")));
        if is_folder {
            self.folder(path);
        } else {
            self.makes.push(Make::File(inside(path)));
        }
        self.mounts.push(Mount {
            from: c_string(path.as_os_str()),
            at: inside(path),
            attributes,
            tree: -1,
        });
        Ok(())
    }

    /// With all folders above it
    fn folder(&mut self, path: &Path) {
        let parent = match path.parent() {
            Some(parent) if !self.made.iter().any(|made| made == path) => parent,
            _ => return,
        };
        self.folder(parent);
        self.made.push(path.to_path_buf());
        self.makes.push(Make::Folder(inside(path)));
    }
}

fn inside(path: &Path) -> CString {
    c_string(path.strip_prefix("/").unwrap_or(path).as_os_str())
}

fn c_string(text: &OsStr) -> CString {
    // a path that came over the wire or from the kernel holds no NUL
    CString::new(text.as_bytes()).unwrap_or_default()
}

/// What a step was about, for the error when it fails
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The host does not allow it
    Host(&'static str),
    /// A path that was asked for cannot be shown
    Path(usize),
}

pub struct Cell {
    base: CString,
    users: Vec<u8>,
    groups: Vec<u8>,
    makes: Vec<Make>,
    mounts: Vec<Mount>,
}

impl Cell {
    /// The path of a trouble
    pub fn path(&self, index: usize) -> String {
        self.mounts[index].from.to_string_lossy().into_owned()
    }

    /// Makes this process a user of its new namespaces.
    ///
    /// # Safety
    /// To be called in a child of vfork that has `NAMESPACES`.
    pub unsafe fn settle(&self) -> Result<(), Trouble> {
        // without this an ordinary user may not map a group
        put(b"/proc/self/setgroups\0", b"deny").ok_or(Trouble::Host("/proc/self/setgroups"))?;
        put(b"/proc/self/uid_map\0", &self.users).ok_or(Trouble::Host("/proc/self/uid_map"))?;
        put(b"/proc/self/gid_map\0", &self.groups).ok_or(Trouble::Host("/proc/self/gid_map"))?;
        // not needed, so a service manager that forbids it forbids nothing that counts
        libc::sethostname(b"vmm".as_ptr().cast(), 3);
        Ok(())
    }

    /// Leaves nothing of the host's files but what is to be seen.
    ///
    /// # Safety
    /// To be called in a child of vfork, after `settle`.
    pub unsafe fn enter(&mut self) -> Result<(), Trouble> {
        // found as the host sees them, before anything is put over the host's folders
        for (index, mount) in self.mounts.iter_mut().enumerate() {
            let flags = libc::OPEN_TREE_CLONE | libc::O_CLOEXEC as u32 | libc::AT_RECURSIVE as u32;
            mount.tree = libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, mount.from.as_ptr(), flags) as c_int;
            if mount.tree < 0 {
                return Err(Trouble::Path(index));
            }
            set_attributes(mount.tree, b"\0", mount.attributes).ok_or(Trouble::Path(index))?;
        }
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let kind = b"tmpfs\0".as_ptr().cast();
        check(libc::mount(kind, self.base.as_ptr(), kind, flags, ROOT_OPTIONS.as_ptr().cast()).into())
            .and_then(|_| check(libc::chdir(self.base.as_ptr()).into()))
            .ok_or(Trouble::Host("mounting a new root"))?;
        for make in &self.makes {
            make.run().ok_or(Trouble::Host("filling the new root"))?;
        }
        // before the mounts, each of which has attributes of its own
        set_attributes(libc::AT_FDCWD, b".\0", OWN | libc::MOUNT_ATTR_RDONLY)
            .ok_or(Trouble::Host("making the new root read-only"))?;
        for (index, mount) in self.mounts.iter().enumerate() {
            let (here, flags) = (libc::AT_FDCWD, libc::MOVE_MOUNT_F_EMPTY_PATH);
            let nothing = b"\0".as_ptr();
            check(libc::syscall(
                libc::SYS_move_mount,
                mount.tree,
                nothing,
                here,
                mount.at.as_ptr(),
                flags,
            ))
            .ok_or(Trouble::Path(index))?;
            libc::close(mount.tree);
        }
        let here = b".\0".as_ptr();
        // the old root lies on the new one for a moment: no folder is needed for it
        check(libc::syscall(libc::SYS_pivot_root, here, here))
            .and_then(|_| check(libc::umount2(here.cast(), libc::MNT_DETACH).into()))
            .ok_or(Trouble::Host("leaving the old root"))
    }
}

impl Make {
    /// What is there already is a part of something that was shown, or another one's folder; a place that is still missing is
    /// found when something is to be mounted there.
    unsafe fn run(&self) -> Option<()> {
        let made = match self {
            Make::Folder(at) => libc::mkdir(at.as_ptr(), 0o700),
            Make::File(at) => libc::mknod(at.as_ptr(), libc::S_IFREG | 0o600, 0),
            Make::Link { at, to } => libc::symlink(to.as_ptr(), at.as_ptr()),
        };
        match check(made.into()) {
            None if *libc::__errno_location() == libc::EEXIST => Some(()),
            made => made,
        }
    }
}

/// Drops every capability for good, also those that a file could give.
///
/// # Safety
/// To be called in a child of vfork that is alone in its user namespace.
pub unsafe fn drop_capabilities() {
    for capability in 0..=MAX_CAPABILITY {
        if libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 {
            return;
        }
    }
}

/// Also for what is mounted below; nothing that the host mounts later is seen
unsafe fn set_attributes(folder: c_int, path: &[u8], attributes: u64) -> Option<()> {
    let attributes = libc::mount_attr {
        attr_set: attributes,
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    let size = std::mem::size_of::<libc::mount_attr>();
    let at = path.as_ptr().cast::<c_char>();
    check(libc::syscall(
        libc::SYS_mount_setattr,
        folder,
        at,
        flags,
        &attributes,
        size,
    ))
}

unsafe fn put(path: &[u8], text: &[u8]) -> Option<()> {
    let file = libc::open(path.as_ptr().cast(), libc::O_WRONLY | libc::O_CLOEXEC);
    if file < 0 {
        return None;
    }
    let written = libc::write(file, text.as_ptr().cast(), text.len());
    // close would not change errno, which says why
    libc::close(file);
    (written == text.len() as isize).then_some(())
}

fn check(result: i64) -> Option<()> {
    (result >= 0).then_some(())
}

/// Whether the process is still a child of this one, as the host's /proc sees it: in a pid namespace getppid() knows no parent.
///
/// # Safety
/// To be called in a child of vfork.
pub unsafe fn has_parent(parent: i32) -> bool {
    let mut text = [0u8; 256];
    let file = libc::open(b"/proc/self/stat\0".as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
    let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
    libc::close(file);
    parent_in(text.get(..length.max(0) as usize).unwrap_or(&[])) == Some(parent)
}

/// `pid (name) state parent …`: the name may hold anything
fn parent_in(stat: &[u8]) -> Option<i32> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = stat.get(name_end + 4..)?;
    let end = rest.iter().position(|byte| *byte == b' ')?;
    std::str::from_utf8(&rest[..end]).ok()?.parse().ok()
}

/// A path that is there and cannot be shown: mounts are forbidden, or unknown to the kernel, or the way to it is open to root only,
/// whose rights end at the new namespace
pub fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS))
}

/// The host does not let us
pub fn refused(error: &io::Error, what: &str) -> Fault {
    // what the kernel says is that no space is left
    let why = match error.raw_os_error() {
        Some(libc::ENOSPC) => "a limit of namespaces is reached (/proc/sys/user)".to_string(),
        _ => error.to_string(),
    };
    Fault::new("no_confinement", format!("{what}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Writer;

    fn path_from(text: &str) -> Outcome<PathBuf> {
        plain_path(&mut Reader::new(Writer::new().str(text).bytes()))
    }

    fn names(layout: &Layout) -> Vec<String> {
        let name = |make: &Make| match make {
            Make::Folder(at) => format!("{}/", at.to_str().unwrap()),
            Make::File(at) => at.to_str().unwrap().to_string(),
            Make::Link { at, to } => format!("{} -> {}", at.to_str().unwrap(), to.to_str().unwrap()),
        };
        layout.makes.iter().map(name).collect()
    }

    #[test]
    fn only_plain_paths_are_taken() {
        assert_eq!(path_from("/a/b").unwrap(), PathBuf::from("/a/b"));
        for wrong in ["a/b", "/", "/a/../b", "/..", "", "."] {
            assert_eq!(path_from(wrong).unwrap_err().code, "EINVAL", "{wrong}");
        }
    }

    #[test]
    fn every_folder_is_made_once_and_before_what_is_in_it() {
        let mut layout = Layout::default();
        layout.show(Path::new("/dev/null"), DEVICE).unwrap();
        layout.show(Path::new("/dev/zero"), DEVICE).unwrap();
        layout.show(Path::new("/proc/self"), SHOWN).unwrap();
        assert_eq!(names(&layout), ["dev/", "dev/null", "dev/zero", "proc/", "proc/self/"]);
        assert_eq!(layout.show(Path::new("/no/such"), SHOWN).unwrap_err().code, "ENOENT");
    }

    #[test]
    fn what_lies_in_a_shown_folder_is_mounted_after_it() {
        let list = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        let confinement = Confinement {
            writable: list(&["/proc/self/fd"]),
            readable: list(&["/proc/self/fdinfo", "/proc"]),
            devices: Vec::new(),
            file_bytes: 0,
        };
        let cell = confinement.prepare(&CString::new("/tmp").unwrap()).unwrap();
        let at: Vec<_> = cell.mounts.iter().map(|mount| mount.at.to_str().unwrap()).collect();
        let own = at.iter().rposition(|path| !path.starts_with("proc")).unwrap() + 1;
        assert_eq!(at[own..], ["proc", "proc/self/fdinfo", "proc/self/fd"]);
        assert_eq!(cell.mounts.last().unwrap().attributes & libc::MOUNT_ATTR_RDONLY, 0);
        assert!(at.contains(&"usr") && at.contains(&"dev/null") && !at.contains(&"dev/kvm"));
        assert!(cell.users.starts_with(b"1000 ") && cell.users.ends_with(b" 1\n"));
    }

    #[test]
    fn a_full_table_of_namespaces_is_not_a_full_disk() {
        let error = io::Error::from_raw_os_error(libc::ENOSPC);
        let fault = refused(&error, "making namespaces");
        assert_eq!(fault.code, "no_confinement");
        assert!(fault.message.contains("a limit of namespaces"), "{}", fault.message);
    }

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent_in(b"12 (a) b) c) S 345 6 7"), Some(345));
        assert_eq!(parent_in(b"12 (a) S 0 6 7"), Some(0));
        assert_eq!(parent_in(b"12 (a"), None);
        assert_eq!(parent_in(b"12 (a) S "), None);
    }
}
