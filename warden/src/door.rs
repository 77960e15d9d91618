//! The socket that clients come to, one warden's alone.

use crate::sys;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::io::{AsRawFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Another warden that starts here needs a few system calls
const LOCK_WITHIN: Duration = Duration::from_secs(5);
const LOCK_POLL: Duration = Duration::from_millis(5);
/// When there is no descriptor for a client
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct Door {
    path: PathBuf,
    listener: UnixListener,
    /// Device and number of the socket's file
    file: (u64, u64),
}

impl Door {
    /// Listens at the path, unless somebody does already.
    pub fn open(path: &Path) -> Result<Door, String> {
        let open = || -> io::Result<Door> {
            let _alone = lock_folder(path)?;
            clear(path)?;
            let listener = UnixListener::bind(path)?;
            fs::set_permissions(path, Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            let made = fs::symlink_metadata(path)?;
            Ok(Door {
                path: path.to_path_buf(),
                listener,
                file: (made.dev(), made.ino()),
            })
        };
        open().map_err(|error| format!("cannot listen at {}: {error}", path.display()))
    }

    /// The next client; None when nobody waits. Others' processes are turned away.
    pub fn admit(&self) -> Option<UnixStream> {
        match self.listener.accept().and_then(|(stream, _)| check(stream)) {
            Ok(stream) => Some(stream),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => {
                sys::complain(format!("a client is not served: {error}"));
                // most likely there is no descriptor left, and the client is still there in the next round
                thread::sleep(ACCEPT_PAUSE);
                None
            }
        }
    }

    /// Nobody finds it any more. Not so when it was taken away: the path may be another's now.
    pub fn remove(&self) {
        let found = fs::symlink_metadata(&self.path).map(|found| (found.dev(), found.ino()));
        if found.ok() == Some(self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl AsRawFd for Door {
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

/// Held while the path is looked at and taken. Without it, of two wardens that find a dead one's socket the slower could
/// remove the socket that the faster has just made, and the faster would go on where nobody finds it. The lock is on the
/// folder because that leaves no file behind and ends with the process. A path that is in use needs no lock to stay so:
/// nobody removes a socket that somebody listens at.
fn lock_folder(path: &Path) -> io::Result<File> {
    let folder = File::open(path.parent().unwrap_or_else(|| Path::new("/")))?;
    let deadline = Instant::now() + LOCK_WITHIN;
    loop {
        match sys::try_lock(&folder) {
            Ok(true) => return Ok(folder),
            Ok(false) if Instant::now() < deadline => thread::sleep(LOCK_POLL),
            Ok(false) => return Err(io::Error::new(ErrorKind::TimedOut, "its folder stays locked")),
            // a file system without locks on folders (NFS): the daemon has its own
            Err(_) => return Ok(folder),
        }
    }
}

/// Removes what a warden that was killed has left behind.
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
    // with a datagram socket: one that is listened at answers "wrong type" at once, and its client is not replaced by us
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

    /// A folder that goes in the end
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("forkd-door-{name}-{}", std::process::id()));
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
    fn a_dead_socket_is_replaced_and_a_live_one_is_not_disturbed() {
        let folder = Folder::new("socket");
        let path = folder.0.join("socket");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let door = Door::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(Door::open(&path).unwrap_err().contains("another warden"));
        assert!(door.admit().is_none(), "asking who is there is no client");
        let _client = UnixStream::connect(&path).unwrap();
        assert!(door.admit().is_some());
        door.remove();
        assert!(!path.exists());
    }

    #[test]
    fn what_is_not_its_own_stays() {
        let folder = Folder::new("others");
        let path = folder.0.join("file");
        fs::write(&path, "precious").unwrap();
        assert!(Door::open(&path).unwrap_err().contains("no socket"));
        fs::remove_file(&path).unwrap();
        let first = Door::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let second = Door::open(&path).unwrap();
        first.remove();
        assert!(path.exists());
        second.remove();
        assert!(!path.exists());
    }

    #[test]
    fn of_many_that_start_together_one_listens() {
        let folder = Folder::new("race");
        let path = folder.0.join("socket");
        for _ in 0..20 {
            drop(UnixListener::bind(&path).unwrap());
            let starters: Vec<_> = (0..8)
                .map(|_| path.clone())
                .map(|path| thread::spawn(move || Door::open(&path).ok()))
                .collect();
            let doors: Vec<_> = starters.into_iter().filter_map(|one| one.join().unwrap()).collect();
            assert_eq!(doors.len(), 1);
            doors[0].remove();
        }
    }
}
