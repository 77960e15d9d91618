//! Namespaces of a VMM: the part of the host that it sees, and the steps between clone and exec that set it up.

use crate::error::{Context, Error, Outcome};
use crate::filter::Kind;
use forkd_wire::Reader;
use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::io;
use std::os::raw::{c_char, c_int, c_ulong};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// All belong to the new user namespace, so an ordinary user may make them
pub const NAMESPACES: c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWNET;

/// User and group of a VMM inside its namespace. Any number would do: the bounding set is empty before exec, so no user
/// has a capability
pub const INSIDE_ID: u32 = 1000;
/// Folders of programs and libraries; each is shown as it is on the host, a folder or a link
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Without it the loader searches all library folders
const LOADER_CACHE: &str = "/etc/ld.so.cache";
const DEVICES: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/urandom"];
/// The new root contains only folders, links and mount points; it is made read-only after that
const ROOT_OPTIONS: &[u8] = b"size=1m,nr_inodes=4096,mode=700\0";
pub const MAX_CAPABILITY: c_ulong = 63;

const SHOWN: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
const OWN: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;
const DEVICE: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;

/// The confinement that a client requests
pub struct Confinement {
    /// Folders and files that the VMM may write
    writable: Vec<PathBuf>,
    /// Folders and files that the VMM may read, besides the system's
    readable: Vec<PathBuf>,
    /// Files that the VMM may read, and the paths at which it sees them
    placed: Vec<(PathBuf, PathBuf)>,
    /// Devices besides those that are always present
    devices: Vec<PathBuf>,
    /// The longest file that the VMM may write
    pub file_bytes: u64,
    pub filter: Kind,
    /// User and group inside the namespace
    pub ids: (u32, u32),
}

impl Confinement {
    pub fn read(reader: &mut Reader) -> Outcome<Confinement> {
        Ok(Confinement {
            writable: reader.list(plain_path)?,
            readable: reader.list(plain_path)?,
            placed: reader.list(|reader| -> Outcome<_> { Ok((plain_path(reader)?, plain_path(reader)?)) })?,
            devices: reader.list(plain_path)?,
            file_bytes: reader.u64()?,
            filter: Kind::read(reader)?,
            ids: (INSIDE_ID, INSIDE_ID),
        })
    }

    /// For a program that needs no device
    pub fn of(readable: Vec<PathBuf>, writable: Vec<PathBuf>, file_bytes: u64) -> Outcome<Confinement> {
        for path in readable.iter().chain(&writable) {
            check_plain(path)?;
        }
        Ok(Confinement {
            writable,
            readable,
            placed: Vec::new(),
            devices: Vec::new(),
            file_bytes,
            filter: Kind::Denying,
            ids: (INSIDE_ID, INSIDE_ID),
        })
    }

    /// Prepares everything that the child needs, because the child shares the warden's memory and must not allocate.
    /// The new root is mounted on `base`, a folder of the VM.
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
        // shorter paths first: a folder inside another one must be mounted after it
        rest.sort_by_key(|(path, _)| path.components().count());
        for (path, attributes) in rest {
            layout.show(path, attributes)?;
        }
        for (path, at) in &self.placed {
            layout.place(path, at, SHOWN)?;
        }
        // SAFETY: reads this process's user and group.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let map = |inside: u32, outside: u32| format!("{inside} {outside} 1\n").into_bytes();
        Ok(Cell {
            base: base.to_owned(),
            users: map(self.ids.0, uid),
            groups: map(self.ids.1, gid),
            makes: layout.makes,
            mounts: layout.mounts,
        })
    }
}

/// An absolute path without `.` and `..`: a path with `..` could leave the new root
fn plain_path(reader: &mut Reader) -> Outcome<PathBuf> {
    let path = reader.path()?;
    check_plain(&path)?;
    Ok(path)
}

fn check_plain(path: &Path) -> Outcome<()> {
    let mut parts = path.components();
    let plain = parts.next() == Some(Component::RootDir) && parts.all(|part| matches!(part, Component::Normal(_)));
    if !plain || path == Path::new("/") {
        return Err(Error::new("EINVAL", format!("{} is no plain path", path.display())));
    }
    Ok(())
}

/// Made in the new root, with paths relative to it
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
    /// The child's descriptor of the mount until it is moved
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

    /// Shows a path at the same path inside
    fn show(&mut self, path: &Path, attributes: u64) -> Outcome<()> {
        self.place(path, path, attributes)
    }

    fn place(&mut self, path: &Path, at: &Path, attributes: u64) -> Outcome<()> {
        let is_folder = fs::metadata(path).during(|| path.display())?.is_dir();
        self.folder(at.parent().unwrap_or_else(|| Path::new("/")));
        if is_folder {
            self.folder(at);
        } else {
            self.makes.push(Make::File(inside(at)));
        }
        self.mounts.push(Mount {
            from: c_string(path.as_os_str()),
            at: inside(at),
            attributes,
            tree: -1,
        });
        Ok(())
    }

    /// The folder and all folders above it
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
    // paths from the protocol or from the kernel contain no NUL
    CString::new(text.as_bytes()).unwrap_or_default()
}

/// The subject of a failed step, for the error message
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The host does not allow the step
    Host(&'static str),
    /// A requested path cannot be shown
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
    /// The path of a `Trouble::Path`
    pub fn path(&self, index: usize) -> String {
        self.mounts[index].from.to_string_lossy().into_owned()
    }

    /// Maps the user and group of this process in its new namespaces.
    ///
    /// # Safety
    /// To be called in a child of vfork that has `NAMESPACES`.
    pub unsafe fn settle(&self) -> Result<(), Trouble> {
        // without this an ordinary user may not map a group
        put(b"/proc/self/setgroups\0", b"deny").ok_or(Trouble::Host("/proc/self/setgroups"))?;
        put(b"/proc/self/uid_map\0", &self.users).ok_or(Trouble::Host("/proc/self/uid_map"))?;
        put(b"/proc/self/gid_map\0", &self.groups).ok_or(Trouble::Host("/proc/self/gid_map"))?;
        // confinement does not depend on the host name, so a service manager may forbid this
        libc::sethostname(b"vmm".as_ptr().cast(), 3);
        Ok(())
    }

    /// Replaces the root: after this only the files of the layout are visible.
    ///
    /// # Safety
    /// To be called in a child of vfork, after `settle`.
    pub unsafe fn enter(&mut self) -> Result<(), Trouble> {
        // opened before the new root is mounted, because that covers a folder of the host
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
        // set before the mounts are moved in, each of which has its own attributes
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
        // pivot_root(".", ".") stacks the old root on the new one, where it is unmounted, so it needs no folder
        check(libc::syscall(libc::SYS_pivot_root, here, here))
            .and_then(|_| check(libc::umount2(here.cast(), libc::MNT_DETACH).into()))
            .ok_or(Trouble::Host("leaving the old root"))
    }
}

impl Make {
    /// EEXIST is no failure: the folder may have been made for another path. A missing mount point is found when
    /// something is mounted on it.
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

/// Drops all capabilities, including those that a file could give.
///
/// # Safety
/// To be called in a child of vfork that is the only process of its user namespace.
pub unsafe fn drop_capabilities() {
    for capability in 0..=MAX_CAPABILITY {
        if libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 {
            return;
        }
    }
}

/// Recursive and private: later mounts of the host do not appear inside
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

/// Writes a short file in one call; None with errno set.
///
/// # Safety
/// To be called in a child of vfork; the path ends with a NUL.
pub unsafe fn put(path: &[u8], text: &[u8]) -> Option<()> {
    let file = libc::open(path.as_ptr().cast(), libc::O_WRONLY | libc::O_CLOEXEC);
    if file < 0 {
        return None;
    }
    let written = libc::write(file, text.as_ptr().cast(), text.len());
    // close does not change errno, which has the cause
    libc::close(file);
    (written == text.len() as isize).then_some(())
}

fn check(result: i64) -> Option<()> {
    (result >= 0).then_some(())
}

/// Whether this process still has the given parent, read from the host's /proc: in a pid namespace getppid() returns 0.
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

/// `pid (name) state parent …`; the name may contain any bytes
fn parent_in(stat: &[u8]) -> Option<i32> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = stat.get(name_end + 4..)?;
    let end = rest.iter().position(|byte| *byte == b' ')?;
    std::str::from_utf8(&rest[..end]).ok()?.parse().ok()
}

/// The path exists and cannot be shown: mounts are forbidden, or the kernel does not have the call, or only root can
/// reach the path, and root's rights end at the new namespace
pub fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS))
}

/// The error for a host that does not allow confinement
pub fn refused(error: &io::Error, what: &str) -> Error {
    // the kernel's own text for ENOSPC is "No space left on device", which misleads here
    let why = match error.raw_os_error() {
        Some(libc::ENOSPC) => "a limit of namespaces is reached (/proc/sys/user)".to_string(),
        _ => error.to_string(),
    };
    Error::new("no_confinement", format!("{what}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkd_wire::Writer;

    fn path_from(text: &str) -> Outcome<PathBuf> {
        plain_path(&mut Reader::new(&Writer::default().str(text).0))
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
    fn only_plain_paths_are_accepted() {
        assert_eq!(path_from("/a/b").unwrap(), PathBuf::from("/a/b"));
        for wrong in ["a/b", "/", "/a/../b", "/..", "", "."] {
            assert_eq!(path_from(wrong).unwrap_err().code, "EINVAL", "{wrong}");
        }
    }

    #[test]
    fn every_folder_is_created_once_and_before_its_content() {
        let mut layout = Layout::default();
        layout.show(Path::new("/dev/null"), DEVICE).unwrap();
        layout.show(Path::new("/dev/zero"), DEVICE).unwrap();
        layout.show(Path::new("/proc/self"), SHOWN).unwrap();
        assert_eq!(names(&layout), ["dev/", "dev/null", "dev/zero", "proc/", "proc/self/"]);
        assert_eq!(layout.show(Path::new("/no/such"), SHOWN).unwrap_err().code, "ENOENT");
    }

    #[test]
    fn a_mount_inside_another_is_made_after_it() {
        let list = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        let confinement = Confinement {
            writable: list(&["/proc/self/fd"]),
            readable: list(&["/proc/self/fdinfo", "/proc"]),
            placed: vec![(PathBuf::from("/proc/version"), PathBuf::from("/own/version"))],
            devices: Vec::new(),
            file_bytes: 0,
            filter: Kind::Denying,
            ids: (1000, 1000),
        };
        let cell = confinement.prepare(&CString::new("/tmp").unwrap()).unwrap();
        let at: Vec<_> = cell.mounts.iter().map(|mount| mount.at.to_str().unwrap()).collect();
        let own = at.iter().rposition(|path| path.starts_with("proc")).unwrap() + 1;
        assert_eq!(at[own..], ["own/version"]);
        assert_eq!(at[own - 3..own], ["proc", "proc/self/fdinfo", "proc/self/fd"]);
        assert_eq!(cell.mounts[own - 1].attributes & libc::MOUNT_ATTR_RDONLY, 0);
        assert_eq!(cell.mounts[own].from.to_str().unwrap(), "/proc/version");
        assert!(at.contains(&"usr") && at.contains(&"dev/null") && !at.contains(&"dev/kvm"));
        assert!(cell.users.starts_with(b"1000 ") && cell.users.ends_with(b" 1\n"));
    }

    #[test]
    fn a_full_table_of_namespaces_is_not_a_full_disk() {
        let error = io::Error::from_raw_os_error(libc::ENOSPC);
        let refusal = refused(&error, "making namespaces");
        assert_eq!(refusal.code, "no_confinement");
        assert!(refusal.message.contains("a limit of namespaces"), "{}", refusal.message);
    }

    #[test]
    fn the_parent_is_found_after_any_name() {
        assert_eq!(parent_in(b"12 (a) b) c) S 345 6 7"), Some(345));
        assert_eq!(parent_in(b"12 (a) S 0 6 7"), Some(0));
        assert_eq!(parent_in(b"12 (a"), None);
        assert_eq!(parent_in(b"12 (a) S "), None);
    }
}
