//! Power-off, regular or after a failure.

use crate::outbox::Outbox;
use crate::port::Port;
use crate::sys;
use std::thread;
use std::time::Duration;

const STEP: Duration = Duration::from_millis(10);
const ANSWER_STEPS: u32 = 50;
const TERM_STEPS: u32 = 30;

/// Sends queued frames, ends all processes, syncs and powers off.
pub fn power_off(outbox: &mut Outbox, port: &mut Port) -> ! {
    for _ in 0..ANSWER_STEPS {
        if outbox.write_to(port).is_err() || outbox.is_empty() {
            break;
        }
        thread::sleep(STEP);
    }
    sys::sync();
    // fails if there are no processes
    let _ = sys::kill(-1, libc::SIGTERM);
    for _ in 0..TERM_STEPS {
        // every program is a descendant of PID 1, so without children there are none
        if !sys::has_children() {
            break;
        }
        thread::sleep(STEP);
    }
    let _ = sys::kill(-1, libc::SIGKILL);
    sys::sync();
    sys::power_off()
}

/// Prints on the console why the machine cannot continue, and powers off.
pub fn fatal(what: &str) -> ! {
    eprintln!("forkd-agent: FATAL: {}", what);
    sys::sync();
    sys::power_off()
}
