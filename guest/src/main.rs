//! forkd-agent: PID 1 of every guest. The contract with the host is spec/agent-protocol.md.
#![cfg_attr(feature = "fuzz", no_main, allow(dead_code))]

mod agent;
mod boot;
mod channels;
mod child_task;
mod failure;
mod files;
mod fuse;
#[cfg(any(test, feature = "fuzz"))]
mod fuzz;
mod generators;
mod hold;
mod listeners;
mod metrics;
mod network;
mod openssl;
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

#[cfg(not(feature = "fuzz"))]
fn main() {
    if std::process::id() != 1 {
        eprintln!("forkd-agent: runs only as the first process of a guest");
        std::process::exit(2);
    }
    // a panic of PID 1 would panic the guest kernel, or hang it
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
