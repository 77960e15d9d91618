//! File operations that may take long: each tool runs in a child of the agent, as the requested user. It exits with 0,
//! or with 1 and `CODE\0message` on stderr.

mod attributes;
mod change;
mod copy;
mod folder;
mod list;
mod pack;
mod remove;
mod stage;
mod unpack;
mod usage;
mod walk;
mod watch;

use crate::failure::Failure;
use crate::files;
use crate::protocol::WINDOW;
use crate::spawn::{Ends, Spawned};
use crate::sys;
use crate::users::User;
use forkd_wire::errno;
use forkd_wire::Reader;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

pub struct Request {
    argv: Vec<OsString>,
    user: Option<User>,
}

impl Request {
    pub fn read(payload: &[u8]) -> Result<Request, Failure> {
        let mut reader = Reader::new(payload);
        let argv = reader.list(|r| r.bytes().map(|bytes| OsString::from_vec(bytes.to_vec())))?;
        let user = files::user(&mut reader)?;
        Ok(Request { argv, user })
    }
}

/// Starts a tool in a child.
pub fn start(request: &Request) -> io::Result<Spawned> {
    let (stdin_child, stdin) = sys::pipe()?;
    let (stdout, stdout_child) = sys::pipe()?;
    let (stderr, stderr_child) = sys::pipe()?;
    for end in [&stdin, &stdout] {
        sys::widen_pipe(end, WINDOW);
    }
    for end in [&stdin, &stdout, &stderr] {
        sys::set_nonblocking(end)?;
    }
    let pid = sys::fork_tool([stdin_child, stdout_child, stderr_child], || run(request))?;
    Ok(Spawned {
        pid,
        user: String::new(),
        ends: Ends {
            stdin: Some(File::from(stdin)),
            stdout: File::from(stdout),
            stderr: Some(File::from(stderr)),
            control: None,
            terminal: false,
        },
    })
}

/// The error of a failed tool.
pub struct Problem {
    code: String,
    message: String,
}

pub type Outcome = Result<(), Problem>;

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        Problem {
            code: errno::name(&error),
            message: errno::text(&error),
        }
    }
}

impl Problem {
    fn bad_request(message: &str) -> Problem {
        Problem {
            code: "bad_request".to_string(),
            message: message.to_string(),
        }
    }
}

/// An error at a path below another one.
fn problem_below(start: &Path, below: &[u8], error: &io::Error) -> Problem {
    let message = match below {
        b"" => errno::text(error),
        _ => format!(
            "{}: {}",
            start.join(OsStr::from_bytes(below)).display(),
            errno::text(error)
        ),
    };
    Problem {
        code: errno::name(error),
        message,
    }
}

/// Runs in the child.
fn run(request: &Request) -> i32 {
    let outcome = match &request.user {
        Some(user) => sys::become_user(user.uid, user.gid, &user.groups).map_err(Problem::from),
        None => Ok(()),
    };
    let argv: Vec<&OsStr> = request.argv.iter().map(OsString::as_os_str).collect();
    match outcome.and_then(|()| dispatch(&argv)) {
        Ok(()) => 0,
        Err(problem) => {
            // the agent may have closed the pipe
            let _ = write!(io::stderr(), "{}\0{}", problem.code, problem.message);
            1
        }
    }
}

fn dispatch(argv: &[&OsStr]) -> Outcome {
    let (tool, rest) = argv.split_first().ok_or_else(|| Problem::bad_request("no tool"))?;
    let flag = |name: &str| rest.iter().any(|argument| *argument == name);
    let path = |at: usize| {
        rest.get(at)
            .map(Path::new)
            .ok_or_else(|| Problem::bad_request("a path is missing"))
    };
    let text = |at: usize| rest.get(at).and_then(|argument| argument.to_str()).unwrap_or_default();
    match tool.to_str().unwrap_or_default() {
        "list" => list::list(
            path(0)?,
            number(text(1))?,
            number(text(2))?,
            rest.get(3).map(|at| at.as_bytes()),
            output(),
        ),
        "remove" => remove::remove(path(0)?),
        "copy" => copy::copy(path(0)?, path(1)?, flag("--recursive"), flag("--overwrite")),
        "move" => copy::move_across(path(0)?, path(1)?, flag("--overwrite")),
        "chmod" => change::chmod(path(0)?, u32::from_str_radix(text(1), 8).unwrap_or_default()),
        "chown" => change::chown(path(0)?, text(1), text(2)),
        "attributes" => attributes::get(text(0).as_bytes(), input(), output()),
        "set-attributes" => attributes::set(path(0)?, text(1).as_bytes(), input()),
        "pack" => pack::pack(path(0)?, flag("--plain"), output()),
        "unpack" => unpack::unpack(path(0)?, input(), output()),
        "usage" => usage::usage(path(0)?, output()),
        "watch" => {
            let how = watch::How {
                debounce_ms: number(text(1))?,
                recursive: flag("--recursive"),
                flushes: flag("--flush"),
            };
            watch::watch(path(0)?, &how, input(), output())
        }
        _ => Err(Problem::bad_request("there is no such tool")),
    }
}

fn number(text: &str) -> Result<u64, Problem> {
    text.parse().map_err(|_| Problem::bad_request("a number is missing"))
}

fn output() -> File {
    sys::standard_stream(1)
}

fn input() -> File {
    sys::standard_stream(0)
}

/// Long work calls this regularly: an error if the result is no longer needed.
fn check_stopped() -> io::Result<()> {
    match sys::is_stopped() {
        true => Err(io::Error::from_raw_os_error(libc::ECANCELED)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
