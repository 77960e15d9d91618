//! Serves one client over stdin and stdout; the warden ends with it.

use crate::link::Link;
use crate::server::Server;
use crate::sys;
use crate::wire::Splitter;
use std::io::ErrorKind;

const READ_BYTES: usize = 64 * 1024;

/// Serves until stdin ends; then ends all children and removes all incomplete files. An error is a malformed stream.
pub fn serve() -> Result<(), String> {
    let mut server = Server::start().map_err(|error| error.to_string())?;
    server.welcome(Link::stdout());
    let result = read(&mut server);
    server.end_all();
    server.answer_end();
    result
}

fn read(server: &mut Server) -> Result<(), String> {
    let mut incoming = Splitter::default();
    let mut buffer = vec![0; READ_BYTES];
    while !server.end_is_asked() {
        let mut ready = [
            sys::watch(0, libc::POLLIN),
            sys::watch(server.child_events(), libc::POLLIN),
        ];
        sys::poll(&mut ready, None).map_err(|error| error.to_string())?;
        if ready[1].revents != 0 {
            server.reap();
        }
        if ready[0].revents == 0 {
            continue;
        }
        match sys::read_stdin(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => incoming.push(&buffer[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return Ok(()),
        }
        server.receive(&mut incoming)?;
    }
    Ok(())
}
