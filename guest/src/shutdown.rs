//! The end of the machine, in order or after a failure.

use crate::outbox::Outbox;
use crate::port::Port;
use crate::sys;
use std::thread;
use std::time::Duration;

const STEP: Duration = Duration::from_millis(10);
const ANSWER_STEPS: u32 = 50;
const TERM_STEPS: u32 = 30;

/// Sends what is queued, ends all processes, syncs and powers off.
pub fn power_off(outbox: &mut Outbox, port: &mut Port) -> ! {
    for _ in 0..ANSWER_STEPS {
        if outbox.write_to(port).is_err() || outbox.is_empty() {
            break;
        }
        thread::sleep(STEP);
    }
    sys::sync();
    // without processes the signals reach nobody
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

/// Says on the console why the machine cannot go on, and powers off.
pub fn fatal(what: &str) -> ! {
    eprintln!("forkd-agent: FATAL: {}", what);
    sys::sync();
    sys::power_off()
}
