//! The agent's loop: waits for the port, signals and processes, and handles frames.

mod child_tasks;
mod egress;
mod fork;
mod processes;
mod shares;
mod transfers;
mod wait;

use crate::child_task::ChildTask;
use crate::failure::Failure;
use crate::files::{self, Download, Upload};
use crate::generators::Generators;
use crate::hold::Hold;
use crate::listeners;
use crate::metrics;
use crate::network::{EgressSocket, Network, FIRST_AGENT_STREAM};
use crate::openssl::OpenSsl;
use crate::outbox::Outbox;
use crate::port::Port;
use crate::process::Part;
use crate::protocol::{attached_record, channel, kind, Decoder, Event, Frame, VERSION};
use crate::resync::Identity;
use crate::shares::{Mount, Shares};
use crate::shutdown;
use crate::socket::Socket;
use crate::starting::Starting;
use crate::sys::{self, PollFd};
use crate::table::Table;
use crate::tools;
use forkd_wire::{Reader, Writer};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};

const MOST_STREAMS: usize = 4096;
const SCRATCH: usize = 65536;

enum Stream {
    Process(u64),
    Starting(u64),
    Download(Download),
    Upload(Upload),
    Socket(Socket),
    /// A child of the agent answers on this stream.
    Child(ChildTask),
    Mounting(ChildTask, Mount),
    Share(u32),
}

/// The owner of a polled descriptor.
enum Source {
    Process(u64, Part),
    Starting,
    Stream(u32),
    EgressSocket(EgressSocket),
    Share(u32),
}

pub struct Agent {
    port: Port,
    signals: File,
    outbox: Outbox,
    streams: BTreeMap<u32, Stream>,
    table: Table,
    starting: BTreeMap<u64, Starting>,
    shares: Shares,
    identity: Identity,
    generators: Generators,
    openssl: OpenSsl,
    hold: Hold,
    /// The last process that was started before a rehearsal.
    rehearsal: Option<u64>,
    network: Network,
    /// The last stream that the agent opened.
    last_agent_stream: u32,
    release: String,
    attached: u32,
    /// The last program whose start a child of the agent has begun.
    last_start: u64,
    scratch: Vec<u8>,
    fds: Vec<PollFd>,
    /// Owners of the descriptors from the third on.
    sources: Vec<Source>,
    /// The stream that sends next.
    turn: u32,
}

impl Agent {
    pub fn new() -> io::Result<Agent> {
        Ok(Agent {
            signals: sys::child_signals()?,
            outbox: Outbox::default(),
            streams: BTreeMap::new(),
            table: Table::default(),
            starting: BTreeMap::new(),
            shares: Shares::default(),
            identity: Identity::new()?,
            generators: Generators::default(),
            openssl: OpenSsl::default(),
            hold: Hold::new(),
            rehearsal: None,
            network: Network::default(),
            last_agent_stream: u32::MAX,
            release: fs::read_to_string("/proc/sys/kernel/osrelease")?,
            attached: 0,
            last_start: 0,
            scratch: vec![0; SCRATCH],
            fds: Vec::new(),
            sources: Vec::new(),
            turn: 0,
            // last, because the host is served from here on
            port: Port::open()?,
        })
    }

    /// Serves a host that knows the key; never returns without an error.
    pub fn run(&mut self, key: &[u8; 16]) -> io::Result<()> {
        let mut decoder = Decoder::new(key);
        loop {
            let more = self.send();
            let timeout = match self.table.time_outs() {
                _ if more => 0,
                Some(ms) => ms.min(i32::MAX as u64) as i32,
                None => -1,
            };
            self.wait(timeout)?;
            if self.port.ready(self.fds[0].revents) {
                let attached = self.attached;
                self.receive(&mut decoder);
                // Data of the next host can arrive before the guest kernel has seen that it is connected: in a clone both
                // have happened before its first instruction.
                if !self.port.is_connected() && self.attached == attached {
                    // so that a process that waits for a share can end although no host answers
                    self.shares.detach_all();
                }
            }
            if self.fds[1].revents != 0 {
                self.read_signals();
            }
            self.sources_ready();
        }
    }

    fn sources_ready(&mut self) {
        for at in 0..self.sources.len() {
            let events = self.fds[at + 2].revents;
            if events != 0 {
                self.ready(at, events);
            }
        }
    }

    /// Handles a ready descriptor.
    fn ready(&mut self, at: usize, events: i16) {
        match self.sources[at] {
            Source::Process(id, part) => {
                if let Some(process) = self.table.get(id) {
                    process.ready(part, events, &mut self.outbox, &mut self.scratch);
                }
            }
            Source::Starting => self.started(),
            Source::Stream(number) => self.stream_ready(number, events),
            Source::EgressSocket(socket) => self.serve(socket),
            Source::Share(number) => self.share_ready(number),
        }
    }

    fn stream_ready(&mut self, number: u32, events: i16) {
        match self.streams.get_mut(&number) {
            Some(Stream::Socket(socket)) => {
                let result = socket.ready(number, events, &mut self.outbox, &mut self.scratch);
                self.settle(number, result);
            }
            Some(Stream::Download(download)) => download.ready(),
            Some(Stream::Upload(upload)) => {
                let ended = upload.ready(number, &mut self.outbox);
                self.end_upload(number, ended);
            }
            Some(Stream::Child(_) | Stream::Mounting(..)) => self.child_ready(number),
            _ => {}
        }
    }

    /// After work on a stream: it may have failed or ended.
    fn settle(&mut self, number: u32, result: Result<(), Failure>) {
        if let Err(failure) = result {
            self.forget(number);
            failure.report(number, &mut self.outbox);
            return;
        }
        if matches!(self.streams.get(&number), Some(Stream::Socket(socket)) if socket.is_over()) {
            if let Some(Stream::Socket(socket)) = self.streams.remove(&number) {
                socket.finish(number, &mut self.outbox);
            }
        }
    }

    /// Moves output to the host as far as credit and port allow; `true` if more could be sent at once.
    fn send(&mut self) -> bool {
        let (streams, outbox) = (&mut self.streams, &mut self.outbox);
        self.table.pump(outbox, &mut self.scratch, |stream| {
            streams.remove(&stream);
        });
        let more = self.send_files();
        let outbox = &mut self.outbox;
        self.shares.pump(outbox);
        let was_full = outbox.is_full();
        if !outbox.is_empty() {
            // a port that fails has no host; the next attach starts afresh
            let _ = outbox.write_to(&mut self.port);
        }
        (was_full || more) && !outbox.is_full()
    }

    fn receive(&mut self, decoder: &mut Decoder) {
        decoder.fill(|room| self.port.receive(room));
        while let Some(event) = decoder.next() {
            match event {
                Event::Attach(nonce) => self.attach(&nonce),
                Event::Frame(frame) => self.frame(&frame),
            }
        }
    }

    fn read_signals(&mut self) {
        // the content does not matter: all ended children are reaped
        let _ = self.signals.read(&mut self.scratch);
        while let Some(ended) = sys::reap() {
            // it may be a program whose start a child has just reported
            self.started();
            self.table.ended(ended, &mut self.scratch);
        }
    }

    /// A host attached: all state of the previous connection is dropped, except processes and mounts.
    fn attach(&mut self, nonce: &[u8; 16]) {
        self.outbox.clear();
        self.streams.clear();
        self.network.detach();
        self.table.detach_all();
        self.shares.detach_all();
        self.starting.values_mut().for_each(Starting::detach);
        self.attached += 1;
        self.outbox.raw(&attached_record(nonce));
        let hello = Writer::default()
            .u32(VERSION)
            .str(env!("CARGO_PKG_VERSION"))
            .str(self.release.trim_end())
            .u32(self.attached)
            .u64(sys::monotonic_ms());
        self.outbox.frame(kind::HELLO, 0, &hello.0);
    }

    fn frame(&mut self, frame: &Frame) {
        let result = match kind::opens_a_stream(frame.kind) {
            true => self.request(frame),
            false => self.continuation(frame),
        };
        self.settle(frame.stream, result);
    }

    /// Drops a stream that the host has cancelled.
    fn forget(&mut self, stream: u32) {
        match self.streams.remove(&stream) {
            Some(Stream::Process(id)) => self.table.detach(id),
            Some(Stream::Share(number)) => self.end_share(number),
            _ => {}
        }
    }

    /// A frame for an open stream.
    fn continuation(&mut self, frame: &Frame) -> Result<(), Failure> {
        let number = frame.stream;
        if self.network.answer(number, frame.kind, &frame.payload)? {
            return Ok(());
        }
        if frame.kind == kind::OPENED {
            self.opened(number);
            return Ok(());
        }
        let stream = match self.streams.get_mut(&number) {
            Some(stream) => stream,
            None => return Ok(()),
        };
        if let Stream::Starting(id) = stream {
            if let Some(starting) = self.starting.get_mut(id) {
                starting.frames.push(frame.to_owned());
            }
            return Ok(());
        }
        if matches!(frame.kind, kind::CANCEL | kind::ERROR) {
            self.forget(number);
            return Ok(());
        }
        let mut reader = Reader::new(&frame.payload);
        if let Stream::Process(id) = stream {
            let id = *id;
            return self.process_frame(id, frame, &mut reader);
        }
        if let Stream::Child(child) = stream {
            child.frame(frame);
            return Ok(());
        }
        let channel = reader.u8()?;
        match (stream, frame.kind) {
            (Stream::Download(download), kind::CREDIT) => download.credit(reader.u32()? as usize),
            (Stream::Socket(socket), kind::CREDIT) => socket.credit(reader.u32()? as usize),
            (Stream::Socket(socket), kind::DATA) => socket.data(number, reader.rest(), &mut self.outbox)?,
            (Stream::Socket(socket), kind::EOF) => socket.eof(number, &mut self.outbox),
            (Stream::Upload(upload), kind::DATA) if channel == channel::STDIN => {
                upload.data(number, reader.rest(), &mut self.outbox)?
            }
            (Stream::Upload(upload), kind::EOF) if channel == channel::STDIN => {
                let ended = upload.eof(number, &mut self.outbox);
                self.end_upload(number, ended);
            }
            (Stream::Share(share), _) => {
                if let Some(share) = self.shares.get(*share) {
                    share.frame(frame.kind, &mut reader, &mut self.outbox)?;
                }
            }
            _ => return Err(Failure::Malformed),
        }
        Ok(())
    }

    /// A frame that opens a stream.
    fn request(&mut self, frame: &Frame) -> Result<(), Failure> {
        let (stream, payload) = (frame.stream, frame.payload.as_ref());
        if stream == 0 || stream >= FIRST_AGENT_STREAM || self.streams.contains_key(&stream) {
            return Err(Failure::Refused("bad_request", "the stream is in use"));
        }
        if self.streams.len() >= MOST_STREAMS {
            return Err(Failure::Refused("too_many_streams", "4096 streams are open"));
        }
        if self.is_for_a_child(frame.kind) {
            return self.run_in_child(frame);
        }
        match frame.kind {
            kind::PING => {
                let now = Writer::default().u64(sys::monotonic_ns());
                self.outbox.frame(kind::RESULT, stream, &now.0);
            }
            kind::EXEC => return self.exec(stream, payload),
            kind::ATTACH => return self.attach_process(stream, payload),
            kind::LIST => self.table.list(Reader::new(payload).u64()?, stream, &mut self.outbox),
            kind::READ => {
                let download = Download::open(payload)?;
                self.streams.insert(stream, Stream::Download(download));
            }
            kind::WRITE => {
                let upload = Upload::open(payload)?;
                self.streams.insert(stream, Stream::Upload(upload));
            }
            kind::CONNECT => {
                let socket = Socket::connect(payload)?;
                self.streams.insert(stream, Stream::Socket(socket));
            }
            kind::NETWORK => {
                self.network.switch(payload)?;
                self.outbox.frame(kind::RESULT, stream, &[]);
            }
            kind::LISTENERS => {
                let answer = listeners::answer(payload, self.network.own_port())?;
                self.outbox.frame(kind::RESULT, stream, &answer);
            }
            kind::METRICS => self.outbox.frame(kind::RESULT, stream, &metrics::answer()?),
            kind::STAT | kind::MKDIR | kind::MOVE | kind::REMOVE | kind::CHMOD | kind::CHOWN | kind::SYMLINK => {
                let answer = files::quick(frame.kind, payload)?;
                self.outbox.frame(kind::RESULT, stream, &answer);
            }
            kind::TOOL => {
                let spawned = tools::start(&tools::Request::read(payload)?)?;
                let id = self.table.tool(spawned, stream, &mut self.outbox);
                self.streams.insert(stream, Stream::Process(id));
            }
            kind::MOUNT => return self.mount(stream, payload),
            kind::UNMOUNT => return self.unmount(stream, payload),
            kind::RESYNC => {
                let answer = self.resync(payload)?;
                self.outbox.frame(kind::RESULT, stream, &answer);
            }
            kind::HOLD => {
                let answer = self.hold(payload)?;
                self.outbox.frame(kind::RESULT, stream, &answer);
            }
            kind::CLOCK => {
                sys::set_wall_clock_ns(Reader::new(payload).i64()?)?;
                let now = Writer::default().i64(sys::wall_clock_ns()).u64(sys::monotonic_ns());
                self.outbox.frame(kind::RESULT, stream, &now.0);
            }
            kind::REGIONS => {
                let mut reader = Reader::new(payload);
                let tag = reader.str()?;
                let process = self.table.find(0, &tag).filter(|process| process.ended.is_none());
                let process = process.ok_or(Failure::Refused("no_such_process", "no such process"))?;
                self.generators.set(process, &mut reader)?;
                self.outbox.frame(kind::RESULT, stream, &[]);
            }
            kind::POWEROFF => {
                self.outbox.frame(kind::RESULT, stream, &[]);
                self.shares = Shares::default(); // otherwise a process could wait for a share that is no longer served
                shutdown::power_off(&mut self.outbox, &mut self.port)
            }
            _ => return Err(Failure::Refused("unsupported", "unknown frame type")),
        }
        Ok(())
    }
}
