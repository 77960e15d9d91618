//! Pseudo-terminals: the pair of ends, the size, and the end-of-input character.

use super::check;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd};

/// A new terminal that belongs to this user: the agent's end and the program's.
pub fn open_terminal(uid: u32) -> io::Result<(File, OwnedFd)> {
    let master = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open("/dev/ptmx")?;
    let unlock: libc::c_int = 0;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the first request reads one int; the second gives a new descriptor that is ours alone; fchown takes
    // integers, where a group of all ones leaves it as it is.
    unsafe {
        check(libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK as _, &unlock))?;
        let slave = OwnedFd::from_raw_fd(check(libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER as _, flags))?);
        check(libc::fchown(slave.as_raw_fd(), uid, libc::gid_t::MAX))?;
        Ok((master, slave))
    }
}

/// Sets the size of a terminal.
pub fn resize(master: &File, rows: u16, cols: u16) -> io::Result<()> {
    let size = libc::winsize {
        ws_row: rows,
        ws_col: cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the request reads one winsize.
    check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ as _, &size) }).map(|_| ())
}

/// The end-of-input character of a terminal, usually ^D; None if its programs have disabled it.
pub fn end_of_input(master: &File) -> Option<u8> {
    // SAFETY: termios is plain data for which zero is valid, and tcgetattr writes one of it.
    let settings = unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        check(libc::tcgetattr(master.as_raw_fd(), &mut settings)).ok()?;
        settings
    };
    Some(settings.c_cc[libc::VEOF]).filter(|byte| *byte != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn is_a_pair_with_a_size_and_an_end_of_input() {
        // SAFETY: getuid takes nothing and cannot fail.
        let (mut master, slave) = open_terminal(unsafe { libc::getuid() }).unwrap();
        let mut slave = File::from(slave);
        assert_eq!(end_of_input(&master), Some(4));
        resize(&master, 33, 101).unwrap();
        // SAFETY: winsize is plain data for which zero is valid, and the request writes one of it.
        let size = unsafe {
            let mut size: libc::winsize = std::mem::zeroed();
            assert_eq!(libc::ioctl(slave.as_raw_fd(), libc::TIOCGWINSZ as _, &mut size), 0);
            size
        };
        assert_eq!((size.ws_row, size.ws_col), (33, 101));

        master.write_all(b"line\n\x04").unwrap();
        let mut line = [0; 16];
        assert_eq!(slave.read(&mut line).unwrap(), 5);
        assert_eq!(slave.read(&mut line).unwrap(), 0);

        slave.write_all(b"out").unwrap();
        drop(slave);
        let mut output = Vec::new();
        // the echo, the output, and then an error that marks the end
        let error = master.read_to_end(&mut output).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        assert_eq!(output, b"line\r\nout");
    }
}
