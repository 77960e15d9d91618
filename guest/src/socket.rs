//! A TCP connection of the guest, carried over a stream.

use crate::channels::{Input, PIECE};
use crate::failure::Failure;
use crate::outbox::Outbox;
use crate::protocol::{channel, kind, DIAL_WINDOW, WINDOW};
use crate::sys;
use forkd_wire::Reader;
use std::io::{self, Read};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::io::{AsRawFd, RawFd};

#[derive(PartialEq)]
enum State {
    /// To a server in the guest; writable when the connection is made or has failed.
    Connecting,
    /// To an outside address; the host reports when it is connected.
    Dialling,
    Open,
    Over,
}

pub struct Socket {
    tcp: TcpStream,
    state: State,
    /// Bytes that may still be sent to the host.
    credit: usize,
    input: Input,
    read_end: bool,
    write_end: bool,
}

impl Socket {
    fn new(tcp: TcpStream, state: State, window: usize) -> Socket {
        let mut input = Input::default();
        input.open(window);
        Socket {
            tcp,
            state,
            credit: window,
            input,
            read_end: false,
            write_end: false,
        }
    }

    /// CONNECT: to a server in the guest.
    pub fn connect(payload: &[u8]) -> Result<Socket, Failure> {
        let mut reader = Reader::new(payload);
        let (host, port) = (reader.str()?, reader.u32()?);
        let ip: IpAddr = host
            .parse()
            .map_err(|_| Failure::Refused("bad_request", "the address must be an IP address"))?;
        let port = u16::try_from(port).map_err(|_| Failure::Malformed)?;
        let tcp = sys::tcp_connect(&SocketAddr::new(ip, port))?;
        Ok(Socket::new(tcp, State::Connecting, WINDOW))
    }

    /// DIAL: from a program to an outside address.
    pub fn dial(tcp: TcpStream) -> Socket {
        Socket::new(tcp, State::Dialling, DIAL_WINDOW)
    }

    /// OPENED: the host has connected.
    pub fn opened(&mut self, stream: u32, is_wide: bool, outbox: &mut Outbox) {
        if self.state == State::Dialling {
            self.state = State::Open;
            if is_wide {
                let more = self.input.widen(WINDOW);
                outbox.credit(stream, channel::STDIN, more);
            }
            self.flush(stream, outbox);
        }
    }

    pub fn credit(&mut self, bytes: usize) {
        self.credit = self.credit.saturating_add(bytes).min(WINDOW);
    }

    pub fn data(&mut self, stream: u32, bytes: &[u8], outbox: &mut Outbox) -> Result<(), Failure> {
        if !self.input.accept(bytes, None::<&mut TcpStream>) {
            return Err(Failure::FlowControl);
        }
        self.flush(stream, outbox);
        Ok(())
    }

    pub fn eof(&mut self, stream: u32, outbox: &mut Outbox) {
        self.input.closing = true;
        self.flush(stream, outbox);
    }

    /// The descriptor to poll.
    pub fn interest(&self, outbox: &Outbox) -> Option<(RawFd, i16)> {
        let events = match self.state {
            State::Connecting => sys::POLLOUT,
            State::Open => {
                let mut events = 0;
                if self.may_read(outbox) {
                    events |= sys::POLLIN;
                }
                if !self.input.queue.is_empty() {
                    events |= sys::POLLOUT;
                }
                events
            }
            // a program that closed its socket shows as an error, which poll always reports
            State::Dialling => return Some((self.tcp.as_raw_fd(), 0)),
            State::Over => 0,
        };
        (events != 0).then(|| (self.tcp.as_raw_fd(), events))
    }

    /// Handles a ready descriptor.
    pub fn ready(&mut self, stream: u32, events: i16, outbox: &mut Outbox, scratch: &mut [u8]) -> Result<(), Failure> {
        if self.state == State::Connecting {
            if let Some(error) = self.tcp.take_error()? {
                return Err(error.into());
            }
            self.state = State::Open;
            outbox.frame(kind::OPENED, stream, &[]);
        }
        if self.state == State::Dialling {
            let error = self.tcp.take_error()?;
            return Err(error
                .unwrap_or_else(|| io::Error::from_raw_os_error(libc::ECONNRESET))
                .into());
        }
        self.flush(stream, outbox);
        if events & !sys::POLLOUT != 0 && self.may_read(outbox) {
            self.read(stream, outbox, scratch)?;
        }
        Ok(())
    }

    /// Both directions have ended, so the stream has ended.
    pub fn is_over(&self) -> bool {
        self.read_end && self.write_end
    }

    /// A regular end: bytes in transit are delivered.
    pub fn finish(mut self, stream: u32, outbox: &mut Outbox) {
        self.state = State::Over;
        outbox.frame(kind::RESULT, stream, &[]);
    }

    fn may_read(&self, outbox: &Outbox) -> bool {
        self.state == State::Open && !self.read_end && self.credit > 0 && !outbox.is_full()
    }

    fn read(&mut self, stream: u32, outbox: &mut Outbox, scratch: &mut [u8]) -> Result<(), Failure> {
        let most = PIECE.min(self.credit).min(scratch.len());
        match self.tcp.read(&mut scratch[..most]) {
            Ok(0) => {
                self.read_end = true;
                outbox.eof(stream, channel::STDIN);
            }
            Ok(count) => {
                sys::acknowledge(&self.tcp);
                outbox.data(stream, channel::STDIN, &scratch[..count]);
                self.credit -= count;
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock || e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }

    fn flush(&mut self, stream: u32, outbox: &mut Outbox) {
        if self.state != State::Open {
            return;
        }
        let open = self.input.flush(Some(&mut self.tcp));
        if !self.write_end && (!open || (self.input.closing && self.input.queue.is_empty())) {
            self.write_end = true;
            // the next read detects a peer that has closed
            let _ = self.tcp.shutdown(Shutdown::Write);
        }
        self.input.give_credit(Some(stream), channel::STDIN, outbox);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.state != State::Over {
            // aborted: the program must not take the received bytes for all of them
            sys::reset_on_close(&self.tcp);
        }
    }
}
