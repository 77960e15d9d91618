//! Credit of input over several streams, and the end of a terminal's output.

use super::*;
use crate::protocol::channel;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Accepts as much as it is allowed, then blocks.
struct Pipe(usize);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = bytes.len().min(self.0);
        self.0 -= count;
        if count == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn stdin_never_adds_up_over_streams() {
    let mut input = Input::default();
    let mut outbox = Outbox::default();
    assert_eq!(input.resume(), WINDOW);
    assert!(input.accept(&vec![0; WINDOW - 10], None::<&mut Pipe>));
    assert!(!input.accept(&[0; 11], None::<&mut Pipe>), "beyond its credit");
    // a second stream gets the remaining credit, and all of it back when the process has read
    assert_eq!(input.resume(), 10);
    assert!(input.accept(&[0; 10], None::<&mut Pipe>));
    assert_eq!(input.resume(), 0);
    assert!(!input.accept(&[0], None::<&mut Pipe>));
    assert!(input.flush(Some(&mut Pipe(CREDIT_STEP))));
    input.give_credit(Some(1), channel::STDIN, &mut outbox);
    assert!(input.accept(&vec![0; CREDIT_STEP], None::<&mut Pipe>));
    assert!(!input.accept(&[0], None::<&mut Pipe>));
    assert_eq!(input.queue.len(), WINDOW);
}

#[test]
fn input_after_the_end_is_dropped_and_its_credit_given_back() {
    let mut input = Input::default();
    let mut outbox = Outbox::default();
    input.resume();
    input.closing = true;
    for _ in 0..10 {
        assert!(input.accept(&vec![0; CREDIT_STEP], None::<&mut Pipe>));
        input.give_credit(Some(1), channel::STDIN, &mut outbox);
    }
    assert!(input.queue.is_empty());
    assert!(!outbox.is_empty());
}

#[test]
fn a_terminal_is_read_until_it_is_empty() {
    let own = fs::metadata("/proc/self").unwrap().uid();
    let (master, slave) = sys::open_terminal(own).unwrap();
    sys::set_nonblocking(&master).unwrap();
    let mut program = File::from(slave);
    let mut output = Output::new(channel::STDOUT, Some(master));
    let mut scratch = vec![0; 65536];
    let text = vec![b'x'; 3000];
    program.write_all(&text).unwrap();
    // another process still has the terminal open: finish must not wait for it
    output.finish(true);
    while output.pipe.is_some() {
        output.read(None, &mut Outbox::default(), &mut scratch);
    }
    assert_eq!(output.ring.end(), 3000);
}

#[test]
fn a_pipe_is_read_up_to_its_content_at_the_end() {
    let (read, write) = sys::pipe().unwrap();
    let read = File::from(read);
    sys::set_nonblocking(&read).unwrap();
    let mut program = File::from(write);
    let mut output = Output::new(channel::STDOUT, Some(read));
    program.write_all(b"before").unwrap();
    output.finish(false);
    program.write_all(b"after").unwrap();
    let mut scratch = vec![0; 65536];
    while output.pipe.is_some() {
        output.read(None, &mut Outbox::default(), &mut scratch);
    }
    assert_eq!(output.ring.end(), 6);
}
