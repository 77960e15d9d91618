//! One process: its pipes, and the order of its output on the attached stream.

use crate::channels::{Input, Output, PIECE};
use crate::outbox::Outbox;
use crate::protocol::{channel, kind, WINDOW};
use crate::spawn::{Request, Spawned};
use crate::sys;
use forkd_wire::Writer;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::io::AsRawFd;
use std::os::unix::net::UnixStream;

/// The role of a process's descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Stdin,
    Stdout,
    Stderr,
    Control,
}

pub struct Process {
    pub id: u64,
    pub pid: i32,
    pub tag: String,
    pub argv: Vec<String>,
    pub cwd: String,
    pub user: String,
    /// Start by the wall clock at that time.
    pub started_ms: i64,
    pub terminal: bool,
    /// Ends with its stream.
    ephemeral: bool,
    pub stream: Option<u32>,
    /// Code and signal after its end.
    pub ended: Option<(i32, u32)>,
    pub timed_out: bool,
    /// A tool of the agent: it ends with its stream, and lists do not show it.
    pub is_tool: bool,
    pub deadline: Option<u64>,
    outputs: [Output; 2],
    stdin: Option<File>,
    stdin_queue: Input,
    /// Whether the attached stream knows that stdin is closed.
    stdin_eof_told: bool,
    /// Whether the input of the terminal ends within a line.
    line_unfinished: bool,
    control: Option<UnixStream>,
    control_queue: Input,
    control_readable: bool,
    control_credit: usize,
    /// Control bytes for the host, and how much of stdout and stderr must be sent before them.
    held: VecDeque<u8>,
    barrier: [u64; 2],
}

impl Process {
    pub fn new(id: u64, request: Request, spawned: Spawned) -> Process {
        let Spawned { pid, user, ends } = spawned;
        let mut stdin_queue = Input::default();
        stdin_queue.resume();
        Process {
            id,
            pid,
            ephemeral: request.is_ephemeral(),
            tag: request.tag,
            argv: request.argv,
            cwd: request.cwd,
            user,
            started_ms: sys::wall_clock_ns() / 1_000_000,
            terminal: ends.terminal,
            stream: None,
            ended: None,
            timed_out: false,
            is_tool: false,
            deadline: None,
            outputs: [
                Output::new(channel::STDOUT, Some(ends.stdout)),
                Output::new(channel::STDERR, ends.stderr),
            ],
            stdin: ends.stdin,
            stdin_queue,
            stdin_eof_told: false,
            line_unfinished: false,
            control_readable: ends.control.is_some(),
            control: ends.control,
            control_queue: Input::default(),
            control_credit: 0,
            held: VecDeque::new(),
            barrier: [0; 2],
        }
    }

    /// A tool that was started for a stream.
    pub fn tool(id: u64, spawned: Spawned) -> Process {
        let mut process = Process::new(id, Request::default(), spawned);
        process.is_tool = true;
        for output in &mut process.outputs {
            output.keeps = false;
        }
        process
    }

    /// The result of a tool is no longer needed: its pipes are closed and it gets SIGTERM, so that it cleans up and
    /// ends.
    pub fn abandon(&mut self) {
        for output in &mut self.outputs {
            output.pipe = None;
        }
        self.stdin = None;
        self.stdin_queue.flush(None::<&mut File>);
        if self.ended.is_none() {
            // it may have ended already
            let _ = sys::kill(self.pid, libc::SIGTERM);
        }
    }

    /// Attaches a stream; output begins at these offsets or the oldest kept. `u64::MAX`: new output only.
    pub fn attach(&mut self, stream: u32, from: [u64; 2], outbox: &mut Outbox) {
        self.stream = Some(stream);
        let mut started = Writer::default().u64(self.id).u32(self.pid as u32);
        for (output, from) in self.outputs.iter_mut().zip(from) {
            output.sent = from.max(output.ring.start()).min(output.ring.end());
            output.credit = WINDOW;
            started = started.u64(output.sent);
        }
        self.control_queue.attach();
        self.control_credit = WINDOW;
        outbox.frame(kind::STARTED, stream, &started.0);
    }

    /// Attaches another stream, which begins without credit for stdin and gets as much as the queue has room for.
    pub fn attach_again(&mut self, stream: u32, from: [u64; 2], outbox: &mut Outbox) {
        self.attach(stream, from, outbox);
        self.stdin_eof_told = false;
        match self.stdin_queue.resume() {
            0 => {}
            room => outbox.credit(stream, channel::STDIN, room),
        }
        self.tell_stdin_eof(outbox);
    }

    /// The stream has ended.
    pub fn detach(&mut self) {
        self.stream = None;
        if self.ephemeral && self.ended.is_none() {
            // the process group may have ended already
            let _ = sys::kill(-self.pid, libc::SIGKILL);
        }
    }

    /// Offsets behind the last bytes of stdout and stderr.
    pub fn output_ends(&self) -> [u64; 2] {
        [self.outputs[0].ring.end(), self.outputs[1].ring.end()]
    }

    pub fn takes_stdin(&self) -> bool {
        self.stdin.is_some() && !self.stdin_queue.closing
    }

    pub fn resize(&self, rows: u16, cols: u16) {
        if let (Some(stdin), true) = (&self.stdin, self.terminal) {
            // a terminal without an open program end has no size
            let _ = sys::resize(stdin, rows, cols);
        }
    }

    /// Whether the process has ended and the agent has all its output.
    pub fn is_finished(&self) -> bool {
        self.ended.is_some() && self.outputs.iter().all(|o| o.pipe.is_none())
    }

    /// Records the end of the process: the output until now belongs to it, later output does not.
    pub fn end(&mut self, code: i32, signal: u32, scratch: &mut [u8]) {
        self.ended = Some((code, signal));
        for output in &mut self.outputs {
            output.finish(self.terminal);
        }
        if let Some(control) = &self.control {
            let mut rest = sys::waiting(control.as_raw_fd());
            while rest > 0 && self.control_readable {
                match self.read_control(scratch) as u64 {
                    0 => break,
                    count => rest = rest.saturating_sub(count),
                }
            }
        }
        self.control = None;
        self.control_readable = false;
        self.stdin = None;
        self.stdin_queue.flush(None::<&mut File>);
        self.control_queue.flush(None::<&mut File>);
    }

    /// Moves output to the host without waiting; `true` if the stream has ended.
    pub fn pump(&mut self, outbox: &mut Outbox, scratch: &mut [u8]) -> bool {
        let attached = self.stream.is_some();
        for (output, barrier) in self.outputs.iter_mut().zip(self.barrier) {
            loop {
                if let Some(stream) = self.stream {
                    output.send(stream, outbox);
                }
                // do not poll for bytes that are known to be there
                let due = output.last.is_some() || output.ring.end() < barrier;
                let before = output.ring.end();
                if due && output.may_read(attached, outbox) {
                    output.read(self.stream, outbox, scratch);
                }
                if output.ring.end() == before {
                    break;
                }
            }
        }
        let stream = match self.stream {
            Some(stream) => stream,
            None => return false,
        };
        self.send_control(stream, outbox);
        let all_sent = self.held.is_empty() && self.outputs.iter().all(Output::caught_up);
        if let (Some((code, signal)), true) = (self.ended, self.is_finished() && all_sent) {
            let exit = Writer::default().i32(code).u32(signal);
            outbox.frame(kind::EXIT, stream, &exit.u8(self.timed_out as u8).0);
            self.stream = None;
            return true;
        }
        false
    }

    fn send_control(&mut self, stream: u32, outbox: &mut Outbox) {
        let passed =
            |(output, barrier): (&Output, u64)| output.sent >= barrier || (output.pipe.is_none() && output.caught_up());
        while !self.held.is_empty()
            && self.control_credit > 0
            && !outbox.is_full()
            && self.outputs.iter().zip(self.barrier).all(passed)
        {
            let piece = self.held.as_slices().0;
            let count = piece.len().min(self.control_credit).min(PIECE);
            outbox.data(stream, channel::CONTROL, &piece[..count]);
            self.control_credit -= count;
            self.held.drain(..count);
        }
    }

    /// Reads once from the control channel; returns the number of bytes.
    fn read_control(&mut self, scratch: &mut [u8]) -> usize {
        let result = match &mut self.control {
            Some(control) => control.read(scratch),
            None => return 0,
        };
        match result {
            Ok(count) if count > 0 => {
                self.held.extend(&scratch[..count]);
                if self.stream.is_none() && self.held.len() > WINDOW {
                    self.held.drain(..self.held.len() - WINDOW);
                }
                self.barrier = [self.outputs[0].written(), self.outputs[1].written()];
                count
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => 0,
            Err(e) if e.kind() == ErrorKind::Interrupted => 0,
            _ => {
                self.control_readable = false;
                0
            }
        }
    }

    /// Descriptors to poll.
    pub fn interests(&self, outbox: &Outbox, mut add: impl FnMut(Part, i32, i16)) {
        let attached = self.stream.is_some();
        for (part, output) in [Part::Stdout, Part::Stderr].iter().zip(&self.outputs) {
            if let (Some(pipe), true) = (&output.pipe, output.may_read(attached, outbox)) {
                add(*part, pipe.as_raw_fd(), sys::POLLIN);
            }
        }
        if let (Some(stdin), false) = (&self.stdin, self.stdin_queue.queue.is_empty()) {
            add(Part::Stdin, stdin.as_raw_fd(), sys::POLLOUT);
        }
        if let Some(control) = &self.control {
            let mut events = 0;
            if self.control_readable && (!attached || self.held.is_empty()) {
                events |= sys::POLLIN;
            }
            if !self.control_queue.queue.is_empty() {
                events |= sys::POLLOUT;
            }
            if events != 0 {
                add(Part::Control, control.as_raw_fd(), events);
            }
        }
    }

    /// Handles a ready descriptor.
    pub fn ready(&mut self, part: Part, events: i16, outbox: &mut Outbox, scratch: &mut [u8]) {
        let attached = self.stream.is_some();
        match part {
            Part::Stdout | Part::Stderr => {
                let output = &mut self.outputs[(part == Part::Stderr) as usize];
                if output.may_read(attached, outbox) {
                    output.read(self.stream, outbox, scratch);
                }
            }
            Part::Stdin => self.flush_input(channel::STDIN, outbox),
            Part::Control => {
                if events & !sys::POLLOUT != 0 && self.control_readable && (!attached || self.held.is_empty()) {
                    self.read_control(scratch);
                }
                self.flush_input(channel::CONTROL, outbox);
            }
        }
    }

    /// DATA from the host; `false` if it exceeds the credit.
    pub fn data(&mut self, channel: u8, bytes: &[u8], outbox: &mut Outbox) -> bool {
        let fits = match channel {
            channel::STDIN => self.stdin_queue.accept(bytes, self.stdin.as_mut()),
            channel::CONTROL => self.control_queue.accept(bytes, self.control.as_mut()),
            _ => return false,
        };
        if let (channel::STDIN, Some(last)) = (channel, bytes.last()) {
            self.line_unfinished = !matches!(last, b'\n' | b'\r');
        }
        self.flush_input(channel, outbox);
        fits
    }

    /// The host sends no more on this channel.
    pub fn eof(&mut self, channel: u8, outbox: &mut Outbox) {
        match channel {
            channel::STDIN if self.terminal => self.type_end_of_input(),
            channel::STDIN => self.stdin_queue.closing = true,
            channel::CONTROL => self.control_queue.closing = true,
            _ => return,
        }
        self.flush_input(channel, outbox);
    }

    /// A terminal has no end of file: its EOF character ends the read of the line it is typed in.
    fn type_end_of_input(&mut self) {
        if let Some(key) = self.stdin.as_ref().and_then(sys::end_of_input) {
            let times = if self.line_unfinished { 2 } else { 1 };
            self.stdin_queue.queue.extend([key; 2].iter().take(times));
            self.line_unfinished = false;
        }
    }

    fn flush_input(&mut self, channel: u8, outbox: &mut Outbox) {
        if channel == channel::STDIN {
            let queue = &mut self.stdin_queue;
            let open = queue.flush(self.stdin.as_mut());
            if !open || (queue.closing && queue.queue.is_empty()) {
                self.stdin = None;
            }
            queue.give_credit(self.stream, channel, outbox);
            self.tell_stdin_eof(outbox);
            return;
        }
        let queue = &mut self.control_queue;
        queue.flush(self.control.as_mut());
        if let (Some(control), true) = (&self.control, queue.closing && queue.queue.is_empty()) {
            // a second shutdown fails without effect
            let _ = control.shutdown(Shutdown::Write);
        }
        queue.give_credit(self.stream, channel, outbox);
    }

    fn tell_stdin_eof(&mut self, outbox: &mut Outbox) {
        if let (Some(stream), false) = (self.stream, self.takes_stdin() || self.stdin_eof_told) {
            self.stdin_eof_told = true;
            outbox.eof(stream, channel::STDIN);
        }
    }

    /// The host returns credit.
    pub fn credit(&mut self, channel: u8, bytes: usize) {
        let credit = match channel {
            channel::STDOUT => &mut self.outputs[0].credit,
            channel::STDERR => &mut self.outputs[1].credit,
            channel::CONTROL => &mut self.control_credit,
            _ => return,
        };
        *credit = credit.saturating_add(bytes).min(WINDOW);
    }
}
