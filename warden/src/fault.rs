//! What a failed operation answers: an errno name or a word, and a sentence.

use std::fmt::Display;
use std::io;

#[derive(Debug)]
pub struct Fault {
    pub code: String,
    pub message: String,
}

pub type Outcome<T> = Result<T, Fault>;

impl Fault {
    pub fn new(code: &str, message: impl Display) -> Fault {
        Fault {
            code: code.to_string(),
            message: message.to_string(),
        }
    }

    pub fn io(error: &io::Error, what: impl Display) -> Fault {
        Fault {
            code: errno_name(error),
            message: format!("{what}: {error}"),
        }
    }
}

/// Adds what was being done to an I/O error.
pub trait Context<T> {
    fn during<D: Display>(self, what: impl FnOnce() -> D) -> Outcome<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn during<D: Display>(self, what: impl FnOnce() -> D) -> Outcome<T> {
        self.map_err(|error| Fault::io(&error, what()))
    }
}

const NAMES: &[(i32, &str)] = &[
    (libc::EPERM, "EPERM"),
    (libc::ENOENT, "ENOENT"),
    (libc::ESRCH, "ESRCH"),
    (libc::EINTR, "EINTR"),
    (libc::EIO, "EIO"),
    (libc::ENXIO, "ENXIO"),
    (libc::E2BIG, "E2BIG"),
    (libc::ENOEXEC, "ENOEXEC"),
    (libc::EBADF, "EBADF"),
    (libc::ECHILD, "ECHILD"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::EACCES, "EACCES"),
    (libc::EFAULT, "EFAULT"),
    (libc::EBUSY, "EBUSY"),
    (libc::EEXIST, "EEXIST"),
    (libc::EXDEV, "EXDEV"),
    (libc::ENODEV, "ENODEV"),
    (libc::ENOTDIR, "ENOTDIR"),
    (libc::EISDIR, "EISDIR"),
    (libc::EINVAL, "EINVAL"),
    (libc::ENFILE, "ENFILE"),
    (libc::EMFILE, "EMFILE"),
    (libc::ENOTTY, "ENOTTY"),
    (libc::ETXTBSY, "ETXTBSY"),
    (libc::EFBIG, "EFBIG"),
    (libc::ENOSPC, "ENOSPC"),
    (libc::ESPIPE, "ESPIPE"),
    (libc::EROFS, "EROFS"),
    (libc::EPIPE, "EPIPE"),
    (libc::ENAMETOOLONG, "ENAMETOOLONG"),
    (libc::ENOSYS, "ENOSYS"),
    (libc::ELOOP, "ELOOP"),
    (libc::EOVERFLOW, "EOVERFLOW"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::ESTALE, "ESTALE"),
    (libc::EDQUOT, "EDQUOT"),
];

fn errno_name(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => NAMES
            .iter()
            .find(|(known, _)| *known == number)
            .map_or_else(|| format!("E{number}"), |(_, name)| (*name).to_string()),
        // std's own errors: a write that takes no more bytes, a read that ends early
        None => match error.kind() {
            io::ErrorKind::WriteZero => "ENOSPC".to_string(),
            _ => "EIO".to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_errors() {
        let name = |number| Fault::io(&io::Error::from_raw_os_error(number), "x").code;
        assert_eq!(name(libc::ENOSPC), "ENOSPC");
        assert_eq!(name(4095), "E4095");
    }
}
