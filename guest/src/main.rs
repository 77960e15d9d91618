//! forkd-agent: PID 1 of every guest. The contract with the host is spec/agent-protocol.md.

mod agent;
mod aside;
mod boot;
mod channels;
mod errno;
mod failure;
mod files;
mod fuse;
mod generators;
mod listeners;
mod network;
mod outbox;
mod port;
mod process;
mod protocol;
mod resync;
mod ring;
#[cfg(test)]
mod scratch;
mod share;
mod shares;
mod shutdown;
mod socket;
mod spawn;
mod starting;
mod sys;
mod table;
mod tools;
mod users;

fn main() {
    if std::process::id() != 1 {
        eprintln!("forkd-agent: runs only as the first process of a guest");
        std::process::exit(2);
    }
    // a panic of PID 1 would leave a guest kernel that has panicked too, or hangs
    std::panic::set_hook(Box::new(|panic| shutdown::fatal(&panic.to_string())));
    sys::set_umask(0o022);
    sys::raise_file_limit();
    let options = match boot::boot() {
        Ok(options) => options,
        Err(boot::Fatal(why)) => shutdown::fatal(&why),
    };
    let result = agent::Agent::new().and_then(|mut agent| agent.run(&options.key));
    match result {
        Ok(()) => shutdown::fatal("agent: the loop ended"),
        Err(e) => shutdown::fatal(&format!("agent: {}", e)),
    }
}
