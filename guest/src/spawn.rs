//! From an EXEC request to a running program and the agent's ends of its pipes.

use crate::errno;
use crate::protocol::{Malformed, Reader};
use crate::sys;
use crate::users::{self, User};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::io::AsRawFd;
use std::os::unix::net::UnixStream;

const STDIN_OPEN: u8 = 1;
const CONTROL: u8 = 2;
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub type Env = Vec<(String, String)>;

pub struct Request {
    flags: u8,
    pub timeout_ms: u64,
    pub tag: String,
    pub argv: Vec<String>,
    env: Env,
    cwd: String,
    user: String,
}

impl Request {
    pub fn read(payload: &[u8]) -> Result<Request, Malformed> {
        let mut reader = Reader::new(payload);
        let request = Request {
            flags: reader.u8()?,
            timeout_ms: reader.u64()?,
            tag: reader.str()?,
            argv: reader.list(|r| r.str())?,
            env: reader.map()?,
            cwd: reader.str()?,
            user: reader.str()?,
        };
        if request.argv.is_empty() {
            return Err(Malformed);
        }
        Ok(request)
    }
}

/// A started program and the agent's ends of its pipes, all non-blocking.
pub struct Spawned {
    pub pid: i32,
    pub stdin: Option<File>,
    pub stdout: File,
    pub stderr: File,
    pub control: Option<UnixStream>,
}

/// Why a program was not started: the code and the text of the ERROR frame.
pub struct Refusal {
    pub code: String,
    pub message: String,
}

fn refusal(what: &str, error: &io::Error) -> Refusal {
    Refusal {
        code: errno::name(error),
        message: format!("{}: {}", what, errno::text(error)),
    }
}

/// Starts the program; `shared` is the environment of the last RESYNC.
pub fn spawn(request: &Request, shared: &Env) -> Result<Spawned, Refusal> {
    let user = users::find(&request.user).map_err(|e| refusal("user", &e))?;
    let env = environment(&user, shared, &request.env);
    let path = look_up(&request.argv[0], &env).map_err(|e| refusal(&request.argv[0], &e))?;
    let pipes = || -> io::Result<_> { Ok((sys::pipe()?, sys::pipe()?)) };
    let ((stdout, stdout_child), (stderr, stderr_child)) = pipes().map_err(|e| refusal("pipe", &e))?;

    let (stdin_child, stdin) = if request.flags & STDIN_OPEN != 0 {
        let (read, write) = sys::pipe().map_err(|e| refusal("pipe", &e))?;
        (File::from(read), Some(File::from(write)))
    } else {
        (File::open("/dev/null").map_err(|e| refusal("/dev/null", &e))?, None)
    };
    let control = if request.flags & CONTROL != 0 {
        Some(UnixStream::pair().map_err(|e| refusal("socketpair", &e))?)
    } else {
        None
    };
    let (control, control_child) = match control {
        Some((ours, theirs)) => (Some(ours), Some(theirs)),
        None => (None, None),
    };

    let mut fds = vec![
        stdin_child.as_raw_fd(),
        stdout_child.as_raw_fd(),
        stderr_child.as_raw_fd(),
    ];
    fds.extend(control_child.as_ref().map(|c| c.as_raw_fd()));
    let cwd = if request.cwd.is_empty() { "/" } else { &request.cwd };
    let launch = (|| -> io::Result<sys::Launch> {
        Ok(sys::Launch {
            path: CString::new(path)?,
            argv: c_strings(request.argv.iter().cloned())?,
            env: c_strings(env.iter().map(|(k, v)| format!("{}={}", k, v)))?,
            cwd: CString::new(cwd)?,
            uid: user.uid,
            gid: user.gid,
            groups: user.groups,
            fds,
        })
    })()
    .map_err(|e| refusal("exec", &e))?;

    let spawned = Spawned {
        stdin,
        stdout: File::from(stdout),
        stderr: File::from(stderr),
        control,
        pid: 0,
    };
    make_nonblocking(&spawned).map_err(|e| refusal("fcntl", &e))?;
    let pid = sys::launch(&launch).map_err(|(step, e)| {
        let what = match step {
            2 => cwd,
            3 => &request.argv[0],
            _ => sys::LAUNCH_STEPS.get(step).copied().unwrap_or("exec"),
        };
        refusal(what, &e)
    })?;
    Ok(Spawned { pid, ..spawned })
}

fn make_nonblocking(spawned: &Spawned) -> io::Result<()> {
    sys::set_nonblocking(&spawned.stdout)?;
    sys::set_nonblocking(&spawned.stderr)?;
    if let Some(stdin) = &spawned.stdin {
        sys::set_nonblocking(stdin)?;
    }
    if let Some(control) = &spawned.control {
        sys::set_nonblocking(control)?;
    }
    Ok(())
}

fn c_strings(strings: impl Iterator<Item = String>) -> io::Result<Vec<CString>> {
    Ok(strings.map(CString::new).collect::<Result<_, _>>()?)
}

/// The user's own variables, then the sandbox's, then the request's: later ones win.
fn environment(user: &User, shared: &Env, own: &Env) -> Env {
    let mut env: Env = [
        ("PATH", DEFAULT_PATH),
        ("HOME", user.home.as_str()),
        ("USER", user.name.as_str()),
        ("LOGNAME", user.name.as_str()),
    ]
    .iter()
    .map(|(k, v)| (k.to_string(), v.to_string()))
    .collect();
    for (key, value) in shared.iter().chain(own) {
        match env.iter_mut().find(|(known, _)| known == key) {
            Some(entry) => entry.1 = value.clone(),
            None => env.push((key.clone(), value.clone())),
        }
    }
    env
}

fn look_up(program: &str, env: &Env) -> io::Result<String> {
    if program.contains('/') {
        return Ok(program.to_string());
    }
    let path = env.iter().find(|(key, _)| key == "PATH");
    let mut denied = false;
    for folder in path.map_or("", |(_, value)| value.as_str()).split(':') {
        let candidate = format!("{}/{}", folder, program);
        match fs::metadata(&candidate) {
            Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => return Ok(candidate),
            Ok(found) => denied |= found.is_file(),
            Err(_) => {}
        }
    }
    Err(io::Error::from_raw_os_error(if denied && !program.is_empty() {
        libc::EACCES
    } else {
        libc::ENOENT
    }))
}
