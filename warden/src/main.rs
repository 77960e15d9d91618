//! Parent of forkd's VMM processes: starts and reaps them, and does the memory work of branches.

mod capture;
mod children;
mod confine;
mod crew;
mod delta;
mod door;
mod fault;
mod filter;
mod image;
mod jobs;
mod link;
mod listen;
mod maps;
mod places;
mod recopy;
mod scan;
mod server;
mod sessions;
mod spawn;
mod stdio;
mod sys;
mod unfinished;
mod wire;

use listen::Patience;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

const USAGE: &str = "usage: forkd-warden [--listen PATH [--idle-ms N]]";

fn main() {
    sys::settle();
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Err(why) = run(&arguments) {
        sys::complain(why);
        std::process::exit(1);
    }
}

fn run(arguments: &[OsString]) -> Result<(), String> {
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
