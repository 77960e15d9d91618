//! Names of system call errors, as the protocols report them.

use std::io;

/// The name of the error's errno; `EIO` for an error without one.
pub fn name(error: &io::Error) -> String {
    let number = match error.raw_os_error() {
        Some(number) => number,
        None => return kind_name(error.kind()).to_string(),
    };
    match NAMES.iter().find(|(known, _)| *known == number) {
        Some((_, name)) => (*name).to_string(),
        None => format!("E{}", number),
    }
}

/// The error's text without the number that std appends to it.
pub fn text(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}

// std reports some errors of its own without an errno
fn kind_name(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::InvalidInput => "EINVAL",
        io::ErrorKind::NotFound => "ENOENT",
        // a write that took no bytes
        io::ErrorKind::WriteZero => "ENOSPC",
        _ => "EIO",
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
    (libc::EMLINK, "EMLINK"),
    (libc::EPIPE, "EPIPE"),
    (libc::ENAMETOOLONG, "ENAMETOOLONG"),
    (libc::ENOSYS, "ENOSYS"),
    (libc::ENOTEMPTY, "ENOTEMPTY"),
    (libc::ELOOP, "ELOOP"),
    (libc::ENODATA, "ENODATA"),
    (libc::EOVERFLOW, "EOVERFLOW"),
    (libc::ELIBBAD, "ELIBBAD"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::EADDRNOTAVAIL, "EADDRNOTAVAIL"),
    (libc::ENETUNREACH, "ENETUNREACH"),
    (libc::ECONNABORTED, "ECONNABORTED"),
    (libc::ECONNRESET, "ECONNRESET"),
    (libc::ETIMEDOUT, "ETIMEDOUT"),
    (libc::ECONNREFUSED, "ECONNREFUSED"),
    (libc::EHOSTUNREACH, "EHOSTUNREACH"),
    (libc::ESTALE, "ESTALE"),
    (libc::EDQUOT, "EDQUOT"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_numbers_and_errors_of_std() {
        let of = |number| name(&io::Error::from_raw_os_error(number));
        assert_eq!((of(libc::ENOSPC).as_str(), of(4095).as_str()), ("ENOSPC", "E4095"));
        let without_number = |kind: io::ErrorKind| name(&kind.into());
        assert_eq!(without_number(io::ErrorKind::WriteZero), "ENOSPC");
        assert_eq!(without_number(io::ErrorKind::UnexpectedEof), "EIO");
    }

    #[test]
    fn a_text_has_no_number() {
        assert_eq!(
            text(&io::Error::from_raw_os_error(libc::ENOENT)),
            "No such file or directory"
        );
    }
}
