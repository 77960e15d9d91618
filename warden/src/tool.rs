//! `forkd-warden --confine`: runs a program of the host that reads untrusted data, confined as a VMM is. The program
//! has the standard input and output of the warden process.

use crate::confine::Confinement;
use crate::error::{Error, Outcome};
use crate::spawn::{self, Limits, Spec};
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

/// The exit code when the program was not started; none of the programs ends with it
const NOT_STARTED: i32 = 125;
/// The program's working folder, and the mount point for the new root, so it must exist outside and inside
const PLACE: &str = "/usr";
/// The program's environment; the caller's may contain secrets
const ENVIRONMENT: [&str; 3] = ["PATH=/usr/bin:/bin", "LC_ALL=C", "HOME=/"];

/// `[--env K=V | --read PATH | --write PATH | --uid N | --gid N | --file-bytes N | --memory-bytes N | --seconds N]… --
/// PROGRAM ARGS…` Returns only if the arguments are wrong; otherwise this process exits with the program's code.
pub fn run(arguments: &[OsString]) -> Result<(), String> {
    let spec = parse(arguments).map_err(|error| error.message)?;
    // SAFETY: changes this process only. If the daemon is killed, the program must end: it writes into the daemon's
    // store.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let code = match spawn::spawn(&spec) {
        Ok(started) => wait(started.pid),
        Err(error) => {
            crate::sys::complain(format!("cannot confine it: {}", error.message));
            NOT_STARTED
        }
    };
    std::process::exit(code);
}

fn parse(arguments: &[OsString]) -> Outcome<Spec> {
    let mut env = ENVIRONMENT
        .iter()
        .map(|text| c_string(text.as_bytes()))
        .collect::<Outcome<Vec<_>>>()?;
    let (mut readable, mut writable) = (Vec::new(), Vec::new());
    let mut limits = Limits::default();
    let mut file_bytes = 0;
    let (mut uid, mut gid) = (None, None);
    let mut rest = arguments.iter();
    loop {
        let option = rest.next().and_then(|word| word.to_str()).unwrap_or("");
        if option == "--" {
            break;
        }
        let value = rest.next().ok_or_else(|| invalid(option))?;
        match option {
            "--env" => env.push(c_string(value.as_bytes())?),
            "--read" => readable.push(PathBuf::from(value)),
            "--write" => writable.push(PathBuf::from(value)),
            "--uid" => uid = Some(number(value)?),
            "--gid" => gid = Some(number(value)?),
            "--file-bytes" => file_bytes = number(value)?,
            "--memory-bytes" => limits.memory_bytes = Some(number(value)?),
            "--seconds" => limits.seconds = Some(number(value)?),
            _ => return Err(invalid(option)),
        }
    }
    let argv = rest
        .map(|word| c_string(word.as_bytes()))
        .collect::<Outcome<Vec<_>>>()?;
    let mut confinement = Confinement::of(readable, writable, file_bytes)?;
    let (user, group) = confinement.ids;
    confinement.ids = (uid.unwrap_or(user), gid.unwrap_or(group));
    Spec::tool(argv, env, c_string(PLACE.as_bytes())?, confinement, limits)
}

fn number<N: FromStr>(text: &OsString) -> Outcome<N> {
    let parsed = text.to_str().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| Error::new("EINVAL", format!("{} is no number", text.to_string_lossy())))
}

fn c_string(bytes: &[u8]) -> Outcome<CString> {
    CString::new(bytes).map_err(|_| Error::new("EINVAL", "an argument holds a NUL"))
}

fn invalid(option: &str) -> Error {
    Error::new("EINVAL", format!("--confine does not know {option:?}"))
}

fn wait(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: waits for a child of this process.
    while unsafe { libc::waitpid(pid, &mut status, 0) } != pid {}
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(parse(&words(
            "--read /a --write /b --file-bytes 5 --seconds 9 -- /usr/bin/xz -d"
        ))
        .is_ok());
        for wrong in [
            "",
            "--",
            "-- xz",
            "--read",
            "--read a -- /x",
            "--read /a/../b -- /x",
            "--what 1 -- /x",
            "--seconds x -- /x",
        ] {
            assert_eq!(
                parse(&words(wrong)).err().map(|error| error.code).as_deref(),
                Some("EINVAL"),
                "{wrong}"
            );
        }
    }
}
