//! Parent of forkd's VMM processes: starts and reaps them, and does the memory work of branches.
#![cfg_attr(feature = "fuzz", no_main, allow(dead_code))]

mod allowed;
mod calls;
mod capture;
mod children;
mod clone_spec;
mod common_pages;
mod confine;
mod delta;
mod descriptors;
mod error;
mod family;
mod fds;
mod filter;
mod frozen;
#[cfg(any(test, feature = "fuzz"))]
mod fuzz;
mod image;
mod inside;
mod jobs;
mod link;
mod listen;
mod maps;
mod page_map;
mod passing;
mod recopy;
mod scan;
mod script;
mod server;
mod sessions;
mod socket;
mod spawn;
mod stdio;
mod stray;
mod sys;
mod temp_files;
mod tool;
mod tracee;
mod trial;
mod watch;
mod wire;
mod workers;
mod zygote;

use listen::Patience;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

const USAGE: &str =
    "usage: forkd-warden [--listen PATH [--idle-ms N]] | --inside … | --limit … | --confine … | --try-clone, see spec/warden-protocol.md";

#[cfg(not(feature = "fuzz"))]
fn main() {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Err(why) = run(&arguments) {
        sys::complain(why);
        std::process::exit(1);
    }
}

fn run(arguments: &[OsString]) -> Result<(), String> {
    match arguments {
        // these three end with the process that started them
        [inside, rest @ ..] if inside == "--inside" => return inside::run(rest),
        [limit, rest @ ..] if limit == "--limit" => return watch::run(rest),
        [confine, rest @ ..] if confine == "--confine" => return tool::run(rest),
        [init] if init == "--init" => family::idle(),
        [trial] if trial == "--try-clone" => return trial::run(),
        [waiting] if waiting == trial::WAIT => trial::wait(),
        _ => sys::settle(),
    }
    match arguments {
        [] => stdio::serve(),
        [listen, path] if listen == "--listen" => listen::serve(Path::new(path), Patience::default()),
        [listen, path, idle, millis] if listen == "--listen" && idle == "--idle-ms" => {
            let millis = millis.to_str().and_then(|text| text.parse().ok()).ok_or(USAGE)?;
            let time = Duration::from_millis(millis);
            let patience = Patience {
                first_client: time,
                next_client: time,
            };
            listen::serve(Path::new(path), patience)
        }
        _ => Err(USAGE.to_string()),
    }
}
