//! The listening socket, owned by one warden.

use crate::sys;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::io::{AsRawFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Another warden that starts at this path holds the lock for a few system calls
const LOCK_WITHIN: Duration = Duration::from_secs(5);
const LOCK_POLL: Duration = Duration::from_millis(5);
/// Wait after accept failed for lack of descriptors
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct ListenSocket {
    path: PathBuf,
    listener: UnixListener,
    /// Device and inode of the socket's file
    file: (u64, u64),
}

impl ListenSocket {
    /// Listens at the path, unless another process does.
    pub fn open(path: &Path) -> Result<ListenSocket, String> {
        let open = || -> io::Result<ListenSocket> {
            let _alone = lock_folder(path)?;
            clear(path)?;
            let listener = UnixListener::bind(path)?;
            fs::set_permissions(path, Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            let made = fs::symlink_metadata(path)?;
            Ok(ListenSocket {
                path: path.to_path_buf(),
                listener,
                file: (made.dev(), made.ino()),
            })
        };
        open().map_err(|error| format!("cannot listen at {}: {error}", path.display()))
    }

    /// The next client; None if no connection waits. Connections of other users are refused.
    pub fn admit(&self) -> Option<UnixStream> {
        match self.listener.accept().and_then(|(stream, _)| check(stream)) {
            Ok(stream) => Some(stream),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => {
                sys::complain(format!("a client is not served: {error}"));
                // most likely no descriptor is free, and the connection is still waiting in the next round
                thread::sleep(ACCEPT_PAUSE);
                None
            }
        }
    }

    /// Removes the socket's file, unless another warden has replaced it.
    pub fn remove(&self) {
        let found = fs::symlink_metadata(&self.path).map(|found| (found.dev(), found.ino()));
        if found.ok() == Some(self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl AsRawFd for ListenSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }
}

fn check(stream: UnixStream) -> io::Result<UnixStream> {
    let uid = sys::peer_uid(&stream)?;
    if uid != 0 && uid != sys::own_uid() {
        return Err(io::Error::new(
            ErrorKind::PermissionDenied,
            format!("it is of user {uid}"),
        ));
    }
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// A lock held while the path is checked and taken. Without it, two wardens could find the socket of a dead one, and
/// the slower would remove the socket that the faster has just made, which would then be unreachable. The lock is on
/// the folder because that leaves no file behind and ends with the process. A socket in use needs no lock: no warden
/// removes a socket with a listener.
fn lock_folder(path: &Path) -> io::Result<File> {
    let folder = File::open(path.parent().unwrap_or_else(|| Path::new("/")))?;
    let deadline = Instant::now() + LOCK_WITHIN;
    loop {
        match sys::try_lock(&folder) {
            Ok(true) => return Ok(folder),
            Ok(false) if Instant::now() < deadline => thread::sleep(LOCK_POLL),
            Ok(false) => return Err(io::Error::new(ErrorKind::TimedOut, "its folder stays locked")),
            // a file system without locks on folders (NFS): the daemon has its own lock
            Err(_) => return Ok(folder),
        }
    }
}

/// Removes the socket of a warden that was killed.
fn clear(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {}
        Ok(_) => {
            return Err(io::Error::new(
                ErrorKind::AlreadyExists,
                "there is a file that is no socket",
            ))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    // with a datagram socket: a stream listener answers "wrong type" at once, and the warden there does not replace its
    // client by us
    match UnixDatagram::unbound()?.connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.raw_os_error() != Some(libc::EPROTOTYPE) => Err(error),
        _ => Err(io::Error::new(ErrorKind::AddrInUse, "another warden listens there")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is removed on drop
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("forkd-socket-{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_kept() {
        let folder = Folder::new("socket");
        let path = folder.0.join("socket");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let socket = ListenSocket::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(ListenSocket::open(&path).unwrap_err().contains("another warden"));
        assert!(socket.admit().is_none(), "asking who is there is no client");
        let _client = UnixStream::connect(&path).unwrap();
        assert!(socket.admit().is_some());
        socket.remove();
        assert!(!path.exists());
    }

    #[test]
    fn foreign_files_are_not_removed() {
        let folder = Folder::new("others");
        let path = folder.0.join("file");
        fs::write(&path, "precious").unwrap();
        assert!(ListenSocket::open(&path).unwrap_err().contains("no socket"));
        fs::remove_file(&path).unwrap();
        let first = ListenSocket::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let second = ListenSocket::open(&path).unwrap();
        first.remove();
        assert!(path.exists());
        second.remove();
        assert!(!path.exists());
    }

    #[test]
    fn one_of_many_concurrent_starts_listens() {
        let folder = Folder::new("race");
        let path = folder.0.join("socket");
        for _ in 0..20 {
            drop(UnixListener::bind(&path).unwrap());
            let starters: Vec<_> = (0..8)
                .map(|_| path.clone())
                .map(|path| thread::spawn(move || ListenSocket::open(&path).ok()))
                .collect();
            let sockets: Vec<_> = starters.into_iter().filter_map(|one| one.join().unwrap()).collect();
            assert_eq!(sockets.len(), 1);
            sockets[0].remove();
        }
    }
}
