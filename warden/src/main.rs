//! Parent of forkd's VMM processes: starts and reaps them, and does the memory work of branches.

mod capture;
mod crew;
mod delta;
mod fault;
mod image;
mod jobs;
mod maps;
mod recopy;
mod scan;
mod server;
mod sessions;
mod spawn;
mod sys;
mod unfinished;
mod wire;

fn main() {
    sys::settle();
    match server::Server::start().map(server::Server::run) {
        Ok(Ok(())) => {}
        Ok(Err(why)) => {
            eprintln!("forkd-warden: {why}");
            std::process::exit(1);
        }
        Err(error) => {
            eprintln!("forkd-warden: {error}");
            std::process::exit(1);
        }
    }
}
