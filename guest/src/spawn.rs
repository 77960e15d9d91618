//! From an EXEC request to a running program and the agent's ends of its pipes.

use crate::sys;
use crate::users::{self, User};
use forkd_wire::errno;
use forkd_wire::{Malformed, Reader};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::io::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

const STDIN_OPEN: u8 = 1;
const CONTROL: u8 = 2;
const TERMINAL: u8 = 4;
const EPHEMERAL: u8 = 8;
const KNOWN_FLAGS: u8 = STDIN_OPEN | CONTROL | TERMINAL | EPHEMERAL;
/// A list must fit every process into one frame.
const LONGEST_TAG: usize = 256;
const DEFAULT_TERM: &str = "xterm-256color";
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub type Env = Vec<(String, String)>;

#[derive(Default)]
pub struct Request {
    flags: u8,
    pub timeout_ms: u64,
    pub tag: String,
    pub argv: Vec<String>,
    env: Env,
    pub cwd: String,
    user: String,
    /// Rows and columns of its terminal.
    terminal: Option<(u16, u16)>,
}

impl Request {
    pub fn read(payload: &[u8]) -> Result<Request, Malformed> {
        let mut reader = Reader::new(payload);
        let mut request = Request {
            flags: reader.u8()?,
            timeout_ms: reader.u64()?,
            tag: reader.str()?,
            argv: reader.list(|r| r.str())?,
            env: reader.map()?,
            cwd: reader.str()?,
            user: reader.str()?,
            terminal: None,
        };
        if request.flags & TERMINAL != 0 {
            request.terminal = Some((reader.u16()?, reader.u16()?));
        }
        if request.cwd.is_empty() {
            request.cwd.push('/');
        }
        let exclusive = TERMINAL | CONTROL;
        let is_known = request.flags & !KNOWN_FLAGS == 0 && request.flags & exclusive != exclusive;
        if request.argv.is_empty() || request.tag.len() > LONGEST_TAG || !is_known {
            return Err(Malformed);
        }
        Ok(request)
    }

    pub fn is_ephemeral(&self) -> bool {
        self.flags & EPHEMERAL != 0
    }
}

/// A started program.
pub struct Spawned {
    pub pid: i32,
    pub user: String,
    pub ends: Ends,
}

/// The agent's ends of a program's pipes or terminal, all non-blocking.
pub struct Ends {
    pub stdin: Option<File>,
    pub stdout: File,
    /// A terminal has no separate stderr.
    pub stderr: Option<File>,
    pub control: Option<UnixStream>,
    pub terminal: bool,
}

/// Code and text of the ERROR frame for a program that was not started.
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
    let env = environment(&user, shared, request);
    let path = look_up(&request.argv[0], &env).map_err(|e| refusal(&request.argv[0], &e))?;
    let (ends, childs) = match request.terminal {
        Some(size) => terminal(&user, size).map_err(|e| refusal("terminal", &e))?,
        None => pipes(request.flags).map_err(|e| refusal("pipe", &e))?,
    };
    let launch = (|| -> io::Result<sys::Launch> {
        Ok(sys::Launch {
            path: CString::new(path)?,
            argv: c_strings(request.argv.iter().cloned())?,
            env: c_strings(env.iter().map(|(k, v)| format!("{}={}", k, v)))?,
            cwd: CString::new(request.cwd.as_str())?,
            uid: user.uid,
            gid: user.gid,
            groups: user.groups,
            fds: childs.iter().map(|fd| fd.as_raw_fd()).collect(),
            terminal: ends.terminal,
        })
    })()
    .map_err(|e| refusal("exec", &e))?;
    let pid = sys::launch(&launch).map_err(|(step, e)| {
        let what = match step {
            2 => &request.cwd,
            3 => &request.argv[0],
            _ => sys::LAUNCH_STEPS.get(step).copied().unwrap_or("exec"),
        };
        refusal(what, &e)
    })?;
    let user = user.name;
    Ok(Spawned { pid, user, ends })
}

/// The agent's ends, and the child's descriptors from 0 on.
fn pipes(flags: u8) -> io::Result<(Ends, Vec<OwnedFd>)> {
    let (stdin_child, stdin) = if flags & STDIN_OPEN != 0 {
        let (read, write) = sys::pipe()?;
        (read, Some(File::from(write)))
    } else {
        (OwnedFd::from(File::open("/dev/null")?), None)
    };
    let ((stdout, stdout_child), (stderr, stderr_child)) = (sys::pipe()?, sys::pipe()?);
    let mut childs = vec![stdin_child, stdout_child, stderr_child];
    let mut control = None;
    if flags & CONTROL != 0 {
        let (ours, theirs) = UnixStream::pair()?;
        sys::set_nonblocking(&ours)?;
        childs.push(theirs.into());
        control = Some(ours);
    }
    let ends = Ends {
        stdin,
        stdout: File::from(stdout),
        stderr: Some(File::from(stderr)),
        control,
        terminal: false,
    };
    for end in [ends.stdin.as_ref(), Some(&ends.stdout), ends.stderr.as_ref()] {
        end.map_or(Ok(()), sys::set_nonblocking)?;
    }
    Ok((ends, childs))
}

/// The same with a terminal that belongs to the user.
fn terminal(user: &User, (rows, cols): (u16, u16)) -> io::Result<(Ends, Vec<OwnedFd>)> {
    let (master, slave) = sys::open_terminal(user.uid)?;
    sys::set_nonblocking(&master)?;
    sys::resize(&master, rows, cols)?;
    let childs = vec![slave.try_clone()?, slave.try_clone()?, slave];
    let ends = Ends {
        stdin: Some(master.try_clone()?),
        stdout: master,
        stderr: None,
        control: None,
        terminal: true,
    };
    Ok((ends, childs))
}

fn c_strings(strings: impl Iterator<Item = String>) -> io::Result<Vec<CString>> {
    Ok(strings.map(CString::new).collect::<Result<_, _>>()?)
}

/// The user's variables, then the sandbox's, then the request's: later ones win.
fn environment(user: &User, shared: &Env, request: &Request) -> Env {
    let mut env: Env = [
        ("PATH", DEFAULT_PATH),
        ("HOME", user.home.as_str()),
        ("USER", user.name.as_str()),
        ("LOGNAME", user.name.as_str()),
    ]
    .iter()
    .map(|(k, v)| (k.to_string(), v.to_string()))
    .collect();
    if request.terminal.is_some() {
        env.push(("TERM".to_string(), DEFAULT_TERM.to_string()));
    }
    for (key, value) in shared.iter().chain(&request.env) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use forkd_wire::Writer;

    fn request(flags: u8, tag: &str, more: &[u8]) -> Result<Request, Malformed> {
        let payload = Writer::default().u8(flags).u64(0).str(tag).u32(1).str("sh");
        let mut payload = payload.u32(0).str("").str("").0;
        payload.extend_from_slice(more);
        Request::read(&payload)
    }

    #[test]
    fn reads_a_terminal_with_its_size_and_no_control_channel() {
        let found = request(TERMINAL | EPHEMERAL, "shell", &[24, 0, 80, 0]).unwrap();
        assert_eq!(found.terminal, Some((24, 80)));
        assert!(found.is_ephemeral());
        assert_eq!(found.cwd, "/");
        assert!(request(TERMINAL, "", &[24, 0, 80]).is_err());
        assert!(request(TERMINAL | CONTROL, "", &[24, 0, 80, 0]).is_err());
    }

    #[test]
    fn refuses_unknown_flags_and_endless_tags() {
        assert!(request(0, "", &[]).unwrap().terminal.is_none());
        assert!(request(16, "", &[]).is_err());
        assert!(request(0, &"t".repeat(LONGEST_TAG), &[]).is_ok());
        assert!(request(0, &"t".repeat(LONGEST_TAG + 1), &[]).is_err());
    }

    #[test]
    fn programs_at_a_terminal_get_its_type_by_default() {
        let user = users::find("").unwrap();
        let term = |env: &Env| {
            env.iter()
                .find(|(key, _)| key == "TERM")
                .map(|(_, value)| value.clone())
        };
        let pipes = request(0, "", &[]).unwrap();
        assert_eq!(term(&environment(&user, &Vec::new(), &pipes)), None);
        let terminal = request(TERMINAL, "", &[24, 0, 80, 0]).unwrap();
        assert_eq!(
            term(&environment(&user, &Vec::new(), &terminal)).as_deref(),
            Some(DEFAULT_TERM)
        );
        let shared = vec![("TERM".to_string(), "vt100".to_string())];
        assert_eq!(term(&environment(&user, &shared, &terminal)).as_deref(), Some("vt100"));
    }
}
